"""What does a job cost, on a card of one's own or a rented one? ``course cost``, with every unit said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from course_lib.cli.output import fitted, json_option, print_json
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.plan.cost import Market, StraightLine


@click.command(epilog="Example: course cost --price 10000 --years 3 --power-w 350 --tariff 0.6 --hours 100")
@click.option("--hours", type=float, required=True, help="Hours of computing.")
@click.option("--price", type=float, default=0.0, help="What the card, or the machine, cost.")
@click.option(
    "--years", type=float, default=3.0, show_default=True, help="Years until it is written off or sold."
)
@click.option("--residual", type=float, default=0.0, help="Share of the price that is left then, 0 to 1.")
@click.option(
    "--yearly-loss",
    type=float,
    help="Share of its value lost each year (market price), in place of --residual.",
)
@click.option(
    "--utilisation",
    type=float,
    default=1.0,
    show_default=True,
    help="Share of its hours in which it computes, 0 to 1.",
)
@click.option(
    "--power-w", type=float, default=0.0, help="Watts that the card draws (its TDP, if not measured)."
)
@click.option("--host-w", type=float, default=0.0, help="Watts that the rest of the machine draws.")
@click.option("--pue", type=float, default=1.0, show_default=True, help="Site power over computer power.")
@click.option("--tariff", type=float, default=0.0, help="Price of a kilowatt-hour.")
@click.option("--cloud", type=float, default=0.0, help="Fee of one rented instance for an hour.")
@click.option("--instances", type=int, default=1, show_default=True, help="Rented instances.")
@click.option(
    "--lost-work", type=float, default=0.0, help="Share of work done twice on spot instances, such as 0.1."
)
@click.option(
    "--carbon", metavar="PLACE", help="Also tell the CO2e of the electricity there, such as 'China'."
)
@click.option("--currency", default="CNY", show_default=True, help="Three letters, for all amounts.")
@json_option
def cost(  # noqa: PLR0917 - click gives them by name
    hours: float,
    price: float,
    years: float,
    residual: float,
    yearly_loss: float | None,
    utilisation: float,
    power_w: float,
    host_w: float,
    pue: float,
    tariff: float,
    cloud: float,
    instances: int,
    lost_work: float,
    carbon: str | None,
    currency: str,
    as_json: bool,
) -> None:
    """Say what HOURS of computing cost: depreciation, electricity, rent, and all together.

    Give --price and --power-w for a card of your own, --cloud for a rented one, or both. With both, it also
    says at how many hours of use they cost the same. Amounts of money are at most a million million.
    """
    from course_lib.bounds import number_in
    from course_lib.plan.cost import (
        MOST_MONEY,
        Market,
        Owned,
        Rented,
        StraightLine,
        break_even_hours,
        cost_of,
    )
    from course_lib.plan.electricity import carbon_intensity
    from course_lib.units import Money

    if yearly_loss is not None and residual:
        raise CourseError("Say either --residual or --yearly-loss: they are two ways to say what is left.")
    depreciation: StraightLine | Market = (
        StraightLine(years, residual) if yearly_loss is None else Market(years, yearly_loss)
    )
    for amount, option in ((price, "--price"), (tariff, "--tariff"), (cloud, "--cloud")):
        number_in(amount, option, 0, MOST_MONEY)  # by its option's name, and before Money refuses infinity
    currency = currency.upper()
    owned = Owned(
        Money(price, currency), depreciation, power_w, Money(tariff, currency), host_w, pue, utilisation
    )
    rented = Rented(Money(cloud, currency), instances, lost_work)
    intensity = carbon_intensity(carbon) if carbon is not None else None
    answer = cost_of(
        hours, owned=owned, rented=rented, carbon_g_per_kwh=intensity.grams_per_kwh if intensity else None
    )
    if not any((price, power_w, host_w, cloud)):
        raise CourseError(
            "There is nothing to cost: give --price and --power-w for a card of your own, or --cloud for a "
            "rented one, or both."
        )
    at = break_even_hours(owned, rented) if price and cloud else None
    if as_json:
        print_json({**answer.to_json(), "break_even_hours": at})
        return
    lines = [str(answer)]
    if intensity:
        lines.append(f"  at {intensity}")
    if price and cloud:
        own = answer.depreciation + answer.energy
        lines.append(f"  On your own card {own}, rented {answer.cloud}; the total adds both.")
        lines.append("  " + _break_even(at, years))
    click.echo(fitted("\n".join(lines)))


def _break_even(at: float | None, years: float) -> str:
    if at is None:
        return "Renting stays cheaper: the fee is not above your own electricity."
    life = years * 8760
    if at > life:
        return (
            f"Renting stays cheaper: owning pays after {at:,.0f} hours of use, "
            f"and {years:g} years have {life:,.0f}."
        )
    return (
        f"Owning is cheaper than renting from {at:,.0f} hours of use on ({at / life:.0%} of {years:g} years)."
    )
