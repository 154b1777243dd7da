"""What does one batch cost to make, and which part of that is reading, decoding or collating?

The probe makes a few batches in this process, with the loader's own data set, sampler and collating, and
looks at a clock in between. It needs no profiler and no rights. Reading and decoding are told apart by marks,
files and the system's own counters (`train.stage_marks`).
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from course_lib.errors import CourseError
from course_lib.train.batch import samples_in
from course_lib.train.stage_marks import SampleWatch, watch_samples
from course_lib.units import format_seconds

Clock = Callable[[], float]
Check = Callable[[int, int], None]  # hears after each sample how many of how many of a batch are made
KEEP = 4  # batches that are kept for replaying
KEEP_BYTES = 256 * 2**20
PATIENCE = 10  # budgets that the first batch may take if a second one shall be made


@dataclass(frozen=True)
class BatchCost:
    """What one batch costs in this process: mean seconds by part, and its size.

    `read_s` is waiting for storage, `decode_s` decoding and transforming, `collate_s` making one batch of the
    samples, `share_s` copying that into memory which another process can see (done only with workers).
    `cpu_s` is the processor time of all four. `each_s` holds the seconds of each batch, without sharing.
    """

    read_s: float
    decode_s: float
    collate_s: float
    share_s: float
    cpu_s: float
    samples: float
    nbytes: int
    each_s: tuple[float, ...]
    batches: tuple[Any, ...] = field(repr=False, compare=False, default=())

    @property
    def make_s(self) -> float:
        """Seconds to make a batch in one process that keeps it."""
        return self.read_s + self.decode_s + self.collate_s

    @property
    def jitter(self) -> float:
        """How much batches differ: the standard deviation of their times over the mean."""
        if len(self.each_s) < 2 or not self.make_s:
            return 0.0
        return statistics.stdev(self.each_s) / statistics.fmean(self.each_s)


def probe(
    loader: DataLoader[Any],
    *,
    budget_s: float = 1.0,
    most: int = 32,
    limit_s: float = math.inf,
    clock: Clock = time.perf_counter,
) -> BatchCost:
    """Make batches in this process for about `budget_s` seconds: at least one, at most `most`.

    The first batch warms up and is not counted if there are more. A stream that can be read only once loses
    the samples that the probe takes. What the data set raises gets a note that names the sample.

    Raises CourseError when the loader gives no batch, or not even one in `limit_s` seconds.
    """
    rows: list[tuple[float, float, float, float]] = []
    kept: list[Any] = []
    counts: list[int] = []
    nbytes = 0
    shared_s = shared_cpu_s = 0.0
    with _threads_of_a_worker(loader):
        begin, patience_s = clock(), min(PATIENCE * budget_s, limit_s / 4)

        def check(made: int, of: int) -> None:
            if not rows and made < of and clock() - begin > limit_s:
                raise CourseError(_too_slow(made, of, clock() - begin, limit_s))

        samples = _sample_lists(loader, check)
        while not rows or (
            len(rows) < most and clock() - begin < (budget_s if len(rows) > 1 else patience_s)
        ):
            cpu = time.thread_time()
            try:
                made, watch = next(samples)
            except StopIteration:
                break
            t0 = clock()
            with _noted("Raised while one batch was made of its samples (collate_fn)."):
                batch = loader.collate_fn(made) if loader.collate_fn is not None else made
            collate_s = clock() - t0
            blocked_s = min(max(watch.blocked_s, 0.0), watch.unmarked_s)
            read_s = watch.read_s + blocked_s
            decode_s = watch.decode_s + watch.unmarked_s - blocked_s
            rows.append((read_s, decode_s, collate_s, time.thread_time() - cpu))
            counts.append(samples_in(batch))
            nbytes = max(nbytes, bytes_in(batch))
            if len(kept) < KEEP and (not kept or (len(kept) + 1) * nbytes <= KEEP_BYTES):
                kept.append(batch)
        if not rows:
            raise CourseError(
                "The loader gave no batch: check the data set's length, the batch size and drop_last."
            )
        if loader.num_workers:
            # The least of a few: all batches have one size, and what else runs here only adds to it.
            each = [_seconds_to_share(batch, clock) for batch in kept]
            shared_s, shared_cpu_s = (min(column) for column in zip(*each, strict=True))
    counted = rows[1:] or rows
    read, decode, collate, cpu_s = (statistics.fmean(column) for column in zip(*counted, strict=True))
    return BatchCost(
        read_s=read,
        decode_s=decode,
        collate_s=collate,
        share_s=shared_s,
        cpu_s=cpu_s + shared_cpu_s,
        samples=statistics.fmean(counts),
        nbytes=nbytes,
        each_s=tuple(read + decode + collate for read, decode, collate, _ in counted),
        batches=tuple(kept),
    )


def bytes_in(batch: Any) -> int:
    """The bytes of all tensors in a batch, however it is nested."""
    if isinstance(batch, Tensor):
        return batch.nbytes
    if isinstance(batch, dict):
        return sum(bytes_in(part) for part in batch.values())
    if isinstance(batch, list | tuple):
        return sum(bytes_in(part) for part in batch)
    return 0


def _too_slow(made: int, of: int, spent_s: float, limit_s: float) -> str:
    batch_s = spent_s * of / made
    return (
        f"One batch takes about {format_seconds(batch_s)} to make ({made} of {of} samples came in "
        f"{format_seconds(spent_s)}), more than the {format_seconds(limit_s)} for all trials: give about "
        f"{math.ceil(batch_s * 10):,} seconds, or a smaller batch."
    )


@contextmanager
def _noted(note: str) -> Iterator[None]:
    """Say with an error of the learner's own where it was raised."""
    try:
        yield
    except (Exception, SystemExit) as error:
        error.add_note(note)
        raise


