"""What do the hours of one training on one card cost in energy and money, owned and rented?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from course_lib.accelerators import Accelerator
from course_lib.errors import CourseError
from course_lib.plan.cost import Cost, Owned, Rented, StraightLine, cost_of
from course_lib.plan.electricity import tariff as tariff_of
from course_lib.plan.prices import Offer, to_buy, to_rent
from course_lib.plan.step_time import StepTime
from course_lib.units import Money


@dataclass(frozen=True)
class Assumptions:
    """What a price for a job takes for granted; each is said beside the prices.

    ``utilisation``: the share of its hours in which a card of one's own computes (a quarter: six hours a
    day). ``host_w``: the draw of the rest of the machine, an estimate. ``tariff``: for a kWh; the mean of US
    households unless given. A card draws its TDP.
    """

    years: float = 3.0
    residual_share: float = 0.0
    utilisation: float = 0.25
    host_w: float = 150.0
    pue: float = 1.0
    tariff: Money = field(default_factory=lambda: tariff_of("United States").price)

    def __str__(self) -> str:
        return (
            f"Own: written off over {self.years:g} years to {self.residual_share:.0%}, "
            f"used {self.utilisation:.0%} of the time, TDP + {self.host_w:g} W "
            f"at {self.tariff.amount:g} {self.tariff.currency}/kWh, PUE {self.pue:g}."
        )


@dataclass(frozen=True)
class Job:
    """A whole training on one card. ``low``, ``high``: the hours between which nine of ten cases lie.

    ``own`` and ``rent`` are None where no price in the currency of the tariff is known. ``energy_kwh`` is of
    card and host, None where the card's power is not known.
    """

    card: str
    hours: float
    low: float
    high: float
    energy_kwh: float | None
    own: Cost | None
    bought: Offer | None
    rent: Cost | None
    rented: Offer | None

    @property
    def cheapest(self) -> Money | None:
        """The lower of the two costs."""
        known = [cost.total for cost in (self.own, self.rent) if cost]
        return min(known, key=lambda money: money.amount) if known else None

    @property
    def basis(self) -> str:
        """What the cheapest cost is: owning or renting, at whose price."""
        if self.cheapest is None:
            return "no price is known"
        if self.own and self.cheapest == self.own.total:
            return f"own, bought for {self.bought}"
        return f"rented for {self.rented}"

    def to_json(self) -> dict[str, Any]:
        """Plain data; ``cost`` is the cheapest."""
        return {
            "hours": self.hours,
            "hours_low": self.low,
            "hours_high": self.high,
            "energy_kwh": self.energy_kwh,
            "cost": self.cheapest.amount if self.cheapest else None,
            "cost_currency": self.cheapest.currency if self.cheapest else None,
            "cost_basis": self.basis,
            "cost_own": self.own.total.amount if self.own else None,
            "cost_rent": self.rent.total.amount if self.rent else None,
        }


def job_on(
    card: Accelerator, time: StepTime, samples: int, epochs: float, assumed: Assumptions | None = None
) -> Job:
    """The hours, energy and money of ``samples`` x ``epochs`` on ``card`` at the predicted step time."""
    assumed = assumed or Assumptions()
    if not (samples > 0 and epochs > 0):
        raise CourseError(f"A training needs samples and epochs above 0, not {samples} and {epochs}.")
    seconds = time.seconds_for(samples, epochs)
    hours = seconds / 3600
    currency = assumed.tariff.currency
    bought, rented = to_buy(card, currency), to_rent(card, "on demand", currency)
    own = None
    if bought and card.tdp_w is not None:
        own = cost_of(hours, owned=_owned(card.tdp_w, bought.price, assumed))
    power = None if card.tdp_w is None else (card.tdp_w + assumed.host_w) * assumed.pue / 1000
    return Job(
        card.name,
        hours,
        hours * time.low / time.seconds,
        hours * time.high / time.seconds,
        None if power is None else power * hours,
        own,
        bought if own else None,
        cost_of(hours, rented=Rented(rented.price)) if rented else None,
        rented,
    )


def _owned(power_w: float, price: Money, assumed: Assumptions) -> Owned:
    return Owned(
        price,
        StraightLine(assumed.years, assumed.residual_share),
        power_w,
        assumed.tariff,
        assumed.host_w,
        assumed.pue,
        assumed.utilisation,
    )
