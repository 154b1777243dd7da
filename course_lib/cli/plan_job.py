"""How is a whole training told by ``course plan --samples --epochs``? One line a card, the fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib.units import format_seconds

if TYPE_CHECKING:
    from course_lib.plan.job import Assumptions, Job
    from course_lib.plan.memory import MemoryPlan
    from course_lib.plan.step_time import StepTime


def job_table(rows: Sequence[tuple[str, MemoryPlan | None, StepTime | None, Job | None, str]]) -> list[str]:
    """Lines for (card, memory, time, job, why there is no time): first what fits, by hours, then the rest."""
    jobs = sorted((row for row in rows if row[3]), key=lambda row: row[3].hours if row[3] else 0.0)
    currency = next((job.cheapest.currency for _, _, _, job, _ in jobs if job and job.cheapest), "")
    lines = [
        f"{'card':<24}{'safe':>11}{'samples/s':>11}  {'bound':<9}{'time':>11}{'kWh':>8}"
        f"{'own ' + currency:>11}{'rent ' + currency:>11}"
    ]
    for card, memory, time, job, _ in jobs:
        assert job is not None
        assert time is not None
        lines.append(
            f"{card:<24}"
            + (f"{memory.safe / 2**20:>7,.0f} MiB" if memory else f"{'':>11}")
            + f"{time.samples_per_second:>11,.0f}  {time.bound:<9}{format_seconds(3600 * job.hours):>11}"
            + f"{_cell(job.energy_kwh, 1):>8}"
            + f"{_cell(job.own.total.amount if job.own else None, 2):>11}"
            + f"{_cell(job.rent.total.amount if job.rent else None, 2):>11}"
        )
    small = [card for card, memory, _, job, _ in rows if job is None and memory and not memory.fits]
    unknown = [card for card, memory, _, job, _ in rows if job is None and not (memory and not memory.fits)]
    if small:
        lines += ["", "Too little memory for this batch: " + ", ".join(small) + "."]
    if unknown:
        lines += ["", "Not known well enough to be timed: " + ", ".join(unknown) + "."]
    return lines


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def assumption_lines(assumed: Assumptions) -> list[str]:
    """What the prices take for granted."""
    return [
        str(assumed),
        "Rent: the cheapest recent quote for one card. Prices, with their dates: course cards NAME.",
    ]
