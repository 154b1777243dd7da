"""Which batch size should be tried next, when a trial is costly and running out of memory is worse?

The memory of a training step is very nearly a straight line in the batch size: parameters, gradients and
optimizer states, and so many bytes a sample. Two trials give the line, the line gives the largest batch,
and one more trial confirms it. Where the confirmed reading shows that the line was a little too steep, one
further trial is worth it. Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_TRIALS = 16
MIN_GAIN = 0.025  # a further trial must promise this share more samples
FIRST_STEP = 0.6  # the second trial may fill this share of what is left, by the most cautious reading
MARGIN = 0.01  # of the memory that training may use, kept free by the line's prediction
FAR = 2.0  # beyond so many times the largest trial that ran, a line is less sure
FAR_MARGIN = 0.02
GROWTH = 32  # the second trial is at most so many times the first
NEAR_A_FAILURE = 0.04
TRUST = 8  # a line is followed at most so many times the distance between its two trials


@dataclass(frozen=True)
class Trial:
    """One batch size that was tried. Sizes in bytes, time in seconds.

    ``peak_bytes`` is the reading where there was one, ``predicted_bytes`` what the line of the earlier
    trials said. ``failure`` tells why it did not fit; None where it did.
    """

    batch_size: int
    peak_bytes: int | None
    predicted_bytes: int | None
    seconds: float
    failure: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the steps ran, within the limit."""
        return self.failure is None


@dataclass(frozen=True)
class Line:
    """Memory of a step as ``fixed + per_sample * batch_size``, in bytes."""

    fixed: float
    per_sample: float

    def at(self, batch_size: int) -> float:
        """Bytes at this batch size."""
        return self.fixed + self.per_sample * batch_size


@dataclass(frozen=True)
class Bounds:
    """What is known before the first trial: the bytes that a reading may reach, the bytes in use before,
    and the sizes allowed.
    """

    limit: int | None
    in_use: int
    start: int
    largest: int | None = None
    multiple_of: int = 1

    def rounded(self, batch_size: float) -> int:
        """The largest size allowed that is at most ``batch_size``; the smallest one allowed if there is
        none.
        """
        capped = batch_size if self.largest is None else min(batch_size, self.largest)
        return max(self.multiple_of, int(capped) // self.multiple_of * self.multiple_of)


def line_through(trials: Sequence[Trial]) -> Line | None:
    """The line through the two largest batches that ran and were read; None where they give no rising one."""
    read = {
        trial.batch_size: trial.peak_bytes for trial in trials if trial.fits and trial.peak_bytes is not None
    }
    if len(read) < 2:
        return None
    (low, low_bytes), (high, high_bytes) = sorted(read.items())[-2:]
    per_sample = (high_bytes - low_bytes) / (high - low)
    return Line(high_bytes - per_sample * high, per_sample) if per_sample > 0 else None


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The largest batch that ran."""
    return max((trial for trial in trials if trial.fits), key=lambda trial: trial.batch_size, default=None)


def next_batch_size(trials: Sequence[Trial], bounds: Bounds) -> int | None:
    """The batch size to try next; None when the search is over."""
    best = best_of(trials)
    too_large = min((trial.batch_size for trial in trials if not trial.fits), default=None)
    if len(trials) >= MOST_TRIALS and best is not None:
        return None
    if best is None:
        if too_large is None:
            return bounds.rounded(bounds.start)
        return None if too_large <= bounds.multiple_of else bounds.rounded(too_large / 2)
    ceiling = math.inf if too_large is None else too_large - 1
    wanted = bounds.rounded(min(ceiling, _towards_the_limit(trials, best, too_large, bounds)))
    enough = best.batch_size if len(trials) == 1 else best.batch_size * (1 + MIN_GAIN)
    return wanted if wanted > best.batch_size and wanted >= enough else None


def _towards_the_limit(trials: Sequence[Trial], best: Trial, too_large: int | None, bounds: Bounds) -> float:
    """The batch size that the trials point to, before it is rounded and capped."""
    line = line_through(trials)
    if too_large is not None and not trials[-1].fits:
        # The readings did not see this coming: go back a little if they were near, half-way if they were far.
        near = line is not None and too_large <= FAR * best.batch_size
        return max(
            0.94 * too_large if near and _failures_in_a_row(trials) == 1 else 0.0,
            (best.batch_size + too_large) / 2,
        )
    if bounds.limit is None or best.peak_bytes is None:
        return 2 * best.batch_size if too_large is None else (best.batch_size + too_large) / 2
    others = [trial.batch_size for trial in trials if trial.fits and trial.batch_size < best.batch_size]
    if not others:
        # All that the first trial took, counted as if each sample had taken its part: seldom too little.
        most_per_sample = max(1.0, (best.peak_bytes - bounds.in_use) / best.batch_size)
        step = FIRST_STEP * (bounds.limit - best.peak_bytes) / most_per_sample
        return best.batch_size + min(max(bounds.multiple_of, step), (GROWTH - 1) * best.batch_size)
    if line is None:
        return 2 * best.batch_size if too_large is None else (best.batch_size + too_large) / 2
    trusted = best.batch_size + TRUST * (best.batch_size - max(others))
    room = bounds.limit - bounds.in_use
    reach = (bounds.limit - MARGIN * room - line.fixed) / line.per_sample
    if reach > FAR * best.batch_size:
        reach = (bounds.limit - FAR_MARGIN * room - line.fixed) / line.per_sample
    # Where a trial failed that the line had called safe, the line is not believed again close to it.
    return min(reach, trusted, math.inf if too_large is None else (1 - NEAR_A_FAILURE) * too_large)


def _failures_in_a_row(trials: Sequence[Trial]) -> int:
    count = 0
    for trial in reversed(trials):
        if trial.fits:
            break
        count += 1
    return count
