"""What was read in a learner's paste, what was found in it, and what should be done first?

A Reading is one recognised piece of text with its figures; a Finding is one diagnosis with its evidence,
its remedies in order, and what would not help. Both are plain data: they print in a terminal and in a
notebook, and turn into JSON.
"""

import html
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["problem", "warning", "note"]
Certainty = Literal["certain", "likely", "possible"]

WIDTH = 100  # characters in a line of text, where the terminal does not say otherwise
_HOW_SURE = {"certain": "", "likely": " (likely)", "possible": " (possible)"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One figure that a finding rests on, as a reader can find it in the text."""

    what: str
    value: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnosis.

    ``id`` is a short stable label ("oom.capacity"). ``remedies`` come in the order in which to try them;
    ``not_helpful`` names advice that is often given and does not help here. ``certainty`` says how far the
    text settles it: "likely" and "possible" findings say in ``why`` what would settle them.
    """

    id: str
    summary: str
    why: str
    remedies: tuple[str, ...] = ()
    not_helpful: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    severity: Severity = "problem"
    certainty: Certainty = "certain"

    @property
    def first_remedy(self) -> str | None:
        """What to do first; None where there is nothing to do."""
        return self.remedies[0] if self.remedies else None

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data, ready for ``json.dumps``."""
        return {
            "id": self.id,
            "severity": self.severity,
            "certainty": self.certainty,
            "summary": self.summary,
            "why": self.why,
            "first_remedy": self.first_remedy,
            "remedies": list(self.remedies),
            "not_helpful": list(self.not_helpful),
            "evidence": [{"what": e.what, "value": e.value} for e in self.evidence],
        }

    def __str__(self) -> str:
        return self.in_lines()

    def in_lines(self, width: int = WIDTH) -> str:
        """The finding as text, wrapped at ``width`` characters where its words allow it."""
        title = f"{self.summary}{_HOW_SURE[self.certainty]}  [{self.id}]"
        lines = [_wrap(title, width, ""), _wrap(self.why, width, "  ")]
        if self.remedies:
            lines.append("  First:")
            lines.append(_wrap(self.remedies[0], width, "    "))
        if len(self.remedies) > 1:
            lines.append("  Then:")
            lines.extend(_wrap(remedy, width, "    - ", "      ") for remedy in self.remedies[1:])
        if self.not_helpful:
            lines.append("  Would not help:")
            lines.extend(_wrap(advice, width, "    - ", "      ") for advice in self.not_helpful)
        if self.evidence:
            lines.append("  Figures: " + "; ".join(f"{e.what}: {e.value}" for e in self.evidence))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [
            f"<b>{html.escape(self.summary)}</b>{_HOW_SURE[self.certainty]} "
            f"<code>{html.escape(self.id)}</code><br>{html.escape(self.why)}"
        ]
        for title, items in (
            ("First", self.remedies[:1]),
            ("Then", self.remedies[1:]),
            ("Would not help", self.not_helpful),
        ):
            if items:
                rows = "".join(f"<li>{html.escape(item)}</li>" for item in items)
                parts.append(f"<div><i>{title}:</i><ul style='margin:0'>{rows}</ul></div>")
        if self.evidence:
            figures = "; ".join(f"{html.escape(e.what)}: {html.escape(e.value)}" for e in self.evidence)
            parts.append(f"<div><small>Figures: {figures}</small></div>")
        return f"<div style='margin:0.5em 0'>{''.join(parts)}</div>"


@dataclass(frozen=True, slots=True)
class Reading:
    """One recognised piece of a paste.

    ``kind`` names the format ("out-of-memory message"). ``figures`` holds what stands in the text, as plain
    JSON data; None means "not in the text". ``derived`` holds what follows from the figures by arithmetic.
    ``source`` is the object that was read (its type depends on the kind). Lines count from 1.
    """

    kind: str
    figures: Mapping[str, Any]
    first_line: int
    last_line: int
    findings: tuple[Finding, ...] = ()
    derived: Mapping[str, Any] = field(default_factory=dict)
    source: object = None

    @property
    def where(self) -> str:
        """The lines it stands on, for a person."""
        if self.first_line == self.last_line:
            return f"line {self.first_line}"
        return f"lines {self.first_line} to {self.last_line}"

    def to_json(self) -> dict[str, Any]:
        """The reading as plain data, ready for ``json.dumps``."""
        return {
            "kind": self.kind,
            "first_line": self.first_line,
            "last_line": self.last_line,
            "figures": dict(self.figures),
            "derived": dict(self.derived),
            "findings": [finding.to_json() for finding in self.findings],
        }


def _wrap(text: str, width: int, first: str, rest: str | None = None) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
    )
