"""Lab of lesson 00: what does a training step wait for, when real image files feed it?

`measure_loader` trains the lesson's small network for a few steps on JPEG files that are decoded and changed
for each batch, and splits the step. The lab puts two sliders over it: the batch size and the workers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.bounds import number_in, whole_in
from course_lib.machine import best_device, usable_cores
from course_lib.teach.labs.frame import Answer, MeasuringLab, Progress, choices, whole_numbers
from course_lib.teach.picture import Picture
from course_lib.teach.split_bars import plot_split
from course_lib.teach.workspace import learner_folder

if TYPE_CHECKING:
    from torch import nn

    from course_lib.train.images import ImageFiles
    from course_lib.train.split import StepSplit

BATCH_SIZES = (8, 16, 32, 64, 128, 256)
MOST_WORKERS = 4
MOST_STEPS = 60
_WORKERS_START_S = 10  # where each imports torch anew, as on Windows and macOS
IMAGE_SIZE = 8  # pixels that the network sees; the files are larger, as photographs are


def measure_loader(
    batch_size: int = 64,
    num_workers: int = 0,
    *,
    folder: Path | None = None,
    budget_s: float = 3.0,
    progress: Progress | None = None,
) -> StepSplit:
    """Train on image files for a few steps with this loader, and tell where the time of a step went.

    What is measured is the steady state: the start of the workers and their first batches do not count. The
    steps are as many as fit into ``budget_s`` seconds, but at least one round of batches from all workers, so
    a large batch may take longer. The workers are gone when this returns.

    Args:
        batch_size: images in a batch, 1 to 4,096.
        num_workers: processes that prepare batches, 0 to 64.
        folder: pictures that ``write_image_files`` made; by default made once in the learner's folder.
        budget_s: seconds to measure, up to 600.
        progress: hears how far it is.

    Raises:
        CourseError: a setting that cannot be used, or pictures that cannot be read or written.
    """
    from torch.utils.data import DataLoader, RandomSampler

    from course_lib.models.zoo import DigitsCNN
    from course_lib.train.images import ImageFiles, write_image_files
    from course_lib.train.loop import measure_split

    whole_in(batch_size, "The batch size", 1, 4096)
    whole_in(num_workers, "The number of workers", 0, 64)
    number_in(budget_s, "The time to measure, in seconds,", 1e-6, 600)
    tell = progress or _say_nothing
    tell(0.0, "making the pictures")
    folder = write_image_files(learner_folder() / "images", progress=False) if folder is None else folder
    files = ImageFiles(folder, image_size=IMAGE_SIZE)
    model = DigitsCNN().to(best_device())
    tell(0.05, "trying one step")
    # Workers that start together deliver together: only whole rounds of batches give a fair mean.
    round_of = max(1, num_workers)
    rounds = int(budget_s / (_seconds_a_step(files, model, batch_size, num_workers) * round_of))
    steps = round_of * min(max(1, rounds), MOST_STEPS // round_of or 1)
    tell(0.1, f"starting {num_workers} workers" if num_workers else "warming up")
    # With replacement, so that a batch may be larger than the folder.
    sampler = RandomSampler(files, replacement=True, num_samples=batch_size * (steps + round_of))
    split = measure_split(
        DataLoader(files, batch_size=batch_size, sampler=sampler, num_workers=num_workers),
        model,
        steps=steps,
        warmup=round_of,
        budget_s=3 * budget_s + _WORKERS_START_S * num_workers,  # should the estimate be far too low
        progress=lambda done, of: tell(0.1 + 0.9 * (done / of), f"step {done} of {of}"),
    )
    tell(1.0, "done")  # also where the time was up before the last step
    return split


def plot_measurements(answers: Sequence[Answer]) -> Picture:
    """The measurements as bars, the newest at the bottom, per image so that batch sizes can be compared."""
    bars = {}
    for number, answer in enumerate(answers, start=1):
        size, workers = answer.values["batch_size"], answer.values["num_workers"]
        bars[f"{number}. batch {size}, {workers} worker{'' if workers == 1 else 's'}"] = answer.result
    return plot_split(bars, per="sample", title="What one image costs, in a training step from files")


def lab() -> MeasuringLab:
    """Sliders for the batch size and the workers; the bars of the latest four measurements."""
    cores = usable_cores()
    return MeasuringLab(
        measure_loader,
        {
            "batch_size": choices("batch size", BATCH_SIZES, 64),
            "num_workers": whole_numbers("workers", 0, min(cores, MOST_WORKERS), 0),
        },
        show=plot_measurements,
        keep=4,
    )


def _seconds_a_step(files: ImageFiles, model: nn.Module, batch_size: int, num_workers: int) -> float:
    """An estimate: the images are prepared one by one, or by the workers while the model computes."""
    import torch

    from course_lib.train.loop import measure_split

    images = torch.zeros(batch_size, 1, IMAGE_SIZE, IMAGE_SIZE)
    labels = torch.zeros(batch_size, dtype=torch.int64)
    compute = measure_split([(images, labels)], model, steps=1, warmup=1).step.mean_s
    many = min(8, len(files))
    begin = time.perf_counter()
    for index in range(many):
        files[index]
    prepare = batch_size * (time.perf_counter() - begin) / many
    return prepare + compute if num_workers == 0 else max(prepare / num_workers, compute)


def _say_nothing(share: float, doing: str) -> None:
    """Nobody listens."""
