"""With which settings does this data set load fastest beside this step, on this machine?

    tune(dataset, step)

Making a few batches here and running the step alone tells most of it (`model`). A few trials with real
workers correct the model and decide; what was not tried is not recommended.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.train.loading.search import Progress, Search
from course_lib.train.loading.settings import DEFAULT_BATCH, Source
from course_lib.train.loading.step_bench import Step, StepBench, step_device
from course_lib.train.loading.tuning import Tuning


def tune(
    dataset: Any,
    step: Step,
    *,
    batch_size: int | None = None,
    collate_fn: Callable[[Any], Any] | None = None,
    budget_seconds: float = 60.0,
    most_workers: int | None = None,
    free_memory_bytes: int | None = None,
    device: str | torch.device | None = None,
    progress: bool | Progress = True,
) -> Tuning:
    """Choose the settings of a `DataLoader` for this data set beside this step, by a few short trials.

    Args:
        dataset: a data set, or a `DataLoader`, whose sampler, batches and collating are then kept.
        step: takes a batch on its device: a TrainingStep, an EmulatedStep, or any function.
        batch_size: samples in a batch; by default the `DataLoader`'s, else 32, or all of a smaller data set.
        collate_fn: makes a batch of samples; by default the `DataLoader`'s, else PyTorch's own.
        budget_seconds: time for all trials. Most data sets need a few seconds; a trial that has begun, and
            the start of its workers, may take some seconds longer, and a stuck worker is waited for a minute.
        most_workers: how many workers may be tried; by default twice the usable cores, 8 at least, and 32
            where waiting for storage is the limit.
        free_memory_bytes: what workers may take together; by default what is free now.
        device: where batches go; by default where the step is, else the CPU.
        progress: whether to show a bar, or who hears how far it is, from 0 to 1, and what is tried.

    Returns:
        The settings, the trials, and what the throughput is limited by. No process is left behind.

    Raises:
        CourseError: nothing can be loaded, a batch takes too long for the budget, a worker is stuck, or an
            argument makes no sense. What the data set raises is passed on.
    """
    number_in(budget_seconds, "The time for tuning, in seconds,", 0.01, 86_400)
    if most_workers is not None:
        whole_in(most_workers, "The largest number of workers", 0, 1024)
    source = Source.of(dataset, batch_size, collate_fn)
    _check_size(source.dataset, batch_size)
    bench = StepBench(step, step_device(step, device), counted=source.batched)
    with _listener(progress) as tell, torch.random.fork_rng(devices=[]):
        search = Search(
            source,
            bench,
            budget_seconds,
            most_workers=most_workers,
            free_memory_bytes=free_memory_bytes,
            tell=tell,
        )
        search.warnings += _fewer(dataset, source, batch_size)
        return search.run()


def _check_size(dataset: Any, batch_size: int | None) -> None:
    """A batch that was asked for is no larger than the data set. Raises CourseError."""
    samples = len(dataset) if hasattr(dataset, "__len__") else None
    if batch_size is not None and samples is not None and batch_size > samples:
        raise CourseError(
            f"The data set has {samples:,} samples, fewer than a batch of {batch_size:,}: give a smaller one."
        )


def _fewer(dataset: Any, source: Source, batch_size: int | None) -> list[str]:
    """A warning where the data set is smaller than the batches that are tried by default."""
    if source.dataset is not dataset or batch_size is not None or (source.batch_size or 0) >= DEFAULT_BATCH:
        return []
    samples = f"{source.batch_size} sample{'' if source.batch_size == 1 else 's'}"
    return [f"the data set has {samples}, fewer than 32: all of them together were tried as a batch."]


@contextmanager
def _listener(progress: bool | Progress) -> Iterator[Progress]:
    if callable(progress):
        yield progress
        return
    from tqdm.auto import tqdm

    with tqdm(total=100, disable=not progress, bar_format="{desc} |{bar}|") as bar:

        def tell(share: float, doing: str) -> None:
            bar.set_description_str(f"tuning: {doing}", refresh=False)
            bar.update(round(100 * share) - bar.n)

        yield tell
