"""Which exercise does an id name, and which ones are there?"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil

from course_lib.errors import CourseError
from course_lib.teach import exercises as package
from course_lib.teach.exercises.exercise import Exercise


def exercise(exercise_id: object) -> Exercise:
    """The exercise of that id. Only the module of its lesson is imported.

    Raises:
        CourseError: there is none; the sentence names those that come near.
    """
    if not isinstance(exercise_id, str):
        raise CourseError(
            'The first thing to hand in is the name of the exercise, in quotes: "start.throughput".'
        )
    topic = exercise_id.partition(".")[0]
    for one in exercises_of(topic):
        if one.id == exercise_id:
            return one
    known = [one.id for name in topics() for one in exercises_of(name)]
    near = difflib.get_close_matches(exercise_id.strip().lower(), known, n=3)
    advice = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(known)}."
    raise CourseError(f'There is no exercise "{exercise_id[:60]}". {advice}')


def exercises_of(topic: str) -> tuple[Exercise, ...]:
    """The exercises of one lesson, by its topic word, in its order; none for a word that has none."""
    name = f"{package.__name__}.{topic}"
    if not topic.isidentifier() or importlib.util.find_spec(name) is None:
        return ()
    found: tuple[Exercise, ...] = getattr(importlib.import_module(name), "EXERCISES", ())
    return found


def topics() -> tuple[str, ...]:
    """The topic words of the lessons that have exercises."""
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in names if exercises_of(name)))
