"""Does a claim of the guide hold here? How a lesson says so, and how the answers are found again.

A lesson writes ``judge("loading.workers", "holds when", number=3.1, unit="times faster", note="...")``. The
cell shows the verdict, and its output also holds it as data, so that ``course run`` collects the verdicts
from the executed notebooks without reading prose.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from html import escape
from typing import Any

from IPython.core.getipython import get_ipython

from course_lib.claims import claim
from course_lib.errors import CourseError
from course_lib.machine import short_name

MIME_TYPE = "application/vnd.course.judgement+json"


class Verdict(StrEnum):
    """What a test can say about a claim."""

    HOLDS = "holds"
    HOLDS_WHEN = "holds when"
    FAILS = "fails"
    CANNOT_BE_TESTED_HERE = "cannot be tested here"


_COLOURS = {  # Okabe-Ito; the words say the same for who does not see colours
    Verdict.HOLDS: "#009E73",
    Verdict.HOLDS_WHEN: "#E69F00",
    Verdict.FAILS: "#D55E00",
    Verdict.CANNOT_BE_TESTED_HERE: "#999999",
}


_KINDS: dict[str, tuple[type, ...]] = {  # the fields of a Judgement as JSON
    "claim_id": (str,),
    "verdict": (str,),
    "number": (int, float, type(None)),
    "unit": (str,),
    "note": (str,),
    "machine": (str,),
}


def read_verdict(text: str) -> Verdict:
    """The verdict of that name. Raises CourseError, with the four verdicts, for another one."""
    try:
        return Verdict(text)
    except ValueError:
        known = ", ".join(f'"{verdict}"' for verdict in Verdict)
        raise CourseError(f"{text!r} is no verdict; the verdicts are {known}.") from None


@dataclass(frozen=True)
class Judgement:
    """The verdict on one claim, with the number it rests on.

    ``note`` is the condition of "holds when", the reason of "cannot be tested here", and free otherwise.
    ``machine`` says in a few words where it was judged. Raises CourseError for an unknown claim, a verdict
    without its number or note, and a number that is not finite.
    """

    claim_id: str
    verdict: Verdict
    number: float | None = None
    unit: str = ""
    note: str = ""
    machine: str = ""

    def __post_init__(self) -> None:
        claim(self.claim_id)
        untested = self.verdict is Verdict.CANNOT_BE_TESTED_HERE
        if self.number is None and not untested:
            raise CourseError(f'{self.claim_id}: the verdict "{self.verdict}" needs the number it rests on.')
        if self.number is not None and not math.isfinite(self.number):
            raise CourseError(f"{self.claim_id}: {self.number} is no number to rest a verdict on.")
        if not self.note.strip() and self.verdict is Verdict.HOLDS_WHEN:
            raise CourseError(f'{self.claim_id}: "holds when" needs a note that says when.')
        if not self.note.strip() and untested:
            raise CourseError(
                f'{self.claim_id}: "cannot be tested here" needs a note that says what is missing.'
            )

    @property
    def sentence(self) -> str:
        """Verdict, note and number in one line, such as "holds when files are decoded (3.1 times faster)"."""
        joint = " " if self.verdict is Verdict.HOLDS_WHEN else ": "
        text = f"{self.verdict}{joint}{self.note}" if self.note else str(self.verdict)
        return text if self.number is None else f"{text} ({_readable(self.number)} {self.unit}".rstrip() + ")"

    def to_json(self) -> dict[str, str | float | None]:
        """All fields as plain data; ``from_json`` reads it back."""
        return {**asdict(self), "verdict": str(self.verdict)}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Judgement":
        """A judgement from what ``to_json`` wrote. Raises CourseError for data of another shape."""
        if not isinstance(data, Mapping) or not {"claim_id", "verdict"} <= data.keys() <= _KINDS.keys():
            raise CourseError(f"This is no judgement of the course: {data!r}.")
        wrong = [name for name, value in data.items() if not isinstance(value, _KINDS[name])]
        if wrong:
            raise CourseError(f"This is no judgement of the course, its {wrong[0]} is {data[wrong[0]]!r}.")
        return cls(**{**data, "verdict": read_verdict(str(data["verdict"]))})  # type: ignore[arg-type]

    def __str__(self) -> str:
        where = f"\n  judged on: {self.machine}" if self.machine else ""
        return f"{self.claim_id}: {claim(self.claim_id).statement}\n  {self.sentence}{where}"

    def _repr_html_(self) -> str:
        where = (
            f'<br><span style="opacity:.7">judged on: {escape(self.machine)}</span>' if self.machine else ""
        )
        return (
            f'<div style="border-left:6px solid {_COLOURS[self.verdict]};padding:.4em .8em">'
            f"<strong>{escape(self.sentence)}</strong><br>"
            f"The guide says: {escape(claim(self.claim_id).statement)} "
            f"<code>{escape(self.claim_id)}</code>{where}</div>"
        )


def judge(
    claim_id: str, verdict: str, *, number: float | None = None, unit: str = "", note: str = ""
) -> None:
    """Say in a lesson what a claim is worth, and keep the verdict as data in the cell's output.

    The verdict is shown at once, wherever in the cell this is called, and nothing is returned: a returned
    value would be shown a second time at the end of a cell. Outside of a notebook the text is printed.
    ``number`` may be a NumPy or torch scalar. Raises CourseError as Judgement does; make a Judgement to have
    the value without showing it.
    """
    judgement = Judgement(claim_id, read_verdict(verdict), _plain_number(number), unit, note, short_name())
    shell = get_ipython()
    if shell is None:
        print(judgement)
    else:
        shell.display_pub.publish(
            {
                "text/plain": str(judgement),
                "text/html": judgement._repr_html_(),
                MIME_TYPE: judgement.to_json(),
            }
        )


def judgements_in(notebook: Mapping[str, Any]) -> list[Judgement]:
    """The judgements in the outputs of an executed notebook (a NotebookNode of nbformat), in order.

    Raises CourseError when an output carries the type of a judgement but is none.
    """
    return [
        Judgement.from_json(output["data"][MIME_TYPE])
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if MIME_TYPE in output.get("data", {})
    ]


def _plain_number(number: object) -> float | None:
    if number is None:
        return None
    try:
        return float(number)  # type: ignore[arg-type]  # whatever has __float__
    except (TypeError, ValueError):
        raise CourseError(f"{number!r} is no number to rest a verdict on.") from None


def _readable(number: float) -> str:
    return f"{number:,.0f}" if 1e3 <= abs(number) < 1e15 else f"{number:.4g}"
