"""How are runs of lessons told: a table on top, what went wrong below it?"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from course_lib.teach.running.run import LessonRun, problems_of
from course_lib.units import format_bytes, format_seconds

_HEAD = ("lesson", "time", "peak memory", "slowest cell", "exercises", "verdicts", "result")
_MEMORY = {
    "PSS": "proportional set size, so that shared pages count once",
    "USS": "unique set size: this system does not tell shared memory apart, so the true peak is higher",
    "RSS": "resident set size: shared pages count once for each process, so the true peak is lower",
}


@dataclass(frozen=True)
class RunReport:
    """All lessons of one run."""

    runs: tuple[LessonRun, ...]

    @property
    def ok(self) -> bool:
        """Whether every lesson ran without any error."""
        return all(run.ok for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {"ok": self.ok, "lessons": [run.to_json() for run in self.runs]}

    def __str__(self) -> str:
        rows = [_HEAD, *(_row(run) for run in self.runs)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        for run in self.runs:
            problems = problems_of(run)
            if problems:
                lines += ["", f"{run.lesson}, see {run.page}"]
                lines += [f"  {line}" for problem in problems for line in problem.splitlines()]
        if any(run.judgements for run in self.runs):
            lines += ["", "Verdicts"]
            lines += [f"  {j.claim_id}: {j.sentence}" for run in self.runs for j in run.judgements]
        return "\n".join([*lines, "", *self._notes()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _HEAD)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _row(run))}</tr>" for run in self.runs
        )
        problems = "".join(
            f"<li>{escape(run.lesson)}: {escape(problem)}</li>"
            for run in self.runs
            for problem in problems_of(run)
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><ul>{problems}</ul>{notes}"

    def _notes(self) -> list[str]:
        folders = dict.fromkeys(str(run.page.parent) for run in self.runs)
        kinds = dict.fromkeys(run.memory_kind for run in self.runs)
        return [
            *(f"Pages and notebooks: {folder}" for folder in folders),
            *(f"Peak memory: kernel and all its children, sampled; {_MEMORY[kind]}." for kind in kinds),
        ]


def _row(run: LessonRun) -> tuple[str, ...]:
    slowest = run.slowest
    return (
        run.lesson + (" (solved)" if run.edition == "solved" else ""),
        format_seconds(run.seconds),
        format_bytes(run.peak_bytes),
        f"[{slowest.number}] {format_seconds(slowest.seconds)}" if slowest else "none ran",
        f"{run.passed} of {len(run.results)}",
        str(len(run.judgements)),
        "ok" if run.ok else "failed",
    )
