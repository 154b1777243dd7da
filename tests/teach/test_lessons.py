import json

import pytest

from course_lib.errors import CourseError
from course_lib.teach.lessons import find_lesson, lessons


def write_notebook(folder, name, *cells):
    made = [{"cell_type": kind, "source": source, "metadata": {}} for kind, source in cells]
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": made, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    write_notebook(tmp_path, "10_capstone", ("markdown", "# All of it"))
    write_notebook(
        tmp_path, "04_loading", ("code", "# # not this"), ("markdown", ["# Feed the card\n", "Text."])
    )
    write_notebook(tmp_path, "00_start", ("markdown", "Before.\n# not this"), ("markdown", "\n# Where to?"))
    write_notebook(tmp_path, "scratch", ("markdown", "# No lesson"))
    return tmp_path


def test_lessons_come_in_their_order_with_their_first_heading(folder):
    found = [(lesson.name, lesson.number, lesson.topic, lesson.title) for lesson in lessons(folder)]

    assert found == [
        ("00_start", 0, "start", "Where to?"),
        ("04_loading", 4, "loading", "Feed the card"),
        ("10_capstone", 10, "capstone", "All of it"),
    ]
    assert str(lessons(folder)[1]) == "04_loading: Feed the card"


@pytest.mark.parametrize(
    "word", ["4", "04", "loading", "04_loading", "04_loading.ipynb", "04_loading.py", "Loading "]
)
def test_a_lesson_is_found_by_all_that_one_calls_it(folder, word):
    assert find_lesson(word, folder).path == folder / "04_loading.ipynb"


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("lodaing", "Did you mean 04_loading?"),
        ("00_stat", "Did you mean 00_start?"),
        ("7", "the lessons are 00_start, 04_loading, 10_capstone"),
        ("²", "the lessons are"),
        ("", "the lessons are"),
    ],
)
def test_an_unknown_lesson_is_answered_with_those_that_exist(folder, word, advice):
    with pytest.raises(CourseError, match=advice.replace("?", r"\?")):
        find_lesson(word, folder)


def test_no_lessons_is_an_answer(tmp_path):
    assert lessons(tmp_path) == ()
    with pytest.raises(CourseError, match="not built yet"):
        find_lesson("0", tmp_path)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"cells": 3}', '{"cells": [{"source": "# x"}]}', '{"cells": [']
)
def test_a_damaged_lesson_is_named(folder, content):
    (folder / "01_hardware.ipynb").write_text(content, encoding="utf-8")
    with pytest.raises(CourseError, match=r"01_hardware\.ipynb is not a notebook"):
        lessons(folder)


def test_a_lesson_without_a_heading_is_named(folder):
    write_notebook(folder, "01_hardware", ("markdown", "## Second level"), ("markdown", "# "))
    with pytest.raises(CourseError, match=r"01_hardware\.ipynb has no heading"):
        lessons(folder)
