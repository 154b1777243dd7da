import json
from pathlib import Path

from course_lib.teach.exercises.progress import Progress, Record
from course_lib.teach.exercises.registry import exercises_of
from course_lib.teach.exercises.result import Outcome
from course_lib.teach.lessons import Lesson
from course_lib.teach.overview import lay_over, overview

EXERCISES = exercises_of("start")
SOLVED = Record(Outcome.CORRECT, attempts=2, hints=1)


def lesson(number, topic, title="A title"):
    return Lesson(f"{number:02d}_{topic}", number, topic, title, Path(f"{number:02d}_{topic}.ipynb"))


def progress(**records):
    return Progress(Path("mine"), {f"start.{name}": record for name, record in records.items()})


def test_the_next_exercise_follows_the_road_and_not_the_numbers():
    # lesson 04 comes before 01 on the usual road; the exercises stand in for those of both
    first, second = EXERCISES[:2]
    laid = [(lesson(1, "hardware"), (first,)), (lesson(4, "loading"), (second,))]

    assert lay_over(progress(), laid).next_exercise == second.id
    solved = Progress(Path("mine"), {second.id: SOLVED})
    assert lay_over(solved, laid).next_exercise == first.id
    both = Progress(Path("mine"), {second.id: SOLVED, first.id: SOLVED})
    assert lay_over(both, laid).next_exercise is None
    assert str(lay_over(both, laid)).startswith("2 of 2 exercises solved. All exercises are solved.")


def test_a_lesson_off_the_road_comes_last():
    first, second = EXERCISES[:2]
    laid = [(lesson(42, "extra"), (first,)), (lesson(10, "capstone"), (second,))]

    assert lay_over(progress(), laid).next_exercise == second.id
    assert lay_over(Progress(Path("mine"), {second.id: SOLVED}), laid).next_exercise == first.id


def test_numbers_are_those_of_the_records():
    first, second, third = (exercise.id for exercise in EXERCISES[:3])
    records = {
        first: SOLVED,
        second: Record(Outcome.NOT_YET, attempts=3, hints=2),
        "start.gone_since": Record(Outcome.CORRECT, attempts=1),
    }
    (shown,) = lay_over(Progress(Path("mine"), records), [(lesson(0, "start"), EXERCISES[:3])]).lessons

    assert (shown.passed, shown.attempts, shown.hints) == (1, 5, 3)
    assert [exercise_id for exercise_id, _, _ in shown.exercises] == [first, second, third]


def test_no_exercises_is_an_answer():
    found = lay_over(progress(), [(lesson(9, "cost"), ())])
    assert found.next_exercise is None
    assert "The lessons hold no exercises yet." in str(found)


def test_it_prints_escaped_and_is_data():
    found = lay_over(
        Progress(Path("mine"), {}, note="a <b>"), [(lesson(0, "start", "Where <i>?"), EXERCISES)]
    )

    assert "Where &lt;i&gt;?" in found._repr_html_()
    assert "a &lt;b&gt;" in found._repr_html_()
    assert str(found).endswith("\na <b>")
    assert json.loads(json.dumps(found.to_json()))["exercises"] == len(EXERCISES)


def test_the_lessons_of_this_course_are_all_there(tmp_path):
    found = overview(tmp_path)
    assert found.folder == tmp_path
    for one in found.lessons:
        assert len(one.exercises) == len(exercises_of(one.name.partition("_")[2]))
