"""What came of an answer, and which results does a notebook that was run hold?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from course_lib.errors import CourseError
from course_lib.teach.exercises.panel import GOOD, MORE, OPEN, Panel, Shown

MIME = "application/vnd.course.check+json"
"""The mime type under which a cell's output holds ``{"id", "outcome", "message"}`` of each check."""


class Outcome(StrEnum):
    """What came of an answer."""

    CORRECT = "correct"
    NOT_YET = "not yet"
    NOT_ATTEMPTED = "not attempted"
    NO_SUCH_EXERCISE = "no such exercise"


_TONES = {
    Outcome.CORRECT: GOOD,
    Outcome.NOT_YET: MORE,
    Outcome.NOT_ATTEMPTED: OPEN,
    Outcome.NO_SUCH_EXERCISE: OPEN,
}


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """What ``check`` returns: the outcome, and what is wrong with an answer that is not right yet."""

    id: str
    outcome: Outcome
    message: str
    title: str = ""
    notes: tuple[str, ...] = ()  # what the function printed, where to get help, what could not be kept

    @property
    def panel(self) -> Panel:
        """The outcome in words, the exercise's title, the message and the notes."""
        heading = str(self.outcome).capitalize() + (f": {self.title}" if self.title else "")
        return Panel(_TONES[self.outcome], heading, self.message, notes=self.notes)

    def __repr__(self) -> str:
        return f"<{self.id}: {self.outcome}>"

    def to_json(self) -> dict[str, str]:
        """The id, the outcome and the message, as they stand in a notebook's output."""
        return {"id": self.id, "outcome": str(self.outcome), "message": self.message}

    def mime_bundle(self) -> dict[str, Any]:
        """The text, the HTML, and the result as data."""
        return super().mime_bundle() | {MIME: self.to_json()}


def results_in(notebook: Mapping[str, Any]) -> list[Result]:
    """The results of all checks in a notebook that was run, in the order of its cells.

    Args:
        notebook: a notebook in format 4, as ``nbformat.read`` or ``json.load`` gives it.

    Raises:
        CourseError: it is no notebook, or a result in it is not one that ``check`` wrote.
    """
    results = []
    try:
        outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
        bundles = [output.get("data", {}) for output in outputs]
    except (TypeError, KeyError, AttributeError):
        raise CourseError("This is not a notebook; pass what nbformat.read gives.") from None
    for bundle in bundles:
        if MIME not in bundle:
            continue
        try:
            data = bundle[MIME]
            results.append(Result(str(data["id"]), Outcome(data["outcome"]), str(data["message"])))
        except (TypeError, KeyError, ValueError):
            raise CourseError(
                f"The notebook holds a result under {MIME} that no check wrote; run the notebook again."
            ) from None
    return results
