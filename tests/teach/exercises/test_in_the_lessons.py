"""The exercises as the lessons ask them: the same ids, the promised minutes, and a solution that passes."""

import pytest

from course_lib.files import source_dir
from course_lib.teach import solutions
from course_lib.teach.build import solution_of
from course_lib.teach.exercises.registry import exercises_of, topics
from course_lib.teach.exercises.result import Outcome
from course_lib.teach.source import read_source

LESSONS = {lesson.topic: lesson for lesson in map(read_source, sorted(source_dir().glob("*.py")))}
EACH = [pytest.param(exercise, id=exercise.id) for topic in topics() for exercise in exercises_of(topic)]


def answers_in(code):
    """What the cells of an exercise hand in to ``check``, as a list of id and answer."""
    handed_in = []
    exec(code, {"check": lambda *answer: handed_in.append(answer)})
    return handed_in


def text_of(exercise):
    lesson = LESSONS[exercise.id.partition(".")[0]]
    return "\n\n".join(cell.text for cell in lesson.exercises[exercise.id])


@pytest.mark.parametrize("topic", sorted({*LESSONS, *topics()}))
def test_a_lesson_asks_the_exercises_of_its_module_in_their_order(topic):
    assert topic in LESSONS, f"the module {topic}.py has no lesson"
    assert list(LESSONS[topic].exercises) == [exercise.id for exercise in exercises_of(topic)]


@pytest.mark.parametrize("exercise", EACH)
def test_the_lesson_promises_the_same_minutes_and_difficulty(exercise):
    minutes = f"{exercise.minutes} minute{'s' if exercise.minutes > 1 else ''}"
    assert f"{minutes} · {exercise.dots}" in text_of(exercise)


@pytest.mark.parametrize("exercise", EACH)
def test_the_solution_of_the_lesson_passes(exercise):
    [(exercise_id, answer)] = answers_in(solution_of(exercise.id))
    assert exercise_id == exercise.id
    assessment = exercise.checker(answer)
    assert assessment.outcome is Outcome.CORRECT, assessment.message


@pytest.mark.parametrize("exercise", EACH)
def test_the_learners_edition_is_not_attempted(exercise):
    [(_, answer)] = answers_in(solutions.unsolved(text_of(exercise)))
    assert exercise.checker(answer).outcome is Outcome.NOT_ATTEMPTED
