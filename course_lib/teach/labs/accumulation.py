"""Lab of lesson 05: what does one update from a fixed global batch cost, in small pieces or in large ones?

`measure` makes the same update of the digits network in micro-batches of a size, and measures it. The lab
puts sliders over the global batch and over the micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.machine import best_device
from course_lib.teach.labs.frame import Answer, MeasuringLab, Progress, choices
from course_lib.teach.picture import Picture
from course_lib.teach.plots_accumulation import plot_update_costs
from course_lib.train.update_cost import UpdateCost, check_cut, update_cost

SIZES = (8, 16, 32, 64, 128, 256, 512)


def measure(
    global_batch: int = 512, micro_batch: int = 64, *, budget_s: float = 1.0, progress: Progress | None = None
) -> UpdateCost:
    """One update from a global batch in micro-batches of this size: memory and time, on the best device here.

    A micro-batch that is larger than the global batch is the global batch. Raises CourseError for sizes
    outside 1 to 16,384, and for no time.
    """
    check_cut(global_batch, micro_batch, budget_s)
    return update_cost(
        global_batch,
        min(micro_batch, global_batch),
        budget_s=budget_s,
        device=best_device(),
        progress=progress,
    )


def plot_measurements(answers: Sequence[Answer]) -> Picture:
    """The measurements as bars, the newest at the bottom."""
    return plot_update_costs([answer.result for answer in answers], title="One update, cut in pieces")


def lab() -> MeasuringLab:
    """Sliders for the global batch and the micro-batch; the bars of the latest five measurements."""
    return MeasuringLab(
        measure,
        {
            "global_batch": choices("global batch", (64, 128, 256, 512), 512),
            "micro_batch": choices("micro-batch", SIZES, 64),
        },
        show=plot_measurements,
        keep=5,
    )