def _sample(dataset: Any, index: Any) -> Any:
    with _noted(f"Raised by dataset[{index!r}]."):
        return dataset[index]


def _sample_lists(loader: DataLoader[Any], check: Check) -> Iterator[tuple[Any, SampleWatch]]:
    """The samples of one batch after the other, as collating gets them, with what they took."""
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        yield from _from_stream(dataset, loader, check)
        return
    indices = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    at_once = getattr(dataset, "__getitems__", None)
    for chosen in indices:
        watch = SampleWatch()
        with watch_samples(watch):
            if loader.batch_sampler is None:
                made = _sample(dataset, chosen)
            elif at_once is not None:
                made = at_once(chosen)
            else:
                made = []
                for index in chosen:
                    made.append(_sample(dataset, index))
                    check(len(made), len(chosen))
        yield made, watch


def _from_stream(dataset: Any, loader: DataLoader[Any], check: Check) -> Iterator[tuple[Any, SampleWatch]]:
    stream, size = iter(dataset), loader.batch_size or 1
    while True:
        watch = SampleWatch()
        made: list[Any] = []
        with watch_samples(watch):
            for one in stream:
                made.append(one)
                check(len(made), size)
                if len(made) == size:
                    break
        if not made or (loader.drop_last and len(made) < (loader.batch_size or 1)):
            return
        yield (made[0] if loader.batch_size is None else made), watch


@contextmanager
def _threads_of_a_worker(loader: DataLoader[Any]) -> Iterator[None]:
    """Compute with one thread, as each worker does; without workers, with as many as now."""
    before = torch.get_num_threads()
    if loader.num_workers:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds_to_share(batch: Any, clock: Clock) -> tuple[float, float]:
    """Seconds to bring a batch into shared memory, and the processor time of that."""
    begin, cpu = clock(), time.thread_time()
    _shared_copy(batch)
    return clock() - begin, time.thread_time() - cpu


def _shared_copy(batch: Any) -> Any:
    """The batch in shared memory, as a worker sends it."""
    if isinstance(batch, Tensor):
        return batch.clone().share_memory_() if batch.device.type == "cpu" else batch  # type: ignore[no-untyped-call]
    if isinstance(batch, dict):
        return {key: _shared_copy(part) for key, part in batch.items()}
    if isinstance(batch, list | tuple):
        return [_shared_copy(part) for part in batch]
    return batch
