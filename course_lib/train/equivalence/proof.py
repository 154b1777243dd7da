"""What is the outcome of a proof? The faults, the largest differences, and what each update was made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from course_lib.errors import CourseError

TOLERANCE = 1e-9
"""Gradients that differ by less, relative to their norm, are the same in float64."""


@dataclass(frozen=True)
class Fault:
    """One thing that makes the step another one than training from the large batch.

    `id` names the kind, `title` says it in a few words, `evidence` what was seen, `remedy` what to write.
    """

    id: str
    title: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.title}\n  seen:   {self.evidence}\n  remedy: {self.remedy}"


@dataclass(frozen=True)
class Proof:
    """A step beside its large batch, in float64.

    `gradient_difference` is the largest over all updates of the norm of the difference over the norm of the
    large batch's gradient; `weight_difference` the same for the weights at the end. Both are None when the
    updates cannot be paired. `natural` lists what no accumulation can make equal; `notes` what is worth
    knowing and no fault. `made_of` has a row for each update (on its rank) and a column for each micro-batch
    of each epoch: 1 where it counts for its share. `bytes_sent` are the gradients that each rank gave to
    all-reduces, epoch by epoch; empty for one rank.
    """

    faults: tuple[Fault, ...]
    natural: tuple[str, ...]
    notes: tuple[str, ...]
    gradient_difference: float | None
    weight_difference: float | None
    updates: int
    expected_updates: int
    made_of: tuple[tuple[float, ...], ...]
    columns: tuple[str, ...]
    expected_made_of: tuple[tuple[float, ...], ...]
    bytes_sent: tuple[tuple[int, ...], ...] = ()

    @property
    def equivalent(self) -> bool:
        """Whether the step is training from the large batch, but for what cannot be equal by nature."""
        return not self.faults

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
        if self.faults:
            return f"Not the same: {'; '.join(fault.title for fault in self.faults)}."
        if self.natural:
            return "No fault. Not the same by nature: " + "; ".join(self.natural) + "."
        if self.weight_difference is not None and self.weight_difference > TOLERANCE:
            return "The same gradients as the large batch, used in another way."
        return "The same as the large batch."

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self) | {"equivalent": self.equivalent, "verdict": self.verdict})

    @classmethod
    def from_json(cls, text: str) -> Proof:
        """Read what `to_json` wrote. Raises CourseError for another text."""
        try:
            data: Mapping[str, Any] = json.loads(text)
            faults = tuple(Fault(**fault) for fault in data["faults"])
            plain = {name: _as_tuple(data[name]) for name in cls.__dataclass_fields__ if name != "faults"}
        except (ValueError, KeyError, TypeError):
            raise CourseError("This is no proof of the course.") from None
        return cls(faults=faults, **plain)

    def _figures(self) -> list[tuple[str, str]]:
        figures = [("updates", f"{self.updates}, the large batch makes {self.expected_updates}")]
        if self.gradient_difference is not None:
            what = "from the mean over the same micro-batches" if self.natural else "from the large batch's"
            figures.append(
                ("gradients differ by", f"{self.gradient_difference:.1e} {what} (largest, relative)")
            )
        if self.weight_difference is not None:
            figures.append(("weights differ by", f"{self.weight_difference:.1e} at the end"))
        return figures

    def __str__(self) -> str:
        lines = [self.verdict, *(f"  {name}: {value}" for name, value in self._figures())]
        for number, fault in enumerate(self.faults, start=1):
            lines += ["", f"{number}. {fault}"]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colour = "#D55E00" if self.faults else "#009E73"
        faults = "".join(
            f"<li><b>{escape(fault.title)}</b><br>Seen: {escape(fault.evidence)}<br>"
            f"Remedy: {escape(fault.remedy)}</li>"
            for fault in self.faults
        )
        figures = "; ".join(f"{escape(name)}: {escape(value)}" for name, value in self._figures())
        notes = "".join(f"<br>Note: {escape(note)}" for note in self.notes)
        return (
            f'<div style="border-left:6px solid {colour};padding:.4em .8em"><b>{escape(self.verdict)}</b>'
            f"<br>{figures}{f'<ol>{faults}</ol>' if faults else ''}{notes}</div>"
        )


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value
