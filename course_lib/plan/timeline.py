"""What is alive on the card at each moment of a step, and at the worst one? Live bytes by category over
the operations.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plan.optimizers import OptimizerRule
from course_lib.plan.step_trace import ALLOCATE, BECOMES_GRADIENT, Block, StepTrace

CATEGORIES = ("parameter", "buffer", "gradient", "optimizer", "input", "activation", "temporary")


@dataclass(frozen=True)
class Point:
    """One moment: the share of the step's events that have happened, its phase, and the live bytes in all."""

    position: float
    phase: str
    live_bytes: int


@dataclass(frozen=True)
class Tensor:
    """One block that is alive at the peak."""

    nbytes: int
    category: str
    dtype: str
    shape: tuple[int, ...]
    module: str
    line: str


@dataclass(frozen=True)
class Timeline:
    """``points``: the live bytes over one step of training under way (optimizer states exist). ``phase``:
    that of the peak. ``alive``: bytes at the peak by category. ``largest``: the largest blocks alive at
    the peak, largest first.
    """

    points: tuple[Point, ...]
    peak_bytes: int
    phase: str
    alive: tuple[tuple[str, int], ...]
    largest: tuple[Tensor, ...]


def timeline(
    trace: StepTrace, optimizer: OptimizerRule, *, accumulate: int = 1, points: int = 200, largest: int = 10
) -> Timeline:
    """Follow one optimizer step of ``trace``: the last micro-batch, then the optimizer.

    With ``accumulate`` above 1 the gradients of the earlier micro-batches are alive from the beginning,
    and each new one is added to them and released.
    """
    gradients = {index for _, kind, index in trace.events if kind == BECOMES_GRADIENT}
    gradient_bytes = sum(trace.blocks[index].nbytes for index in gradients)
    kept = gradient_bytes if accumulate > 1 else 0
    state_bytes = sum(
        size
        for index in gradients
        for size in optimizer.state_bytes(trace.blocks[index].shape, trace.blocks[index].nbytes)
    )
    live = state_bytes + kept
    series: list[tuple[str, int]] = []
    peak, peak_at = 0, -1
    for number, (op, kind, index) in enumerate(trace.events):
        nbytes = trace.blocks[index].nbytes
        if kind == ALLOCATE:
            live += nbytes
        elif kind != BECOMES_GRADIENT or accumulate > 1:
            live -= nbytes
        if op >= 0:
            series.append((trace.ops[op].phase, live))
            if live > peak:
                peak, peak_at = live, number
    step_temporaries = optimizer.temporary_bytes([trace.blocks[index].nbytes for index in gradients])
    step_live = live + step_temporaries
    series.append(("optimizer", step_live))
    in_step = step_live > peak
    alive = _alive(trace, len(trace.events) - 1 if in_step else peak_at, accumulate)
    by_category = dict.fromkeys(CATEGORIES, 0)
    for block in alive:
        by_category[block.category] += block.nbytes
    by_category["optimizer"] += state_bytes
    by_category["gradient"] += kept
    if in_step:
        by_category["temporary"] += step_temporaries
    top = sorted(alive, key=lambda block: -block.nbytes)[:largest]
    stride = max(1, len(series) // points)
    # A point stands for the most that was alive around it, so that no peak is lost between two points.
    chosen = [
        (start, max(series[start : start + stride], key=lambda item: item[1]))
        for start in range(0, len(series), stride)
    ]
    return Timeline(
        tuple(Point(start / max(1, len(series) - 1), phase, nbytes) for start, (phase, nbytes) in chosen),
        max(peak, step_live),
        "optimizer" if in_step else series_phase(trace, peak_at),
        tuple((name, nbytes) for name, nbytes in by_category.items() if nbytes),
        tuple(Tensor(b.nbytes, b.category, b.dtype, b.shape, b.module, b.line) for b in top),
    )


def series_phase(trace: StepTrace, event: int) -> str:
    """The phase of one event of a trace."""
    op = trace.events[event][0] if event >= 0 else -1
    return trace.ops[op].phase if op >= 0 else "load"


def _alive(trace: StepTrace, last: int, accumulate: int) -> list[Block]:
    alive: dict[int, Block] = {}
    for _, kind, index in trace.events[: last + 1]:
        if kind == ALLOCATE:
            alive[index] = trace.blocks[index]
        elif kind != BECOMES_GRADIENT or accumulate > 1:
            alive.pop(index, None)
    return list(alive.values())
