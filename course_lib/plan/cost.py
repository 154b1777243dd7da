"""What does a job of so many hours cost, on a card of one's own or on a rented one, in money and in CO2e?

    owned:   (price - what is left of it) / hours of use  +  power x tariff    for each hour
    rented:  fee x instances                                                   for each hour

Both are carried by Quantity, so no term can be added that is not money. The conventions (straight-line
depreciation, TDP as the stand-in for power, PUE, lost work of spot machines) are those of cost studies of
data centres; each field below says its own.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.plan.quantities import (
    HOURS_A_YEAR,
    Quantity,
    grams,
    hours,
    kilowatt_hours,
    money,
    watts,
    years,
)
from course_lib.units import Money

MOST_MONEY = 1e12
_MOST_HOURS = 1e9
_SHORTEST_H = 0.001
_MOST_WATTS = 1e9
_MOST_INSTANCES = 1_000_000
_YEARS = (0.01, 100.0)
_LEAST_UTILISATION = 1e-4  # an hour in a year
_MOST_PUE = 10.0
_MOST_LOST_WORK = 100.0
_MOST_CARBON = 10_000.0  # g/kWh; coal has about 1,000


@dataclass(frozen=True)
class StraightLine:
    """A card loses the same amount each year, down to ``residual_share`` of its price after ``years``."""

    years: float
    residual_share: float = 0.0

    def __post_init__(self) -> None:
        number_in(self.years, "The years over which a card is written off", *_YEARS)
        number_in(self.residual_share, "The share of the price that is left", 0, 1)

    def lost_share(self) -> float:
        """The share of the price that is gone after all the years."""
        return 1 - self.residual_share


@dataclass(frozen=True)
class Market:
    """A card loses the same *share* of what it is still worth each year: what it fetches when it is sold.

    ``course_lib.plan.prices.yearly_loss`` gives the share from dated offers: 0.22 for an RTX 3090.
    """

    years: float
    yearly_loss: float

    def __post_init__(self) -> None:
        number_in(self.years, "The years until a card is sold", *_YEARS)
        number_in(self.yearly_loss, "The share of its value that a card loses in a year", 0, 1)

    def lost_share(self) -> float:
        """The share of the price that is gone when the card is sold."""
        return float(1 - (1 - self.yearly_loss) ** self.years)


@dataclass(frozen=True)
class Owned:
    """A card (or a whole machine) of one's own.

    ``power_w``: the card's draw in watts; its TDP stands in for a measurement. ``host_w``: what the rest of
    the machine draws. ``pue``: site power over computer power (a home: 1; the mean of data centres: 1.58).
    ``utilisation``: the share of all hours of its life in which it computes. The hours in which it does not
    are paid by those in which it does.
    """

    price: Money
    depreciation: StraightLine | Market
    power_w: float
    tariff: Money  # for a kilowatt-hour
    host_w: float = 0.0
    pue: float = 1.0
    utilisation: float = 1.0

    def __post_init__(self) -> None:
        number_in(self.price.amount, "The price", 0, MOST_MONEY)
        number_in(self.tariff.amount, "The tariff", 0, MOST_MONEY)
        number_in(self.power_w, "The power, in watts,", 0, _MOST_WATTS)
        number_in(self.host_w, "The power of the host, in watts,", 0, _MOST_WATTS)
        number_in(self.pue, "The PUE, site power over computer power,", 1, _MOST_PUE)
        number_in(self.utilisation, "The utilisation, a share of all hours,", _LEAST_UTILISATION, 1)
        if self.price.currency != self.tariff.currency:
            raise CourseError(
                f"The price is in {self.price.currency} and the tariff in {self.tariff.currency}: "
                "convert one of them."
            )

    @property
    def power(self) -> Quantity:
        """What the meter sees while it computes, in kW."""
        return watts(self.power_w + self.host_w) * self.pue

    @property
    def depreciation_rate(self) -> Quantity:
        """Money for each hour of use."""
        lost = money(self.price) * self.depreciation.lost_share()
        return lost / (years(self.depreciation.years) * self.utilisation)

    @property
    def energy_rate(self) -> Quantity:
        """Money for the electricity of each hour of use."""
        return self.power * (money(self.tariff) / kilowatt_hours(1))


@dataclass(frozen=True)
class Rented:
    """Rented machines. ``fee``: for one instance and hour.

    ``lost_work``: the share of hours that is done twice because a spot machine was taken away; see
    :func:`lost_work`.
    """

    fee: Money
    instances: int = 1
    lost_work: float = 0.0

    def __post_init__(self) -> None:
        number_in(self.fee.amount, "The fee of a rented machine", 0, MOST_MONEY)
        number_in(self.lost_work, "The share of lost work", 0, _MOST_LOST_WORK)
        whole_in(self.instances, "The number of instances", 0, _MOST_INSTANCES)

    @property
    def rate(self) -> Quantity:
        """Money for each hour of useful work."""
        return money(self.fee) / hours(1) * int(self.instances) * (1 + self.lost_work)


@dataclass(frozen=True)
class Cost:
    """What a job costs. ``energy_kwh`` and ``carbon_g`` are of the owned machine; None where not asked."""

    hours: float
    depreciation: Money
    energy: Money
    cloud: Money
    energy_kwh: float
    carbon_g: float | None = None

    @property
    def total(self) -> Money:
        """All three together."""
        return self.depreciation + self.energy + self.cloud

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, in the currency that ``currency`` names."""
        return {
            "hours": self.hours,
            "depreciation": self.depreciation.amount,
            "energy": self.energy.amount,
            "cloud": self.cloud.amount,
            "total": self.total.amount,
            "per_hour": self.total.amount / self.hours if self.hours else None,
            "currency": self.total.currency,
            "energy_kwh": self.energy_kwh,
            "carbon_kg": None if self.carbon_g is None else self.carbon_g / 1000,
        }

    @property
    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("depreciation", str(self.depreciation)),
            ("energy", f"{self.energy} ({self.energy_kwh:,.3g} kWh)"),
            ("cloud", str(self.cloud)),
            ("total", str(self.total)),
        ]
        if self.carbon_g is not None:
            rows.append(("carbon", f"{self.carbon_g / 1000:,.3g} kg CO2e"))
        return rows

    def __str__(self) -> str:
        lines = [f"{self.total} for {self.hours:,g} h"]
        return "\n".join(lines + [f"  {name:<14}{amount:>}" for name, amount in self._rows])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name)}</td><td>{html.escape(amount)}</td></tr>"
            for name, amount in self._rows
        )
        return f"<b>{html.escape(str(self.total))}</b> for {self.hours:,g} h<table>{rows}</table>"


