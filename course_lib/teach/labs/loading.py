"""Lab of lesson 04: how fast do photographs come, for a batch size and a number of workers?

`measure_rate` loads real JPEG files beside a step. The lab puts sliders over it and draws a curve that grows
with each measurement. One of its cards is so fast that some of the cores at hand can feed it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.machine import usable_cores
from course_lib.teach.labs.frame import Answer, MeasuringLab, Progress, choices, menu, whole_numbers
from course_lib.teach.picture import Picture
from course_lib.teach.plots_loading import plot_sweep
from course_lib.teach.workspace import learner_folder
from course_lib.units import format_count

if TYPE_CHECKING:
    from course_lib.train.loading.measurement import Rate

SAMPLES_A_SECOND_3090 = 3481.78
"""ResNet-18 at 224 pixels in mixed precision, training on an RTX 3090, at a batch of 512. Source:
results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv of timm (huggingface/pytorch-image-models)."""

FAST, WITHIN_REACH = "an RTX 3090 (emulated)", "a card for 1.3 cores (emulated)"
CARDS = (FAST, WITHIN_REACH)
CORES_NEEDED = 1.3  # by the card within reach: one worker is too few for it, and two are enough
BATCH_SIZES = (8, 16, 32, 64)  # Cancel is heard between two batches: larger ones let it wait
MOST_WORKERS = 128
PROBED = 32  # photographs from which the rate of one core is taken


@dataclass(frozen=True)
class FedCard:
    """Samples a second that came to a card, and `card_rate`, those that it could use."""

    rate: Rate
    card_rate: float

    @property
    def median(self) -> float:
        """Samples a second, the median over the windows of the measurement."""
        return self.rate.median

    def __str__(self) -> str:
        return f"{self.rate}; the card could use {format_count(self.card_rate)}"


def measure_rate(
    batch_size: int = 32,
    num_workers: int = 0,
    card: str = FAST,
    *,
    folder: Path | None = None,
    budget_s: float = 2.0,
    progress: Progress | None = None,
) -> FedCard:
    """Samples a second of photographs beside an emulated card, in the steady state.

    Args:
        batch_size: photographs in a batch, 1 to 4,096.
        num_workers: processes that make batches, 0 to 128.
        card: one of CARDS, whose step is emulated. The second could use 1.3 times what one core of this
            machine makes, which is measured the first time.
        folder: photographs that ``write_photographs`` made; by default made once in the learner's folder.
        budget_s: seconds to measure, up to 600; a slow setting takes one round of batches at least.
        progress: hears how far it is.

    Raises:
        CourseError: a setting that cannot be used, or photographs that cannot be read or written.
    """
    import torch

    from course_lib.train.emulate import EmulatedStep
    from course_lib.train.loading.memory import check_shared_memory
    from course_lib.train.loading.probe import bytes_in
    from course_lib.train.loading.settings import LoaderSettings, Source
    from course_lib.train.loading.step_bench import StepBench
    from course_lib.train.loading.trials import run_trial
    from course_lib.train.photographs import Photographs, write_photographs

    whole_in(batch_size, "The batch size", 1, 4096)
    whole_in(num_workers, "The number of workers", 0, MOST_WORKERS)
    number_in(budget_s, "The time to measure, in seconds,", 1e-6, 600)
    if card not in CARDS:
        raise CourseError(f"There is no card {card!r} in this lab: choose one of {', '.join(CARDS)}.")
    tell = progress or _say_nothing
    tell(0.0, "opening the photographs; the first time they are made")
    folder = write_photographs(learner_folder() / "images", 64, progress=False) if folder is None else folder
    pictures, settings = Photographs(folder, wire="uint8"), LoaderSettings(num_workers)
    if card == WITHIN_REACH:
        tell(0.1, "looking how fast one core is")
        card_rate = CORES_NEEDED * rate_of_one_core(folder)
    else:
        card_rate = SAMPLES_A_SECOND_3090
    step = EmulatedStep(batch_size / card_rate)
    tell(0.2, f"loading with {num_workers} workers")
    check_shared_memory(settings, batch_size * bytes_in(pictures[0]))
    source = Source.of(pictures, batch_size)
    bench = StepBench(_Telling(step, tell), torch.device("cpu"))
    run = run_trial(source, settings, bench, budget_s)
    tell(1.0, "done")
    return FedCard(run.rate(), card_rate)


@lru_cache(maxsize=8)
def rate_of_one_core(folder: Path) -> float:
    """Photographs of this folder that one core reads and decodes in a second; measured once, some 0.1 s."""
    import torch

    from course_lib.train.photographs import Photographs

    pictures = Photographs(folder, wire="uint8")
    _ = pictures[0]  # warms up
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker
    try:
        begin = time.perf_counter()
        for index in range(PROBED):
            _ = pictures[index % len(pictures)]
        seconds = time.perf_counter() - begin  # with what else runs here: the workers share it too
    finally:
        torch.set_num_threads(before)
    return PROBED / seconds


class _Telling:
    """A step that also tells the progress: between two batches a measurement can be cancelled."""

    def __init__(self, step: object, tell: Progress) -> None:
        self._step, self._tell, self._done = step, tell, 0

    def __call__(self, batch: object) -> None:
        self._step(batch)  # type: ignore[operator]
        self._done += 1
        self._tell(1 - 0.8 / (1 + self._done / 8), f"batch {self._done}")


def plot_answers(answers: Sequence[Answer]) -> Picture:
    """The curve of the newest batch size and card: each measured number of workers once."""
    newest = answers[-1].values
    same = [
        answer
        for answer in answers
        if all(answer.values[key] == newest[key] for key in ("batch_size", "card"))
    ]
    measured = {answer.values["num_workers"]: answer.result.median for answer in same}
    title = f"Batches of {newest['batch_size']}, beside {newest['card']}"
    return plot_sweep(measured, alone=answers[-1].result.card_rate, title=title)


def lab() -> MeasuringLab:
    """Sliders for the batch size and the workers, and a choice of card."""
    cores = usable_cores()
    most = min(max(2 * cores, cores + 1), cores + 4, MOST_WORKERS)  # also more than there are cores
    return MeasuringLab(
        measure_rate,
        {
            "batch_size": choices("batch size", BATCH_SIZES, 32),
            "num_workers": whole_numbers("workers", 0, most, 0),
            "card": menu("card", CARDS, FAST),
        },
        show=plot_answers,
        keep=24,
    )


def _say_nothing(share: float, doing: str) -> None:
    """Nobody listens."""
