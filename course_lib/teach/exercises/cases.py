"""What does the learner's function give for each case of an exercise, as far as it gets?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.teach.exercises.exercise import Assessment
from course_lib.teach.exercises.guard import LIMIT_S, GuardedRun, run_guarded, why_not_callable
from course_lib.teach.exercises.result import Outcome
from course_lib.teach.exercises.values import brief, kind

STILL_DOTS = "The dots (`...`) are still there: put your answer in their place."


@dataclass(frozen=True)
class Case:
    """Values by parameter name, and what is special about them, said to whom fails on them."""

    arguments: Mapping[str, object]
    remark: str = ""

    def __str__(self) -> str:
        return ", ".join(f"`{name}={brief(value)}`" for name, value in self.arguments.items())


@dataclass(frozen=True)
class Diagnosis:
    """A wrong function that learners write, and what they hear when theirs gives the same in every case."""

    formula: Callable[..., object]
    says: str


@dataclass(frozen=True)
class Runs:
    """The learner's function in the cases up to, and without, the one in which it gave no usable value."""

    done: tuple[tuple[Case, Any], ...]  # the case, and the usable value
    stopped: Assessment | None  # what to say of the case after these; None when all were done
    changed: tuple[str, ...]  # parameters changed in place
    printed: str  # by the first call that printed anything


def run_cases(
    answer: object,
    reference: Callable[..., object],
    cases: tuple[Case, ...],
    usable: Callable[[object], Any],
    *,
    limit_s: float = LIMIT_S,
) -> Runs:
    """Call the learner's function on one case after another, until all are done or one gives no usable value.

    Args:
        answer: what the learner handed in, a function or not.
        reference: the right function, for the name and the parameters that the learner's must have.
        cases: what to call it with.
        usable: turns a returned value into what is compared, or raises UnusableError with what it is instead.
        limit_s: seconds for each call.
    """
    name, parameters = reference.__name__, tuple(inspect.signature(reference).parameters)
    if holds_dots(answer):
        return Runs((), Assessment(Outcome.NOT_ATTEMPTED, STILL_DOTS), (), "")
    why_not = why_not_callable(answer, name, parameters)
    if why_not or not callable(answer):
        return Runs((), Assessment(Outcome.NOT_YET, why_not), (), "")
    done: list[tuple[Case, Any]] = []
    changed: list[str] = []
    printed = ""
    for case in cases:
        run = run_guarded(answer, case.arguments, limit_s=limit_s)
        printed = printed or run.printed
        changed += [one for one in run.changed if one not in changed]
        stopped = _unusable(run, case)
        if stopped is None:
            try:
                done.append((case, usable(run.value)))
            except UnusableError as error:
                stopped = Assessment(Outcome.NOT_YET, sentence(f"For {case} your function returned {error}"))
        if stopped is not None:
            return Runs(tuple(done), stopped, tuple(changed), printed)
    return Runs(tuple(done), None, tuple(changed), printed)


class UnusableError(Exception):
    """A returned value cannot be compared. The text completes "your function returned ..."."""


def holds_dots(value: object) -> bool:
    """Whether the value is, or holds at its first level, the dots of the learner's edition."""
    if isinstance(value, dict):
        return any(one is ... for one in value.values())
    if isinstance(value, list | tuple | set):
        return any(one is ... for one in value)
    return value is ...


def sentence(text: str) -> str:
    """The text with a full stop, where it has no end yet."""
    return text if text.endswith((".", "?")) else text + "."


def _unusable(run: GuardedRun, case: Case) -> Assessment | None:
    """What to say of a call that gave no value, or none that can be looked at."""
    if run.fault is not None:
        if run.fault.kind == "dots":
            return Assessment(Outcome.NOT_ATTEMPTED, sentence(f"Your function {run.fault.text}"))
        remark = f" {case.remark}" if case.remark and run.fault.kind == "raised" else ""
        return Assessment(Outcome.NOT_YET, sentence(f"For {case} your function {run.fault.text}") + remark)
    if holds_dots(run.value):
        return Assessment(Outcome.NOT_ATTEMPTED, STILL_DOTS)
    if run.value is None:
        instead = " It prints: the check looks at what it returns." if run.printed else ""
        return Assessment(
            Outcome.NOT_YET, f"For {case} your function returned nothing: is a `return` missing?{instead}"
        )
    if inspect.iscoroutine(run.value):
        run.value.close()  # else Python warns that nobody awaited it
        return Assessment(
            Outcome.NOT_YET, f"Your function returned {kind(run.value)}: return the value itself."
        )
    return None
