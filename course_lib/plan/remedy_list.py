"""How do remedies against a full card compare? Each with its memory, its extra work and what it changes.

They are ranked by a price: the extra work as a share of the step, and a toll for what changes in the
mathematics. The tolls are a judgement, not a measurement: the least intrusive comes first.
"""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from course_lib.plan.memory import MemoryPlan
from course_lib.units import format_bytes

Effect = Literal["none", "rounding", "statistics", "training", "model", "cards"]
Origin = Literal["predicted", "reckoned"]


@dataclass(frozen=True)
class Remedy:
    """One change of a training step, or several together.

    ``allocated``, ``total`` and ``safe`` are the bytes that the step then needs (see MemoryPlan),
    ``capacity`` the card's. Near the card's limit the total says little: the allocator keeps what it can.
    ``extra_work``: FLOPs for the same samples, as a share of those of the step as it was; 0.33 is a third
    more. ``effect``: what kind of thing changes, from "none" (the same numbers, up to the order of sums)
    over rounding, batch statistics, training (a learning rate to find anew) and another model to more
    cards; ``changes`` says it. ``how`` is the line to write. ``origin``: "predicted" by trace and replay, or
    "reckoned" by arithmetic on the trace, for what other libraries do.
    """

    parts: tuple[str, ...]
    allocated: int
    total: int
    safe: int
    capacity: int
    extra_work: float
    effect: Effect
    changes: str
    how: str
    origin: Origin

    EFFECTS: ClassVar[tuple[Effect, ...]] = ("none", "rounding", "statistics", "training", "model", "cards")
    TOLLS: ClassVar[tuple[float, ...]] = (0.0, 0.05, 0.1, 0.5, 1.0, 2.0)

    @property
    def name(self) -> str:
        """All its parts in one phrase."""
        return " + ".join(self.parts)

    @property
    def fits(self) -> bool:
        """Whether also the safe figure is within the card."""
        return self.safe <= self.capacity

    @property
    def tight(self) -> bool:
        """Whether the typical figure is within the card and the safe one is not."""
        return self.total <= self.capacity < self.safe

    @property
    def price(self) -> float:
        """The extra work, where there is any, and a toll for what changes. A judgement, for ranking only."""
        return max(0.0, self.extra_work) + self.TOLLS[self.EFFECTS.index(self.effect)]

    def order(self) -> tuple[float, ...]:
        """The sort key: what fits by price, then what is tight, then the rest by its memory."""
        if self.total > self.capacity:
            return (2, self.safe)
        return (int(self.tight), round(self.price, 2), len(self.parts), self.safe)

    @property
    def verdict(self) -> str:
        """Whether it is enough, in a word or two."""
        return "fits" if self.fits else "tight" if self.tight else "not enough"


@dataclass(frozen=True)
class Remedies:
    """A step on a card as it is (``now``), and what would help, the best first.

    ``left_out`` says which kinds of remedy the model cannot have, and why.
    """

    now: MemoryPlan
    ranked: tuple[Remedy, ...]
    left_out: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        """Whether the step does not fit as it is."""
        return not self.now.fits

    @property
    def first(self) -> Remedy | None:
        """The first remedy that fits; None where none does, or none is needed."""
        best = self.ranked[0] if self.ranked else None
        return best if self.needed and best is not None and best.fits else None

    def named(self, name: str) -> Remedy | None:
        """The remedy of that name (its parts joined by " + "); None where there is none."""
        return next((remedy for remedy in self.ranked if remedy.name == name), None)

    @property
    def answer(self) -> str:
        """The answer in a sentence."""
        if not self.needed:
            return "The step fits as it is: no remedy is needed."
        if self.first is not None:
            return f"First: {self.first.name}. It fits; {self.first.changes}."
        if any(remedy.tight for remedy in self.ranked):
            return f"Nothing is sure to fit. Try {self.ranked[0].name}: its typical figure fits."
        return "Nothing here is enough alone. Combine them, take a smaller model or input, or a larger card."

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; sizes in bytes."""
        return {
            "now": self.now.to_json(),
            "needed": self.needed,
            "first": None if self.first is None else self.first.name,
            "remedies": [
                asdict(r) | {"name": r.name, "fits": r.fits, "tight": r.tight, "price": round(r.price, 4)}
                for r in self.ranked
            ],
            "left_out": list(self.left_out),
        }

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (r.name, format_bytes(r.total), format_bytes(r.safe), r.verdict, _work(r.extra_work),
             r.changes + (" (reckoned)" if r.origin == "reckoned" else ""))
            for r in self.ranked
        ]  # fmt: skip

    def __str__(self) -> str:
        head = ("remedy", "total", "safe", "", "work", "what it changes")
        rows = [head, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
        lines = [self.answer, "", str(self.now).splitlines()[0], ""]
        for row in rows:
            name, total, safe, verdict, work, changes = row
            lines.append(
                f"{name:<{widths[0]}}  {total:>{widths[1]}}  {safe:>{widths[2]}}  {verdict:<{widths[3]}}  "
                f"{work:>{widths[4]}}  {changes}"
            )
        if self.first is not None:
            lines += ["", f"How: {self.first.how}"]
        lines += [f"Left out: {reason}" for reason in self.left_out]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{name}</th>" for name in ("remedy", "total", "safe", "", "work", "what it changes")
        )
        left = "text-align:left"
        whole = "white-space:nowrap"
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="{left if column in (0, 5) else ""};{whole if column < 5 else ""}">'
                f"{html.escape(cell)}</td>"
                for column, cell in enumerate(row)
            )
            + "</tr>"
            for row in self._rows()
        )
        how = f"<p>How: <code>{html.escape(self.first.how)}</code></p>" if self.first is not None else ""
        rest = "".join(f"<p>Left out: {html.escape(reason)}</p>" for reason in self.left_out)
        return (
            f"<b>{html.escape(self.answer)}</b><p>{html.escape(str(self.now).splitlines()[0])}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{how}{rest}"
        )


def _work(extra: float) -> str:
    return "same" if abs(extra) < 0.005 else f"{extra:+.0%}"
