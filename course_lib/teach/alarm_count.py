"""How often was a rule wrong? Its false alarms and misses over jobs whose state is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from course_lib.diagnose.health import Thresholds
from course_lib.errors import CourseError

HEALTHY = "healthy"


@dataclass(frozen=True)
class AlarmCount:
    """What a rule said of simulated jobs whose state is known.

    By kind of job ("healthy", or its fault): ``of`` how many there are, ``alarmed`` how many the thresholds
    call sick, ``compared`` how many ``examine`` gives the right fault (of healthy ones: any fault).
    ``by_rule`` splits ``alarmed`` by threshold; a job can break several.
    """

    thresholds: Thresholds
    of: Mapping[str, int]
    alarmed: Mapping[str, int]
    by_rule: Mapping[str, Mapping[str, int]]
    compared: Mapping[str, int]

    @property
    def false_alarms(self) -> int:
        """Healthy jobs that the thresholds call sick."""
        return self.alarmed[HEALTHY]

    @property
    def misses(self) -> int:
        """Sick jobs that pass all thresholds."""
        return sum(self.of[kind] - self.alarmed[kind] for kind in self.of if kind != HEALTHY)

    @property
    def sick(self) -> int:
        """How many jobs are sick."""
        return sum(count for kind, count in self.of.items() if kind != HEALTHY)

    def passing(self, rule: str) -> tuple[int, int]:
        """Of the jobs that pass this one threshold: how many there are, and how many of them are sick.

        Raises CourseError for another name than "utilisation", "memory" or "communication".
        """
        if rule not in self.by_rule:
            raise CourseError(f"The thresholds are for {', '.join(self.by_rule)}, not {rule!r}.")
        passed = {kind: self.of[kind] - self.by_rule[rule][kind] for kind in self.of}
        return sum(passed.values()), sum(count for kind, count in passed.items() if kind != HEALTHY)

    def __str__(self) -> str:
        limits = self.thresholds
        head = ["called sick by", "jobs", *self.by_rule, "any", "comparing"]
        rows = [
            [kind.replace("_", " "), str(self.of[kind])]
            + [str(rule[kind]) for rule in self.by_rule.values()]
            + [str(self.alarmed[kind]), str(self.compared[kind])]
            for kind in self.of
        ]
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        lines = [
            f"{row[0]:{widths[0]}}  "
            + "  ".join(f"{cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))
            for row in [head, *rows]
        ]
        told = (
            f"Limits: utilisation under {limits.util_percent:.0f} %, memory differs by more than "
            f"{limits.imbalance * 100:.0f} %,\ncommunication over {limits.communication * 100:.0f} %. "
            "Simulated jobs."
        )
        ends = (
            f"{self.false_alarms} false alarms in {self.of[HEALTHY]} healthy jobs, "
            f"{self.misses} misses in {self.sick} sick ones"
        )
        return "\n".join([told, *lines, ends])

    def _repr_html_(self) -> str:
        return f'<pre style="white-space:pre;overflow-x:auto">{escape(str(self))}</pre>'
