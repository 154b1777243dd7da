"""How fast would a job be on one card, if it was timed on some others? By three clocks.

Each sample costs some arithmetic, some bytes and some instructions. How much of each is not known, but it is
the same on every card, and cards differ in what they can do of each a second. The costs (none of them
negative) are those that explain the measured speeds best, held near a usual mixture where few cards were
measured. No trace of the model is needed: this serves for jobs that are known only by their published speeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.accelerators import Accelerator
from course_lib.errors import CourseError
from course_lib.plan.roofline import rates_of

# Chosen on public training speeds, see docs/accuracy.md.
USUAL = (0.2, 0.8, 0.0)  # the usual shares of arithmetic, bytes and instructions
HOLD = 0.03  # how strongly they are held


@dataclass(frozen=True)
class Costs:
    """What a sample costs: seconds of each clock on a card that does one unit a second."""

    arithmetic: float
    moving: float
    issuing: float


def clocks(card: Accelerator, precision: str) -> tuple[float, float, float]:
    """What a card does of arithmetic (FLOP/s), moving (bytes/s) and issuing (1/s).

    Arithmetic is bounded by the power of the card too: professional cards seldom reach their peak.
    """
    rates = rates_of(card)
    if rates.issue is None:
        raise CourseError(
            f"The table gives no clock of {card.name}, so its speed cannot be told from others."
        )
    return rates.sustained(precision), rates.bandwidth, rates.issue


def fit_costs(speeds: Mapping[str, float], cards: Mapping[str, Accelerator], precision: str) -> Costs:
    """The costs of a sample from samples a second on some cards, by name.

    Raises CourseError if there is none, or one that is not greater than zero.
    """
    if not speeds or any(speed <= 0 for speed in speeds.values()):
        raise CourseError("Give at least one measured speed, in samples a second, greater than zero.")
    rows = [[speed / clock for clock in clocks(cards[name], precision)] for name, speed in speeds.items()]
    # In units in which each clock alone would explain the middle measurement.
    scale = [1 / _middle([row[place] for row in rows]) for place in range(3)]
    rows = [[value * factor for value, factor in zip(row, scale, strict=True)] for row in rows]
    shares = _least_squares(rows, USUAL, HOLD)
    return Costs(*(share * factor for share, factor in zip(shares, scale, strict=True)))


def speed_on(card: Accelerator, costs: Costs, precision: str) -> float:
    """Samples a second on a card."""
    arithmetic, moving, issuing = clocks(card, precision)
    return 1.0 / (costs.arithmetic / arithmetic + costs.moving / moving + costs.issuing / issuing)


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _least_squares(rows: Sequence[Sequence[float]], start: Sequence[float], hold: float) -> list[float]:
    """Shares of at least 0 with ``rows @ shares`` near 1 and the shares near ``start``, one at a time."""
    shares = list(start)
    for _ in range(400):
        for place in range(len(shares)):
            weight = sum(row[place] ** 2 for row in rows) + hold
            rest = hold * (start[place] - shares[place])
            for row in rows:
                rest += row[place] * (1.0 - sum(a * b for a, b in zip(row, shares, strict=True)))
            shares[place] = max(0.0, shares[place] + rest / weight)
    return shares
