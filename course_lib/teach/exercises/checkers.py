"""In which words is a check written? One class for each kind of answer an exercise can ask for.

    NumericFunction   a function that returns a number     compared with the right function
    WordFunction      a function that returns one of a few words
    Number            one number
    Choice            one of a few options, each wrong one explained

A checker is called with whatever the learner handed in and returns a ``Assessment``. Its messages say what is
wrong. They never hold the right value or formula; the tests look for these in the messages to wrong answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.teach.exercises.cases import (
    STILL_DOTS,
    Case,
    Diagnosis,
    Runs,
    UnusableError,
    holds_dots,
    run_cases,
    sentence,
)
from course_lib.teach.exercises.exercise import Assessment
from course_lib.teach.exercises.guard import LIMIT_S
from course_lib.teach.exercises.result import Outcome
from course_lib.teach.exercises.values import NotANumberError, as_number, brief, kind

REL_TOL = 1e-6
"""Relative tolerance between two numbers: float32 arithmetic passes, a rounded result does not."""

_ROUNDED = 0.01  # nearer than this, but not equal: rounded, most likely
_UNIT_FACTORS = (60.0, 100.0, 1000.0, 1024.0, 3600.0, 1e6, 1024.0**2)  # and their inverses


@dataclass(frozen=True)
class NumericFunction:
    """The learner's function must return what ``reference`` returns, in every case.

    ``reference`` also says how the learner's function is called and which parameters it takes. Put the plain
    cases first: an early wrong value tells more than a later exception.
    """

    reference: Callable[..., float]
    cases: tuple[Case, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    rel_tol: float = REL_TOL
    limit_s: float = LIMIT_S

    def __call__(self, answer: object) -> Assessment:
        """What to say of this answer."""
        runs = run_cases(answer, self.reference, self.cases, _finite_number, limit_s=self.limit_s)
        return _assess(runs, self.diagnoses, self.reference, self._agree, self._unexplained)

    def _agree(self, value: float, expected: float) -> bool:
        return math.isclose(value, expected, rel_tol=self.rel_tol, abs_tol=1e-12)

    def _unexplained(self, done: tuple[tuple[Case, Any], ...]) -> str:
        pairs = [(value, float(self.reference(**case.arguments))) for case, value in done]
        ratios = {f"{value / expected:.4g}" for value, expected in pairs if expected}
        if all(math.isclose(value, expected, rel_tol=_ROUNDED) for value, expected in pairs):
            return "Very near. Is something rounded on the way? Return the number with all its digits."
        if len(pairs) > 1 and len(ratios) == 1:
            ratio = abs(float(ratios.pop()))
            if ratio and any(math.isclose(max(ratio, 1 / ratio), one, rel_tol=1e-3) for one in _UNIT_FACTORS):
                return "All your numbers are off by one factor: which unit is wanted, and which is given?"
        case, value, expected = next(
            (case, value, expected)
            for (case, value), (_, expected) in zip(done, pairs, strict=True)
            if not self._agree(value, expected)
        )
        which = "small" if value < expected else "large"
        return (
            f"For {case} your function returned {brief(value)}, which is too {which}. {case.remark}".rstrip()
        )


@dataclass(frozen=True)
class WordFunction:
    """The learner's function must return one of ``words``, in every case one that ``reference`` accepts."""

    reference: Callable[..., frozenset[str]]  # the right words: more than one where there is a tie
    words: tuple[str, ...]
    cases: tuple[Case, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    other_words: Mapping[str, str] | None = None  # a word that is none of ``words`` -> what its users hear
    limit_s: float = LIMIT_S

    def __call__(self, answer: object) -> Assessment:
        """What to say of this answer."""
        runs = run_cases(answer, self.reference, self.cases, self._word, limit_s=self.limit_s)
        return _assess(runs, self.diagnoses, self.reference, self._agree, self._unexplained)

    def _word(self, value: object) -> str:
        if not isinstance(value, str):
            raise UnusableError(f"{kind(value)}: a word is wanted, {_one_of(self.words)}")
        word = str(value)
        if word in self.words:
            return word
        if word in (self.other_words or {}):
            raise UnusableError(f"{brief(word)}. {(self.other_words or {})[word]}")
        raise UnusableError(f"{brief(word)}: a word is wanted, written as here, {_one_of(self.words)}")

    def _agree(self, value: str, expected: frozenset[str]) -> bool:
        return value in expected

    def _unexplained(self, done: tuple[tuple[Case, Any], ...]) -> str:
        case, value = next(
            (case, value) for case, value in done if value not in self.reference(**case.arguments)
        )
        return f"For {case} your function returned {brief(value)}, and that is not it. {case.remark}".rstrip()


@dataclass(frozen=True)
class Number:
    """The answer is one number. ``wrong`` tells those who come to a known wrong number what they did."""

    expected: float
    wrong: tuple[tuple[float, str], ...] = ()
    rel_tol: float = REL_TOL

    def __call__(self, answer: object) -> Assessment:
        """What to say of this answer."""
        if holds_dots(answer):
            return Assessment(Outcome.NOT_ATTEMPTED, STILL_DOTS)
        try:
            value = _finite_number(answer)
        except UnusableError as error:
            return Assessment(Outcome.NOT_YET, sentence(f"You handed in {error}"))
        if math.isclose(value, self.expected, rel_tol=self.rel_tol, abs_tol=1e-12):
            return Assessment(Outcome.CORRECT)
        for number, says in self.wrong:
            if math.isclose(value, number, rel_tol=self.rel_tol, abs_tol=1e-12):
                return Assessment(Outcome.NOT_YET, says)
        which = "small" if value < self.expected else "large"
        return Assessment(Outcome.NOT_YET, f"{brief(value)} is too {which}.")


@dataclass(frozen=True)
class Choice:
    """The answer is the name of one option, as ``"b"``. Each wrong option has its explanation."""

    right: str
    wrong: Mapping[str, str]

    def __call__(self, answer: object) -> Assessment:
        """What to say of this answer."""
        if holds_dots(answer):
            return Assessment(Outcome.NOT_ATTEMPTED, STILL_DOTS)
        options = sorted([self.right, *self.wrong])
        if not isinstance(answer, str):
            return Assessment(
                Outcome.NOT_YET,
                f"You handed in {kind(answer)}: hand in one option in quotes, {_one_of(options)}.",
            )
        option = answer.strip().lower()
        if option == self.right:
            return Assessment(Outcome.CORRECT)
        if option in self.wrong:
            return Assessment(Outcome.NOT_YET, self.wrong[option])
        return Assessment(
            Outcome.NOT_YET, f"{brief(answer)} is not among the options: hand in {_one_of(options)}."
        )


def _assess(
    runs: Runs,
    diagnoses: tuple[Diagnosis, ...],
    reference: Callable[..., Any],
    agree: Callable[[Any, Any], bool],
    unexplained: Callable[[tuple[tuple[Case, Any], ...]], str],
) -> Assessment:
    """A wrong value is told before what stopped the run: it comes from an earlier, plainer case."""
    printed = runs.printed
    if all(agree(value, reference(**case.arguments)) for case, value in runs.done):
        if runs.stopped is not None:
            return Assessment(runs.stopped.outcome, runs.stopped.message, printed)
        if runs.changed:
            names = " and ".join(f"`{name}`" for name in runs.changed)
            return Assessment(
                Outcome.NOT_YET,
                f"The values are right, but your function changes {names}, which belongs to its caller: "
                "work on a copy, or only read.",
                printed,
            )
        return Assessment(Outcome.CORRECT, printed=printed)
    for diagnosis in diagnoses:
        if all(_gives(diagnosis.formula, case, value) for case, value in runs.done):
            return Assessment(Outcome.NOT_YET, diagnosis.says, printed)
    return Assessment(Outcome.NOT_YET, unexplained(runs.done), printed)


def _gives(formula: Callable[..., object], case: Case, value: object) -> bool:
    """Whether a known wrong formula gives the learner's value."""
    try:
        known = formula(*case.arguments.values())
    except ArithmeticError:  # the formula divides by zero here; the learner's function did not
        return False
    if isinstance(known, int | float) and isinstance(value, float):
        return math.isclose(known, value, rel_tol=REL_TOL, abs_tol=1e-12)
    return known == value


def _finite_number(value: object) -> float:
    try:
        number = as_number(value)
    except NotANumberError as error:
        how = ", without quotes, `str` or f-string" if isinstance(value, str) else ""
        raise UnusableError(f"{error}: a number is wanted{how}") from None
    if not math.isfinite(number):
        name = "nan (not a number)" if math.isnan(number) else "an infinite number"
        raise UnusableError(f"{name}: is something divided by zero, or zero by zero?")
    return number


def _one_of(words: tuple[str, ...] | list[str]) -> str:
    return "one of " + ", ".join(f'"{word}"' for word in words)
