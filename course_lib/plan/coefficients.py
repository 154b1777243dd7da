"""Which share of its peaks does a card reach, by kind of work? The fitted numbers, read from a file.

``data/speed.json`` holds them, by software stack: a driver, a cuDNN and a PyTorch run the same convolution
at very different speeds. ``benchmarks/fit_speed.py`` wrote it from public measurements. A kind that none of
them held is estimated from the words of its name (``kind_words.py``), and the prediction says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.kind_words import words
from course_lib.plan.work import Dims, Work


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peaks that a kind reaches: ``compute`` of the arithmetic, ``memory`` of the bandwidth.

    ``tile``: the sides of a matrix product (rows, columns, inner length) at which the time doubles.
    ``group_tile``: the groups, and columns in each, at which the bytes of a convolution that runs group by
    group take twice as long (its third side is not used).
    ``issue``: how far the memory clock follows SMs times clock (1) rather than bandwidth (0) from one card
    to another. Shares may lie above 1: short sides of a product are told apart in ``tile``, and a cache
    serves bytes that were just written. ``measured``: whether a measurement of this stack held the kind.
    """

    compute: float
    memory: float
    tile: Dims = (0.0, 0.0, 0.0)
    issue: float = 0.0
    measured: bool = True
    group_tile: Dims = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Coefficients:
    """The efficiencies of one software stack, calibrated on the card ``reference``.

    ``words``: for what no kind of their own tells, the logarithms of the factors on both shares that a word
    of a kind's name brings. ``start_seconds``: a kernel's own beginning; ``launch_seconds``: what the
    processor needs to hand one out. ``cache_gain``: how much faster bytes move that fit the card's cache.
    ``intervals``: by how near the card and the work are to the calibration, the factors below and above
    between which nine of ten measurements lay. ``bias``: by card, the factor that its own measurements ask
    for. ``optimizer_kernels``: kernels of the optimizer for each parameter tensor; 0 where it takes all in
    few kernels.
    """

    name: str
    reference: str
    kinds: Mapping[str, Efficiency]
    families: Mapping[str, Efficiency]
    start_seconds: float
    launch_seconds: float
    intervals: Mapping[str, tuple[float, float]]
    note: str
    words: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    cache_gain: float = 1.0
    bias: Mapping[str, float] = field(default_factory=dict)
    optimizer_kernels: float = 0.0
    _estimated: dict[tuple[str, str], Efficiency] = field(default_factory=dict, repr=False, compare=False)

    def of(self, work: Work) -> tuple[Efficiency, bool]:
        """The efficiency of a piece of work, and whether its own kind was measured in this stack."""
        found = self.kinds.get(work.kind)
        if found is None:
            key = (work.kind, work.family)
            found = self._estimated.get(key)
            if found is None:
                found = self._estimated[key] = self._estimate(*key)
        return found, found.measured

    def _estimate(self, kind: str, family: str) -> Efficiency:
        known = self.families[family]
        compute, memory = math.log(known.compute), math.log(known.memory)
        for word in words(kind, family)[1:]:
            more = self.words.get(word, (0.0, 0.0))
            compute, memory = compute + more[0], memory + more[1]
        return replace(known, compute=math.exp(compute), memory=math.exp(memory), measured=False)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    with data_path("speed.json").open(encoding="utf-8") as stream:
        table: dict[str, Any] = json.load(stream)
    return table


def _efficiency(row: Mapping[str, Any]) -> Efficiency:
    rows, columns, inner = map(float, row.get("tile", (0, 0, 0)))
    groups, width = map(float, row.get("group_tile", (0, 0)))
    return Efficiency(
        float(row["compute"]),
        float(row["memory"]),
        (rows, columns, inner),
        float(row.get("issue", 0.0)),
        not row.get("other_stack", False),
        (groups, width, 0.0),
    )


def coefficients_from(name: str, row: Mapping[str, Any]) -> Coefficients:
    """The coefficients that one entry of a file like ``data/speed.json`` holds."""
    return Coefficients(
        name,
        row["reference"],
        {kind: _efficiency(values) for kind, values in row["kinds"].items()},
        {family: _efficiency(values) for family, values in row["families"].items()},
        float(row["start_us"]) * 1e-6,
        float(row["launch_us"]) * 1e-6,
        {name: (float(low), float(high)) for name, (low, high) in row["intervals"].items()},
        row["note"],
        {word: (float(one), float(two)) for word, (one, two) in row.get("words", {}).items()},
        float(row.get("cache_gain", 1.0)),
        {card: float(factor) for card, factor in row.get("bias", {}).items()},
        float(row.get("optimizer_kernels", 0.0)),
    )


@lru_cache(maxsize=8)
def find_coefficients(stack: str = "current") -> Coefficients:
    """The coefficients of a software stack. Raises CourseError for an unknown one, naming the known."""
    stacks = _table()["stacks"]
    if stack not in stacks:
        raise CourseError(f"There is no speed calibration {stack!r}; known are {', '.join(stacks)}.")
    return coefficients_from(stack, stacks[stack])
