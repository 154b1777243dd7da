"""Which share of its peaks does a card reach, by kind of work? The numbers that were fitted, read from a
file.

``data/speed.json`` holds them, by software stack: a driver, a cuDNN and a PyTorch run the same convolution at
very different speeds. ``benchmarks/fit_speed.py`` wrote it from public measurements. A kind that none of them
held falls back on its family, and the prediction says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.op_kinds import Dims, Work


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peaks that a kind reaches: ``compute`` of the arithmetic, ``memory`` of the bandwidth.

    ``tile``: the sides of a matrix product (rows, columns, inner length) at which the time doubles.
    ``issue``: how far the memory clock follows SMs times clock (1) rather than bandwidth (0) from one card
    to another.
    """

    compute: float
    memory: float
    tile: Dims = (0.0, 0.0, 0.0)
    issue: float = 0.0


@dataclass(frozen=True)
class Coefficients:
    """The efficiencies of one software stack, calibrated on the card ``reference``.

    ``start_seconds``: a kernel's own beginning; ``launch_seconds``: what the processor needs to hand one
    out; ``step_seconds``: what a step takes beside its kernels. ``cache_gain``: how much faster bytes move
    that fit the card's cache. ``intervals``: by how near the card and the work are to the calibration, the
    factors below and above between which nine of ten measurements lay. ``bias``: by card, the factor that
    its own measurements ask for.
    """

    name: str
    reference: str
    kinds: Mapping[str, Efficiency]
    families: Mapping[str, Efficiency]
    start_seconds: float
    launch_seconds: float
    step_seconds: float
    cache_gain: float
    intervals: Mapping[str, tuple[float, float]]
    note: str
    bias: Mapping[str, float] = field(default_factory=dict)

    def of(self, work: Work) -> tuple[Efficiency, bool]:
        """The efficiency of a piece of work, and whether its own kind was calibrated."""
        found = self.kinds.get(work.kind)
        return (found, True) if found is not None else (self.families[work.family], False)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    with data_path("speed.json").open(encoding="utf-8") as stream:
        table: dict[str, Any] = json.load(stream)
    return table


def coefficients_from(name: str, row: Mapping[str, Any]) -> Coefficients:
    """The coefficients that one entry of a file like ``data/speed.json`` holds."""

    def efficiencies(rows: Mapping[str, Any]) -> dict[str, Efficiency]:
        return {
            kind: Efficiency(
                float(values["compute"]), float(values["memory"]),
                tuple(map(float, values.get("tile", (0, 0, 0)))), float(values.get("issue", 0.0)),  # type: ignore[arg-type]
            )
            for kind, values in rows.items()
        }  # fmt: skip

    return Coefficients(
        name,
        row["reference"],
        efficiencies(row["kinds"]),
        efficiencies(row["families"]),
        float(row["start_us"]) * 1e-6,
        float(row["launch_us"]) * 1e-6,
        float(row.get("step_us", 0.0)) * 1e-6,
        float(row.get("cache_gain", 1.0)),
        {name: (float(low), float(high)) for name, (low, high) in row["intervals"].items()},
        row["note"],
        {card: float(factor) for card, factor in row.get("bias", {}).items()},
    )


@lru_cache(maxsize=8)
def find_coefficients(stack: str = "current") -> Coefficients:
    """The coefficients of a software stack. Raises CourseError for an unknown one, naming the known."""
    stacks = _table()["stacks"]
    if stack not in stacks:
        raise CourseError(f"There is no speed calibration {stack!r}; known are {', '.join(stacks)}.")
    return coefficients_from(stack, stacks[stack])
