"""Lab of lesson 04: how fast do photographs come, for a batch size and a number of workers?

`measure_rate` loads real JPEG files beside a step. The lab puts sliders over it and draws a curve that grows
with each measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.machine import usable_cores
from course_lib.teach.labs.frame import Answer, MeasuringLab, Progress, choices, menu, whole_numbers
from course_lib.teach.picture import Picture
from course_lib.teach.plots_loading import plot_sweep
from course_lib.teach.workspace import learner_folder

if TYPE_CHECKING:
    from course_lib.train.loading.measurement import Rate

SAMPLES_A_SECOND_3090 = 3481.78
"""ResNet-18 at 224 pixels in mixed precision, training on an RTX 3090, at a batch of 512. Source:
results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv of timm (huggingface/pytorch-image-models)."""

CARDS = {"an RTX 3090 (emulated)": SAMPLES_A_SECOND_3090, "a card a tenth as fast (emulated)": 348.0}
BATCH_SIZES = (8, 16, 32, 64, 128)
MOST_WORKERS = 6


def measure_rate(
    batch_size: int = 32,
    num_workers: int = 0,
    card: str = "an RTX 3090 (emulated)",
    *,
    folder: Path | None = None,
    budget_s: float = 2.0,
    progress: Progress | None = None,
) -> Rate:
    """Samples a second of photographs beside an emulated card, in the steady state.

    Args:
        batch_size: photographs in a batch, 1 to 4,096.
        num_workers: processes that make batches, 0 to 64.
        card: one of CARDS, whose step is emulated.
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
    whole_in(num_workers, "The number of workers", 0, 64)
    number_in(budget_s, "The time to measure, in seconds,", 1e-6, 600)
    if card not in list(CARDS):
        raise CourseError(f"There is no card {card!r} in this lab: choose one of {', '.join(CARDS)}.")
    tell = progress or _say_nothing
    tell(0.0, "making the photographs")
    folder = write_photographs(learner_folder() / "images", 64, progress=False) if folder is None else folder
    step = EmulatedStep(batch_size / CARDS[card])
    tell(0.2, f"loading with {num_workers} workers")
    pictures, settings = Photographs(folder, wire="uint8"), LoaderSettings(num_workers)
    check_shared_memory(settings, batch_size * bytes_in(pictures[0]))
    source = Source.of(pictures, batch_size)
    bench = StepBench(_Telling(step, tell), torch.device("cpu"))
    run = run_trial(source, settings, bench, budget_s)
    tell(1.0, "done")
    return run.rate()


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
    return plot_sweep(measured, alone=CARDS[newest["card"]], title=title)


def lab() -> MeasuringLab:
    """Sliders for the batch size and the workers, and a choice of card."""
    most = min(2 * usable_cores(), MOST_WORKERS)
    return MeasuringLab(
        measure_rate,
        {
            "batch_size": choices("batch size", BATCH_SIZES, 32),
            "num_workers": whole_numbers("workers", 0, most, 0),
            "card": menu("card", list(CARDS), next(iter(CARDS))),
        },
        show=plot_answers,
        keep=24,
    )


def _say_nothing(share: float, doing: str) -> None:
    """Nobody listens."""
