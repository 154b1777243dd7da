"""What does the software itself take on the card? Context, workspaces and margins of a software stack.

A *stack* is a driver, a CUDA and a cuDNN release, a version of PyTorch and the settings of a training
script. The figures of each stand in ``data/memory_stacks.json``, with where they come from: *sourced*
(read off public messages) or *calibrated* (fitted to public measurements by ``benchmarks/fit_memory.py``,
on half of the model families).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import data_path


@dataclass(frozen=True)
class Stack:
    """One software stack.

    ``context_mib``: MiB that the process holds beside the allocator (driver context, kernels loaded).
    ``input_batches``: copies of the input batch that the loader keeps on the card beside the one in use.
    ``reserved_factor``: correction of the reserved bytes. ``cudnn_benchmark``: whether the script sets
    it. ``multiples``: convolution workspaces by precision (``full``, ``half``), see ``workspaces.py``.
    ``margins``: what share of the reserved bytes the safe figure adds, by precision.
    """

    name: str
    context_mib: float
    context_origin: str
    input_batches: float
    reserved_factor: float
    cudnn_benchmark: bool
    multiples: Mapping[str, Mapping[str, float]]
    margins: Mapping[str, float]
    note: str


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    with data_path("memory_stacks.json").open(encoding="utf-8") as stream:
        table: dict[str, Any] = json.load(stream)
    return table


def stack_from(name: str, table: Mapping[str, Any]) -> Stack:
    """The stack ``name`` of a table laid out like ``data/memory_stacks.json``."""
    row = table["stacks"][name]
    return Stack(
        name,
        float(row["context_mib"]),
        row["context_origin"],
        float(row["input_batches"]),
        float(row["reserved_factor"]),
        bool(row["cudnn_benchmark"]),
        table["workspaces"],
        table["margins"],
        row["note"],
    )


def measured_error() -> str:
    """How far off predicted totals were, as a sentence: the figures of ``docs/accuracy.md``."""
    found = _table()["measured_error"]
    return (
        f"Predicted totals were {100 * found['median']:.1f} % off in the median, and at most "
        f"{100 * found['p90']:.1f} % in nine of ten ({found['rows']} {found['of']}; {found['date']}, "
        "docs/accuracy.md)."
    )


def find_stack(name: str = "current") -> Stack:
    """The stack called ``name``. Raises CourseError for an unknown one, naming the known."""
    table = _table()
    if name not in table["stacks"]:
        raise CourseError(f"There is no software stack {name!r}; known are {', '.join(table['stacks'])}.")
    return stack_from(name, table)
