"""How long does each step take, and its batch before it?"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from course_lib.train.batch import samples_in, to_device
from course_lib.train.timing import Clock, clock_for

Step = Callable[[Any], Any]

MOST_STEPS = 2000  # in one window


@dataclass(frozen=True)
class Row:
    """One step: seconds of waiting for the batch, of its transfer and of the step, and its samples."""

    wait_s: float
    transfer_s: float
    step_s: float
    samples: int

    @property
    def total_s(self) -> float:
        """Seconds from one batch to the next."""
        return self.wait_s + self.transfer_s + self.step_s


class StepBench:
    """Runs a step on batches, and times the wait, the transfer and the step, on the device's own clock."""

    def __init__(self, step: Step, device: torch.device, clock: Clock | None = None) -> None:
        """`clock` replaces the one that suits the device."""
        self.step = step
        self.device = device
        self._clock = clock or clock_for(device)

    def run(
        self, batches: Iterator[Any], budget_s: float, *, at_least: int = 1, round_of: int = 1
    ) -> list[Row]:
        """Steps until the budget is over, in whole rounds, or the batches are; each with its times."""
        marks: list[tuple[Any, Any, Any, Any]] = []
        samples: list[int] = []
        end = time.perf_counter() + budget_s
        while len(marks) < MOST_STEPS:
            enough = len(marks) >= at_least and len(marks) % round_of == 0
            if enough and time.perf_counter() >= end:
                break
            before = self._clock.mark()
            try:
                batch = next(batches)
            except StopIteration:
                break
            came = self._clock.mark()
            moved = to_device(batch, self.device)
            there = self._clock.mark()
            self.step(moved)
            marks.append((before, came, there, self._clock.mark()))
            samples.append(samples_in(batch))
        self._clock.wait()
        seconds = self._clock.seconds
        return [
            Row(seconds(a, b), seconds(b, c), seconds(c, d), number)
            for (a, b, c, d), number in zip(marks, samples, strict=True)
        ]


def rates(rows: Sequence[Row], repeats: int, *, round_of: int = 1) -> list[float]:
    """Samples a second in as many windows as there are repeats; steps where samples are not told.

    Batches of several workers come in bursts, so that a window holds whole rounds of them: `round_of` is the
    number of workers. There are fewer windows where there are fewer rounds; what is left over joins the last.
    """
    rounds = len(rows) // round_of
    many = max(1, min(repeats, rounds))
    bounds = [rounds * part // many * round_of for part in range(many)] + [len(rows)]
    windows = [rows[first:end] for first, end in pairwise(bounds)]
    return [
        sum(row.samples or 1 for row in window) / max(sum(row.total_s for row in window), 1e-12)
        for window in windows
    ]


def mean(rows: Sequence[Row], name: str) -> float:
    """The mean of one time over the steps, in seconds."""
    return statistics.fmean(getattr(row, name) for row in rows)
