"""What is an exercise?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from course_lib.teach.exercises.result import Outcome


@dataclass(frozen=True)
class Assessment:
    """What a checker says of an answer."""

    outcome: Outcome
    message: str = ""  # what is wrong, never the answer; code stands between backticks
    printed: str = ""  # what the learner's function printed


@dataclass(frozen=True)
class WrongAnswer:
    """An answer that learners really give, and words that the message to them must hold."""

    answer: object
    hears: str


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson.

    The right and wrong answers are not needed to check an answer. They stand here because whoever writes a
    check must have thought of them; the tests give all of them to the check.
    """

    id: str  # the lesson's topic word, a dot, a name: "start.throughput"
    title: str
    difficulty: Literal[1, 2, 3]
    minutes: int
    hints: tuple[str, ...]  # from a nudge to almost the answer
    checker: Callable[[object], Assessment]  # one of ``checkers``
    right_answers: tuple[object, ...]
    wrong_answers: tuple[WrongAnswer, ...]

    @property
    def dots(self) -> str:
        """The difficulty as the lesson shows it: ``●●○``."""
        return "●" * self.difficulty + "○" * (3 - self.difficulty)
