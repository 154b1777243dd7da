"""Which is the largest batch that fits into memory? A few real training steps tell.

    step = TrainingStep(model, optimizer)
    found = find_batch_size(step, make_batch, restore=(model, optimizer))
    print(found)

Two trials give a straight line, memory over batch size; the line gives the largest batch, and a third trial
confirms it. What is returned was run.
"""

import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.machine import best_device
from course_lib.memory_errors import out_of_memory
from course_lib.train.rescue.agreement import FAILED, FITS, OUT_OF_MEMORY, Agreement
from course_lib.train.rescue.batch_search import Bounds, Line, Trial, best_of, line_through, next_batch_size
from course_lib.train.rescue.batch_size_result import BatchSizeSearch
from course_lib.train.rescue.memory_meter import MemoryMeter, meter_for
from course_lib.units import format_bytes, parse_bytes

REMEDIES = (
    "use mixed precision, checkpoint the largest blocks, "
    "take an optimizer with fewer states (SGD), smaller inputs or a smaller model"
)


class Stateful(Protocol):
    """What can be put back as it was: a model, an optimizer, a gradient scaler, a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take a state back."""
        ...


def find_batch_size(
    try_step: Callable[[Any], object],
    make_batch: Callable[[int], Any] | None = None,
    *,
    device: str | torch.device | None = None,
    meter: MemoryMeter | None = None,
    budget: int | str | None = None,
    start: int = 4,
    largest: int | None = None,
    multiple_of: int = 1,
    steps: int = 2,
    restore: Sequence[Stateful] = (),
) -> BatchSizeSearch:
    """Find the largest batch with which a training step fits into memory.

    `try_step(batch)` trains one step: forward, backward, optimizer. `make_batch(batch_size)` makes its
    batch, of the longest samples there are (see `longest_batch`): a batch of short ones says nothing about
    the worst. Without `make_batch`, `try_step` is given the batch size itself. A trial is `steps` steps, 2
    at least: the optimizer makes its states at the end of the first, so the second is the first one that
    carries all.

    `meter` reads the memory; left out, it is the one for `device`, and that the best one here. `budget` is
    the memory ("2 GiB", or bytes) that training may use beside what is in use now, for a device that sets
    no limit itself or to leave a part free. A trial that reads more than the limit counts as out of memory,
    also where the system let it pass. `start` is the first batch size; only multiples of `multiple_of` up
    to `largest` are tried.

    The steps really train. What `restore` holds (model, optimizer, ...) is put back afterwards, with the
    random numbers.

    Under torch.distributed every rank must call this. Ranks try the same sizes and take the least that fits
    any of them. The step must not communicate (run it under `model.no_sync()`): a rank that runs out would
    leave the others waiting.

    Raises CourseError when not even the smallest batch fits, when nothing limits the memory, and when a
    setting cannot be used. Errors of the step that do not speak of memory pass through.
    """
    _check(start=start, largest=largest, multiple_of=multiple_of, steps=steps)
    meter = meter or meter_for(best_device() if device is None else device)
    agreement = Agreement()
    with _put_back(restore):
        _free()
        before = meter.begin()
        in_use = agreement.least(before) or 0
        limit = agreement.least(_limit(meter, before, budget))
        reachable = None if limit is None else round(limit * (1 - meter.gaps))
        bounds = Bounds(reachable, in_use, start, largest, multiple_of)
        stand = _Stand(_step_of(try_step, make_batch), steps, meter, agreement, limit)
        trials: list[Trial] = []
        while (batch_size := next_batch_size(trials, bounds)) is not None:
            trials.append(stand.attempt(batch_size, line_through(trials)))
        meter.begin()  # the cache is given back
        meter.peak()
    best = best_of(trials)
    if best is None:
        smallest = min(trials, key=lambda trial: trial.batch_size)
        what = (
            "sample fits"
            if smallest.batch_size == 1
            else f"batch of {smallest.batch_size} (multiple_of) fits"
        )
        raise CourseError(
            f"Not even one {what} into {format_bytes(limit or 0)} ({smallest.failure}): {REMEDIES}."
        )
    line = line_through(trials)
    return BatchSizeSearch(
        best.batch_size,
        tuple(trials),
        limit,
        in_use,
        None if line is None else round(line.fixed),
        None if line is None else round(line.per_sample),
        meter.name,
        agreement.world_size,
        largest,
        multiple_of,
    )


