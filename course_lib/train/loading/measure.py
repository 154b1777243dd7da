"""How long does a training step wait for its loader, and for which part of it?

    measure(loader, step)

The differential: one batch again and again (the step alone), a few batches that lie ready (and their
transfer), then the real loader. The wait of the third is split by what a batch costs to make (`probe`).
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.train.batch import to_device
from course_lib.train.loading.measurement import LoaderMeasurement, Rate, StallPart, Unit
from course_lib.train.loading.probe import BatchCost, probe
from course_lib.train.loading.step_bench import Row, Step, StepBench, mean, rates, step_device
from course_lib.train.loading.workers import Epochs, open_iterator

Progress = Callable[[float, str], None]

SHORT_EPOCHS = 3  # epochs of a single round after which that round counts
ALONE, CACHED, REAL = 0.15, 0.15, 0.55  # shares of the budget; the rest is the probe's


def measure(
    loader: Iterable[Any],
    step: Step,
    *,
    budget_s: float = 6.0,
    repeats: int = 3,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> LoaderMeasurement:
    """Measure how long `step(batch)` waits for `loader`, and split that wait.

    Args:
        loader: a `DataLoader`, or anything that gives batches; its epochs begin anew as often as needed. With
            persistent workers, a pass over it that you have begun is over afterwards.
        step: takes a batch that is on the device. A TrainingStep, an EmulatedStep, or any function.
        budget_s: seconds to measure for, more than 0; each part takes two steps at least.
        repeats: windows of which the median counts and the spread is told, 1 or more.
        device: where batches go; by default where the step is, else the CPU.
        progress: hears how far it is, from 0 to 1, and what is being done.

    Raises:
        CourseError: no loader, one without batches, or settings that make no sense. What the data set or the
            step raise is passed on. Workers are gone in any case.
    """
    number_in(budget_s, "The time for measuring, in seconds,", 0.001, 86_400)
    whole_in(repeats, "The number of repeats", 1, 1000)
    _check_loader(loader)
    bench = StepBench(step, step_device(step, device), counted=_is_batched(loader))
    with torch.random.fork_rng(devices=[]):
        return _measured(loader, bench, budget_s, repeats, progress or _say_nothing)


def _measured(
    loader: Iterable[Any], bench: StepBench, budget_s: float, repeats: int, tell: Progress
) -> LoaderMeasurement:
    """Each part after the other."""
    tell(0.0, "making a few batches here")
    cost = _cost_of(loader, budget_s)
    ready = list(cost.batches) if cost is not None else _first_batches(loader)
    tell(0.2, "the step alone")
    on_device = to_device(ready[0], bench.device)
    bench.step(on_device)  # warms up
    alone = _windows(bench, cycle([on_device]), budget_s * ALONE, repeats)
    tell(0.35, "batches that lie ready")
    cached = _windows(bench, cycle(ready), budget_s * CACHED, repeats)
    tell(0.5, "the loader")
    num_workers = getattr(loader, "num_workers", 0)
    rows, first_batch_s = _real(bench, loader, budget_s * REAL, num_workers)
    tell(1.0, "done")
    step_alone_s = mean(alone, "step_s")
    wait_s, transfer_s, step_s = (mean(rows, name) for name in ("wait_s", "transfer_s", "step_s"))
    unit: Unit = "samples" if any(row.samples for row in rows) else "steps"
    return LoaderMeasurement(
        alone=Rate.of(rates(alone, repeats), unit),
        cached=Rate.of(rates(cached, repeats), unit),
        real=Rate.of(rates(rows, repeats, round_of=max(1, num_workers)), unit),
        step_s=step_s,
        step_alone_s=step_alone_s,
        wait_s=wait_s,
        transfer_s=transfer_s,
        stall=None
        if cost is None
        else split_stall(
            cost, wait_s, transfer_s, step_s - step_alone_s, in_process=_all_in_this_process(loader)
        ),
        first_batch_s=tuple(first_batch_s),
        batches=len(rows),
        num_workers=num_workers,
        device=str(bench.device),
        emulated=bool(getattr(bench.step, "emulated", False)),
    )


def split_stall(
    cost: BatchCost, wait_s: float, transfer_s: float, slower_s: float, *, in_process: bool = False
) -> dict[StallPart, float]:
    """Give the wait of a step to the parts that making a batch consists of, in their proportion.

    With workers, no part can be waited for longer than it takes: what is left over is handing over. Workers
    that are ahead hide some of each part, so the proportion stays. A loader that makes its batches
    `in_process` hands nothing over: its wait is the making, also where that takes longer than in the probe.
    Seconds, of one step.
    """
    parts = (cost.read_s, cost.decode_s, cost.collate_s, cost.share_s)
    whole = sum(parts)
    shared_out = [wait_s * part / whole if whole else 0.0 for part in parts]
    given = shared_out if in_process else [min(*pair) for pair in zip(parts, shared_out, strict=True)]
    rest = max(0.0, wait_s - sum(given))
    return {
        "reading": given[0],
        "decoding": given[1],
        "collating": given[2],
        "transfer": given[3] + rest + transfer_s,
        "slower step": max(0.0, slower_s),
    }


def _check_loader(loader: Any) -> None:
    """Raises CourseError for a data set, whose samples would be taken for batches, and other things."""
    if isinstance(loader, DataLoader | list | tuple):
        return
    is_data = hasattr(loader, "__getitem__") and hasattr(loader, "__len__")
    if is_data or isinstance(loader, Dataset) or not hasattr(loader, "__iter__"):
        raise CourseError(
            f"An object of type {type(loader).__name__} gives no batches: give a DataLoader, or a list of "
            "batches."
        )


def _is_batched(loader: Iterable[Any]) -> bool:
    """Whether the length of what it gives is a number of samples."""
    return not isinstance(loader, DataLoader) or loader.batch_sampler is not None or bool(loader.batch_size)


def _no_batch(loader: Iterable[Any]) -> str:
    if isinstance(loader, DataLoader):
        return "The loader gave no batch: check the data set's length and drop_last."
    return "The batches are used up: a generator gives them once, so give a list or a DataLoader."


def _cost_of(loader: Iterable[Any], budget_s: float) -> BatchCost | None:
    if not isinstance(loader, DataLoader):
        return None
    return probe(loader, budget_s=budget_s * (1 - ALONE - CACHED - REAL))


def _all_in_this_process(loader: Any) -> bool:
    """Whether no worker and no pinning stands between making a batch and having it."""
    return not loader.num_workers and not (loader.pin_memory and torch.cuda.is_available())


def _first_batches(loader: Iterable[Any]) -> list[Any]:
    with open_iterator(loader) as iterator:
        first = [batch for batch, _ in zip(iterator, range(2), strict=False)]
    if not first:
        raise CourseError("The loader gave no batch: give a list or a DataLoader with at least one.")
    return first


def _windows(bench: StepBench, batches: Iterator[Any], budget_s: float, repeats: int) -> list[Row]:
    return [row for _ in range(repeats) for row in bench.run(batches, budget_s / repeats, at_least=2)]


def _real(
    bench: StepBench, loader: Iterable[Any], budget_s: float, num_workers: int
) -> tuple[list[Row], list[float]]:
    """Steps in the steady state, and what each epoch waited for its first batch."""
    rows: list[Row] = []
    first_batch_s: list[float] = []
    round_of = max(1, num_workers)
    begin = time.perf_counter()
    with Epochs(loader) as epochs:
        while not rows or time.perf_counter() - begin < budget_s:
            asked = time.perf_counter()
            batches = epochs.next_epoch()
            started_s = time.perf_counter() - asked
            # The first round of batches comes while the workers still start: it does not count.
            first = bench.run(batches, 0.0, at_least=round_of, round_of=round_of)
            if not first:
                raise CourseError(_no_batch(loader))
            first_batch_s.append(started_s + first[0].wait_s)
            left = max(0.0, budget_s - (time.perf_counter() - begin))
            steady = bench.run(batches, left, at_least=2 * round_of, round_of=round_of)
            rows += steady
            if not steady and len(first_batch_s) >= SHORT_EPOCHS:
                rows += first  # an epoch is one round: all there is to measure
    return rows, first_batch_s


def _say_nothing(share: float, doing: str) -> None:
    """Nobody listens."""