def cost_of(
    job_hours: float,
    *,
    owned: Owned | None = None,
    rented: Rented | None = None,
    carbon_g_per_kwh: float | None = None,
) -> Cost:
    """What ``job_hours`` hours of computing cost on what is owned, rented, or both at the same time.

    Raises CourseError for hours outside 0 to 1e9, for neither owned nor rented, and for two currencies.
    """
    time = hours(number_in(job_hours, "The number of hours", 0, _MOST_HOURS))
    if owned is None and rented is None:
        raise CourseError(
            "Nothing is owned and nothing rented, so nothing can be costed: give a price or a fee."
        )
    currency = owned.price.currency if owned else rented.fee.currency  # type: ignore[union-attr]
    nothing = money(0, currency)
    depreciation = owned.depreciation_rate * time if owned else nothing
    energy = owned.energy_rate * time if owned else nothing
    cloud = rented.rate * time if rented else nothing
    used = owned.power * time if owned else kilowatt_hours(0)
    _ = depreciation + energy + cloud  # two currencies are refused here, with both named
    carbon = None
    if carbon_g_per_kwh is not None:
        grams_of_one = number_in(carbon_g_per_kwh, "The carbon intensity, in g/kWh,", 0, _MOST_CARBON)
        carbon = (grams(grams_of_one) / kilowatt_hours(1) * used).value
    return Cost(time.value, depreciation.amount(), energy.amount(), cloud.amount(), used.value, carbon)


def break_even_hours(owned: Owned, rented: Rented) -> float | None:
    """Hours of use at which a card of one's own has cost as much as renting it; None if that never happens.

    ``price x lost share / (fee - own electricity)``: the hours that the fee would have to be paid for.
    Beyond ``years x 8760`` hours the card's life is over, so such an answer means never: see
    :func:`break_even_share`.
    """
    saved = rented.rate - owned.energy_rate
    if saved.value <= 0:
        return None
    lost = money(owned.price) * owned.depreciation.lost_share()
    return (lost / saved).value


def break_even_share(owned: Owned, rented: Rented) -> float | None:
    """The utilisation at which both cost the same; above it the own card is cheaper.

    None where that does not happen within the card's life.
    """
    at = break_even_hours(owned, rented)
    share = None if at is None else at / (owned.depreciation.years * HOURS_A_YEAR)
    return share if share is not None and share <= 1 else None


def lost_work(checkpoint_every_h: float, interrupted_every_h: float, restart_h: float = 0.1) -> float:
    """The share of hours that is done twice on a machine that is taken away now and then.

    Each interruption costs the restart and, in the mean, half of what lies between two checkpoints.
    """
    number_in(checkpoint_every_h, "The hours between two checkpoints", 0, _MOST_HOURS)
    number_in(restart_h, "The hours of a restart", 0, _MOST_HOURS)
    number_in(interrupted_every_h, "The hours between two interruptions", _SHORTEST_H, _MOST_HOURS)
    return (checkpoint_every_h / 2 + restart_h) / interrupted_every_h


def best_checkpoint_interval(save_h: float, interrupted_every_h: float) -> float:
    """Hours between two checkpoints that lose the least work: sqrt(2 x saving x time between interruptions).

    J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
    """
    number_in(save_h, "The hours that saving takes", 0, _MOST_HOURS)
    number_in(interrupted_every_h, "The hours between two interruptions", _SHORTEST_H, _MOST_HOURS)
    return math.sqrt(2 * save_h * interrupted_every_h)
