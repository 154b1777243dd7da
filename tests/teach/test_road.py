"""The signpost sends a starved step to 04, a computing one to 03, and memory comes first."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.teach import road
from course_lib.teach.lessons import lessons


@dataclass(frozen=True)
class FakeSplit:
    shares: dict[str, float]


def test_usual_road_visits_every_lesson_once() -> None:
    assert sorted(road.USUAL_ROAD) == [stop.number for stop in road.STOPS]


@given(st.floats(0, 1), st.floats(0, 1))
def test_waiting_decides(data: float, transfer: float) -> None:
    total = data + transfer
    if total > 1:
        data, transfer = data / total, transfer / total
    waiting = data + transfer
    split = FakeSplit({"data": data, "transfer": transfer, "forward": 1 - waiting})
    expected = "loading" if waiting >= road.STARVED_SHARE else "precision"
    assert road.where_next(split).stop.word == expected


def test_each_stop_is_called_as_its_lesson() -> None:
    titles = {stop.name: stop.title for stop in road.STOPS}
    assert {lesson.name: titles[lesson.name] for lesson in lessons()} == {
        lesson.name: lesson.title for lesson in lessons()
    }


def test_what_is_no_measured_step_is_told() -> None:
    with pytest.raises(CourseError, match="not 3"):
        road.where_next(3)


def test_memory_comes_first() -> None:
    post = road.where_next(FakeSplit({"data": 0.9, "forward": 0.1}), out_of_memory=True)
    assert post.stop.word == "oom"


def test_a_lesson_that_is_not_there_gets_no_link() -> None:
    target = road.stop("oom")
    missing = road.Signpost(target, "why <b>", in_this_edition=False)
    assert "href" not in missing._repr_html_()
    assert "&lt;b&gt;" in missing._repr_html_()
    assert "not in your edition" in str(missing)
    assert 'href="06_oom.ipynb"' in road.Signpost(target, "why", in_this_edition=True)._repr_html_()


def test_unknown_word_names_the_known_ones() -> None:
    with pytest.raises(CourseError, match="loading"):
        road.stop("lodaing")
