"""How long does each step take, and its batch before it?"""

import inspect
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any

import torch

from course_lib.errors import CourseError
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

    def __init__(
        self, step: Step, device: torch.device, clock: Clock | None = None, *, counted: bool = True
    ) -> None:
        """`clock` replaces the one that suits the device. Where the loader makes no batches, the length of
        what it gives is no number of samples: with `counted` False none is told.

        Raises CourseError for a step that cannot be called with a batch.
        """
        _check_step(step)
        self.step = step
        self.counted = counted
        self.device = device
        self._clock = clock or clock_for(device)

    def run(
        self,
        batches: Iterator[Any],
        budget_s: float,
        *,
        at_least: int = 1,
        round_of: int = 1,
        limit_s: float = math.inf,
    ) -> list[Row]:
        """Steps until the budget is over, in whole rounds, or the batches are; each with its times.

        After `limit_s` seconds no further batch is asked for, whatever is missing.
        """
        marks: list[tuple[Any, Any, Any, Any]] = []
        samples: list[int] = []
        begin = time.perf_counter()
        end, limit = begin + budget_s, begin + limit_s
        while len(marks) < MOST_STEPS and time.perf_counter() < limit:
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
            samples.append(samples_in(batch) if self.counted else 0)
        self._clock.wait()
        seconds = self._clock.seconds
        return [
            Row(seconds(a, b), seconds(b, c), seconds(c, d), number)
            for (a, b, c, d), number in zip(marks, samples, strict=True)
        ]

    def alone(self, batch: Any, budget_s: float) -> tuple[float, float]:
        """Seconds of a step with a batch on the device, and its processor time, after one to warm up."""
        self.step(batch)
        cpu = time.process_time()
        rows = self.run(cycle([batch]), budget_s, at_least=2)
        return mean(rows, "step_s"), (time.process_time() - cpu) / len(rows)


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


def step_device(step: Step, device: str | torch.device | None) -> torch.device:
    """Where batches go: the device that is given, else the step's, else the CPU.

    Raises CourseError for a device that this machine does not have.
    """
    given = getattr(step, "device", "cpu") if device is None else device
    try:
        where = torch.device(given)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise CourseError(
            f'The device {given!r} cannot be used here: give "cpu", or leave the device out.'
        ) from error
    return where


def _check_step(step: Any) -> None:
    """Raises CourseError for what cannot be called with a batch, before anything is loaded for it."""
    if not callable(step):
        hint = f": EmulatedStep({step}) takes that many seconds" if isinstance(step, int | float) else ""
        raise CourseError(f"The step must be a function that takes a batch, not {step!r:.60}{hint}.")
    try:
        inspect.signature(step).bind(None)
    except TypeError as error:
        raise CourseError(f"The step must take one argument, the batch ({error}).") from error
    except ValueError:
        pass  # some functions that are written in C do not tell their arguments
