"""What do the weights of the micro-batches in each update say? Old gradients, lost ones, wrong divisors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.train.equivalence.attribution import OLD, UNEXPLAINED, Attribution
from course_lib.train.equivalence.catalogue import fault
from course_lib.train.equivalence.proof import Fault
from course_lib.train.equivalence.reference import Task
from course_lib.train.equivalence.windows_seen import Column, Seen

CLOSE = 1e-4
"""Weights nearer than this are the same: far above the error of least squares, far below any fault."""


@dataclass(frozen=True)
class WindowWeights:
    """The weights in one update: of each micro-batch of its window, on any rank.

    `weights` are shares of the mean over the window (they add up to 1 when all is right), `shares` what they
    should be, `even` what a mean of means over this rank's and the others' micro-batches makes of them.
    """

    columns: tuple[Column, ...]
    weights: Tensor
    shares: Tensor
    even: Tensor
    even_by_rank: Tensor
    units: float
    full: bool
    most: int  # micro-batches of one rank

    @property
    def total(self) -> float:
        """What all weights add up to: 1 when all is right."""
        return float(self.weights.sum())


def weight_faults(
    attributions: list[Attribution], seen: Seen, task: Task, rank: int, *, scale: float
) -> list[Fault]:
    """Faults in the weights of one rank's updates, whose windows are those of the reference."""
    pairs = [
        (attribution, own)
        for attribution, own in zip(attributions, seen.own, strict=True)
        if own and attribution.unexplained < UNEXPLAINED
    ]
    found = _old_gradients(pairs)
    windows = []
    for attribution, own in pairs:
        ratios = {c: abs(float(attribution.ratios[c])) for c in own if float(task.units[c[1]].sum())}
        most = max(ratios.values())
        gone = [column for column, ratio in ratios.items() if ratio <= 0.01 * most or most < OLD]
        if gone:
            kept = f"only {len(own) - len(gone)}" if len(gone) < len(own) else "none"
            evidence = (
                f"update {attribution.version + 1} holds {kept} of the {len(own)} micro-batches before it"
            )
            found.append(fault("zero_grad_misplaced", evidence))
            return found
        if _is_whole(own, task, rank):
            windows.append(_weights(attribution, own, task))
    double = [told for window in windows if (told := _twice(window))]
    windows = [window for window in windows if not _twice(window)]
    return found + double[:1] + _distribution(windows, task) + _factor(windows, task, scale)


def _is_whole(own: dict[Column, float], task: Task, rank: int) -> bool:
    """Whether the update saw each micro-batch of its window once: else its weights cannot add up."""
    numbers = {number for _, number in own}
    due = next(w for w in task.windows() if numbers & set(w))
    mine = {number for number in due if number in task.of_rank(rank) and task.total([number])}
    return numbers == mine and all(abs(part - 1) < 0.01 for part in own.values())


def _old_gradients(pairs: list[tuple[Attribution, dict[Column, float]]]) -> list[Fault]:
    used: set[Column] = set()
    for attribution, own in pairs:
        old = [c for c in used - own.keys() if abs(float(attribution.ratios[c])) > OLD]
        if old:
            them = "a micro-batch" if len(old) == 1 else f"{len(old)} micro-batches"
            evidence = f"update {attribution.version + 1} still holds the gradients of {them} "
            return [fault("zero_grad_missing", evidence + "that an earlier update has used")]
        used |= own.keys()
    return []


def _weights(attribution: Attribution, own: dict[Column, float], task: Task) -> WindowWeights:
    (epoch, number), *_ = own
    window = next(window for window in task.windows() if number in window)
    total = task.total(window)
    shares = torch.tensor([task.total([n]) / total for n in window], dtype=torch.float64)
    of_rank = [[n for n in window if n in task.of_rank(rank)] for rank in range(task.reference.world_size)]
    mine = {n: len(numbers) for numbers in of_rank for n in numbers}
    size = torch.tensor([mine[n] for n in window], dtype=torch.float64)
    counts = torch.tensor([1.0 if task.total([n]) else 0.0 for n in window], dtype=torch.float64)
    k = task.reference.accumulation_steps
    return WindowWeights(
        tuple((epoch, n) for n in window),
        attribution.ratios[epoch, window] * shares,
        shares,
        counts / counts.sum(),
        counts / size / task.reference.world_size,
        total,
        all(len(numbers) == k for numbers in of_rank),
        max(map(len, of_rank)),
    )


def _twice(window: WindowWeights) -> Fault | None:
    """A single micro-batch that counts twice as much as its neighbours: two backward passes through it."""
    ratios = window.weights / window.shares.clamp_min(1e-300)
    usual = float(ratios.median())
    double = [c for c, r in zip(window.columns, ratios, strict=True) if _close(float(r), 2 * usual)]
    if len(window.columns) > 2 and len(double) == 1 and _close(float(ratios.min()), usual):
        evidence = f"micro-batch {double[0][1] + 1} counts twice as much as the others"
        return fault("batch_used_twice", evidence)
    return None


def _distribution(windows: list[WindowWeights], task: Task) -> list[Fault]:
    """Whether micro-batches count by their size."""
    for window in windows:
        parts = window.weights / window.total
        if _near(parts, window.shares):
            continue
        ratios = parts / window.shares.clamp_min(1e-300)
        largest, smallest = float(ratios.max()), float(ratios.min())
        if _near(parts, window.even) or _near(parts, window.even_by_rank / window.even_by_rank.sum()):
            what, times = task.reference.weight_by[:-1], largest / smallest
            evidence = f"a {what} counts {times:.3g} times as much in one batch as in another"
            return [fault("mean_of_means", evidence)]
    return []


def _factor(windows: list[WindowWeights], task: Task, scale: float) -> list[Fault]:
    """Whether the weights of a window add up to 1; full windows first, then short ones beside them."""
    k, ranks = task.reference.accumulation_steps, task.reference.world_size
    full = [w for w in windows if w.full] or windows
    short = [w for w in windows if not w.full]
    if not full:
        return []
    factor = full[0].total
    undivided = all(_close(w.total, w.most) or _close(w.total, w.units) for w in windows)
    found: list[Fault] = []
    told = f"the gradient of an update is {factor:.4g} times the mean over its window"
    if _close(factor, 1):
        pass
    elif scale > 1 and _close(factor / scale, 1):
        return [fault("gradients_still_scaled", told + ", the loss scale")]
    elif scale > 1 and _close(factor * scale, 1):
        return [fault("loss_not_scaled", f"the gradient of an update is the mean divided by {scale:g}")]
    elif undivided:
        return [fault("loss_not_divided", told)]
    elif _close(factor, 1 / k) or (ranks == 1 and _close(factor, 1 / full[0].most)):
        found.append(fault("loss_divided_twice", told))
    elif ranks > 1 and _close(factor, 1 / ranks):
        found.append(fault("divided_by_world_size", told))
    else:
        found.append(fault("scaled_otherwise", told))
    for window in short if any(w.full for w in windows) else []:
        if _close(window.total / factor, window.most / k):
            evidence = f"its {window.most} micro-batches count {window.total / factor:.3g} in place of 1"
            return [*found, fault("last_window_underweighted", evidence)]
    return found


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12)


def _near(some: Tensor, others: Tensor) -> bool:
    return bool(torch.allclose(some, others, rtol=CLOSE, atol=1e-8))
