"""Lab of lesson 02: would more cards help? A step on 1 to 1,024 cards, over any kind of link.

`scale_out` predicts with `plan/scaling.py` from a compute time and the bytes of the gradients. The lab
puts sliders over it. `smallest_worthwhile_batch` asks when a second card pays.
"""

from __future__ import annotations

from collections.abc import Callable

from course_lib.bounds import number_in
from course_lib.errors import CourseError
from course_lib.plan.interconnects import Interconnect, find_interconnect, interconnects
from course_lib.plan.scaling import ScaledStep, scale
from course_lib.plan.step_time import StepTime
from course_lib.teach.labs.frame import Lab, choices, menu
from course_lib.teach.measured_scaling import measured_step
from course_lib.teach.plots_ddp import plot_scaling
from course_lib.teach.scale_out import ScaleOut

COUNTS = tuple(2**power for power in range(11))
CARDS_A_COMPUTER = 8
MIB = 2**20


def scale_out(
    compute_ms: float = 100.0,
    gradient_mib: float = 100.0,
    link: str = "PCIe 4.0",
    network: str = "Ethernet 10G",
    cards: int = 8,
) -> ScaleOut:
    """Predict a data-parallel step on up to 1,024 cards, eight in each computer.

    Args:
        compute_ms: milliseconds of forward and backward pass on one card, for its own batch.
        gradient_mib: MiB of gradients that all cards exchange in each step.
        link: how cards of one computer are joined, by a name of ``data/interconnects.csv``.
        network: how the computers are joined.
        cards: one of 1, 2, 4, ... 1,024, for the chosen step.

    Raises:
        CourseError: another number of cards, an unknown link, a time or a size outside 0.001 to 1e9.
    """
    if cards not in COUNTS:
        raise CourseError(f"The cards are 1, 2, 4, and so on to {COUNTS[-1]}, not {cards}.")
    number_in(compute_ms, "The time of a step, in ms,", 0.001, 1e9)
    number_in(gradient_mib, "The size of the gradients, in MiB,", 0.001, 1e9)
    inside, outside = find_interconnect(link), find_interconnect(network)
    step = measured_step(compute_ms / 1000, round(gradient_mib * MIB) or 1, layers=32, model="the step")
    steps = tuple(_scaled(step, count, link, network) for count in COUNTS)
    return ScaleOut(steps, cards, inside.name, outside.name)


def _scaled(step: StepTime, cards: int, link: str, network: str) -> ScaledStep:
    if cards <= CARDS_A_COMPUTER:
        return scale(step, cards, link)
    return scale(step, cards, link, nodes=cards // CARDS_A_COMPUTER, network=network)


def smallest_worthwhile_batch(
    step_at: Callable[[int], StepTime],
    link: str | Interconnect,
    *,
    efficiency: float = 0.9,
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
) -> int | None:
    """The smallest batch a card at which two cards reach this efficiency, None if none of them does.

    Raises CourseError for an efficiency outside 0 to 1.
    """
    if not 0 < efficiency < 1:
        raise CourseError(f"An efficiency is a number between 0 and 1, not {efficiency}.")
    for size in sorted(batch_sizes):
        if scale(step_at(size), 2, link).efficiency >= efficiency:
            return size
    return None


def lab() -> Lab:
    """Sliders for the step, its gradients and the links; efficiency over the number of cards."""
    inside = [link.name for link in interconnects() if not link.network]
    between = [link.name for link in interconnects() if link.network]
    return Lab(
        scale_out,
        {
            "compute_ms": choices("compute, ms", (1, 3, 10, 30, 100, 300, 1000), 100),
            "gradient_mib": choices("gradients, MiB", (1, 10, 100, 300, 1000, 5000), 100),
            "link": menu("between cards", inside, "PCIe 4.0"),
            "network": menu("between computers", between, "Ethernet 10G"),
            "cards": choices("cards", COUNTS, 8),
        },
        show=lambda answers: plot_scaling(answers[-1].result),
    )
