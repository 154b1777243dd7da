"""Lab of lesson 09: from how many hours of use on is a card of one's own cheaper than a rented one?

`break_even` answers for one setting, in money and in hours. The lab puts a slider over each term of the
formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from course_lib.bounds import number_in
from course_lib.plan.cost import (
    Cost,
    Owned,
    Rented,
    StraightLine,
    break_even_hours,
    break_even_share,
    cost_of,
)
from course_lib.teach.labs.frame import Lab, choices, whole_numbers
from course_lib.teach.plots_cost import plot_break_even
from course_lib.units import Money


@dataclass(frozen=True)
class BreakEven:
    """Buying against renting. ``own`` and ``rent``: what the job costs on either.

    ``at_hours``: hours of use from which on owning is cheaper; ``at_share``: the same as a share of the
    card's life. None where that is never.
    """

    owned: Owned
    rented: Rented
    own: Cost
    rent: Cost
    at_hours: float | None
    at_share: float | None

    @property
    def cheaper(self) -> str:
        """``own`` or ``rent``, for this job at this utilisation."""
        return "own" if self.own.total.amount <= self.rent.total.amount else "rent"

    def __str__(self) -> str:
        when = (
            "renting is cheaper to the end of its life"
            if self.at_share is None
            else f"owning pays from {self.at_hours:,.0f} hours of use on, {self.at_share:.0%} of its life"
        )
        job = "1 hour" if self.own.hours == 1 else f"{self.own.hours:,.10g} hours"
        return (
            f"{job} at {self.owned.utilisation:.0%} use: {self.own.total} on your own "
            f"card, {self.rent.total} on a rented one; {when}"
        )

    def _repr_html_(self) -> str:
        return f"{plot_break_even(self.owned, self.rented)._repr_html_()}<p>{escape(str(self))}</p>"


def break_even(  # noqa: PLR0917 - a slider each, in the order of the formula
    price: float = 10_000,
    years: int = 3,
    utilisation_percent: int = 25,
    tariff: float = 0.6,
    rent: float = 0.76,
    hours: int = 100,
    *,
    power_w: float = 350,
    host_w: float = 0,
    residual_percent: float = 0,
    currency: str = "CNY",
) -> BreakEven:
    """Compare a card of one's own with a rented one.

    Args:
        price: of the card (or the whole machine).
        years: until it is written off.
        utilisation_percent: of all hours, those in which it computes, 0.01 to 100.
        tariff: for a kilowatt-hour.
        rent: for an hour.
        hours: of the job.
        power_w: what the card draws; 350 W is the TDP of an RTX 3090.
        host_w: what the rest of the machine draws.
        residual_percent: of the price, what is left after the years.
        currency: of all amounts.

    Raises:
        CourseError: a value that makes no sense, such as no utilisation.
    """
    number_in(utilisation_percent, "The utilisation, in percent,", 0.01, 100)
    number_in(residual_percent, "What is left of the price, in percent,", 0, 100)
    owned = Owned(
        Money(price, currency),
        StraightLine(years, residual_percent / 100),
        power_w,
        Money(tariff, currency),
        host_w,
        utilisation=utilisation_percent / 100,
    )
    rented = Rented(Money(rent, currency))
    return BreakEven(
        owned,
        rented,
        cost_of(hours, owned=owned),
        cost_of(hours, rented=rented),
        break_even_hours(owned, rented),
        break_even_share(owned, rented),
    )


def lab() -> Lab:
    """A slider for each term: price, years, utilisation, tariff, rent and hours."""
    return Lab(
        break_even,
        {
            "price": choices(
                "price, CNY", [1000, 2000, 3500, 5000, 7000, 10_000, 15_000, 25_000, 50_000, 100_000], 10_000
            ),
            "years": whole_numbers("years", 1, 6, 3),
            "utilisation_percent": whole_numbers("utilisation, %", 1, 100, 25),
            "tariff": choices("tariff, CNY/kWh", [0.1, 0.3, 0.49, 0.6, 0.8, 1.1, 1.5, 2.2, 3.0], 0.6),
            "rent": choices("rent, CNY/h", [0.1, 0.2, 0.4, 0.76, 1.2, 1.7, 2.5, 4, 8, 16, 30], 0.76),
            "hours": choices("job, hours", [1, 3, 10, 30, 100, 300, 1000, 3000], 100),
        },
    )