def longest_batch(
    dataset: Any, length: Callable[[Any], int] = len, collate: Callable[[list[Any]], Any] | None = None
) -> Callable[[int], Any]:
    """A `make_batch` that repeats the longest sample of a data set, the worst batch that a loader could draw.

    `length(sample)` tells how long a sample is; all samples are looked at once. `collate` is the loader's
    own; left out, it is PyTorch's default. Raises CourseError for an empty data set.
    """
    from torch.utils.data import default_collate

    if not len(dataset):
        raise CourseError("The data set is empty: a batch needs at least one sample.")
    longest = dataset[max(range(len(dataset)), key=lambda index: length(dataset[index]))]
    join = collate or default_collate
    return lambda batch_size: join([longest] * batch_size)


def _check(*, start: int, largest: int | None, multiple_of: int, steps: int) -> None:
    for name, number in (("start", start), ("multiple_of", multiple_of), ("largest", largest)):
        if number is not None and number < 1:
            raise CourseError(f"{name} must be 1 or more, not {number}.")
    if steps < 2:
        raise CourseError(
            f"A trial needs 2 steps or more, not {steps}: optimizer states appear after the first."
        )
    if largest is not None and largest < multiple_of:
        raise CourseError(
            f"No multiple of {multiple_of} is at most {largest}: change largest or multiple_of."
        )


def _step_of(
    try_step: Callable[[Any], object], make_batch: Callable[[int], Any] | None
) -> Callable[[int], object]:
    return try_step if make_batch is None else lambda batch_size: try_step(make_batch(batch_size))


def _limit(meter: MemoryMeter, in_use: int, budget: int | str | None) -> int | None:
    """The bytes that a reading may reach on this rank."""
    own = meter.limit()
    if budget is None:
        if own is None:
            raise CourseError(
                "Nothing limits the memory of this process, so the search could bring the computer down: "
                'give budget="2 GiB", or run the search in a child with course_lib.train.limits.run_limited.'
            )
        return own
    wanted = in_use + (parse_bytes(budget) if isinstance(budget, str) else int(budget))
    return wanted if own is None else min(own, wanted)


@dataclass(frozen=True)
class _Stand:
    """What all trials of one search share."""

    step: Callable[[int], object]
    steps: int
    meter: MemoryMeter
    agreement: Agreement
    limit: int | None

    def attempt(self, batch_size: int, line: Line | None) -> Trial:
        """One trial, the same on all ranks."""
        begin = time.perf_counter()
        self.meter.begin()
        failure: str | None = None
        strange: Exception | None = None
        peak = 0
        try:
            for _ in range(self.steps):
                self.step(batch_size)
            peak = self.meter.peak()
        except Exception as error:
            if out_of_memory(error) is None:
                strange = error
            else:
                # The traceback keeps the frames, and they keep the tensors: both must go before a retry.
                failure = _first_line(error)
                traceback.clear_frames(error.__traceback__)
            with suppress(RuntimeError):  # the reading of a trial that failed is not used
                self.meter.peak()
        # Only here, outside the except block, is the exception itself gone.
        _free()
        if failure is None and strange is None and self.limit is not None and peak > self.limit:
            failure = f"{format_bytes(peak)} were in use, more than {format_bytes(self.limit)}"
        own = FAILED if strange is not None else OUT_OF_MEMORY if failure is not None else FITS
        state, peak = self.agreement.worst(own, peak)
        if strange is not None:
            raise strange
        if state == FAILED:
            raise CourseError(
                "The training step failed on another rank: its error stands in that rank's output."
            )
        if state == OUT_OF_MEMORY and failure is None:
            failure = "another rank ran out of memory"
        return Trial(
            batch_size,
            peak if failure is None else None,
            None if line is None else round(line.at(batch_size)),
            time.perf_counter() - begin,
            failure,
        )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _free() -> None:
    """Let go of what earlier failures still hold: in a notebook the last traceback keeps the tensors of its
    frames.
    """
    if getattr(sys, "last_traceback", None) is not None:
        traceback.clear_frames(sys.last_traceback)
    gc.collect()


@contextmanager
def _put_back(things: Sequence[Stateful]) -> Iterator[None]:
    """Keep copies on the CPU, and put them back at the end with the random numbers; gradients are dropped."""
    kept = [_copied(thing.state_dict()) for thing in things]
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=cuda):
        try:
            yield
        finally:
            for thing, state in zip(things, kept, strict=True):
                thing.load_state_dict(state)
                if isinstance(thing, nn.Module):
                    thing.zero_grad(set_to_none=True)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return type(value)((key, _copied(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value)(_copied(item) for item in value)
    return value
