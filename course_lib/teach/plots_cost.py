"""Which pictures does lesson 09 draw? An hour's cost in parts, buying against renting, and a card's value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from course_lib.errors import CourseError
from course_lib.plan.cost import Cost, Market, Owned, Rented, StraightLine, break_even_hours
from course_lib.plan.prices import Offer, latest_day
from course_lib.plan.quantities import HOURS_A_YEAR
from course_lib.teach.look import (
    BLUE,
    GREY,
    INK,
    MARGIN_IN,
    ORANGE,
    QUIET,
    SMALL_PT,
    TEXT_PT,
    VERMILLION,
    WIDTH_IN,
    add_axes,
    new_figure,
    width_in,
)
from course_lib.teach.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MONEY_COLOURS: Mapping[str, str] = {"depreciation": BLUE, "energy": ORANGE, "cloud": VERMILLION}
_NAMES = {"depreciation": "depreciation", "energy": "electricity", "cloud": "rent"}
_TITLE_IN, _BAR_IN = 0.42, 0.38


def plot_hour(costs: Mapping[str, Cost], *, title: str = "What an hour of computing costs") -> Picture:
    """Stacked bars, one for each cost by name, divided by its hours: depreciation, electricity and rent.

    Raises:
        CourseError: there is no cost, one is of no hours, or the currencies differ.
    """
    if not costs or any(cost.hours == 0 for cost in costs.values()):
        raise CourseError("There is nothing to draw: give costs of more than 0 hours.")
    if len({cost.total.currency for cost in costs.values()}) > 1:
        raise CourseError("These costs are in different currencies: convert them first.")
    currency = next(iter(costs.values())).total.currency
    left = max(width_in(name, TEXT_PT) for name in costs) + MARGIN_IN + 0.15
    height = _BAR_IN * len(costs)
    figure = new_figure(_TITLE_IN + 0.3 + height + 0.55, title)
    axes = add_axes(figure, left, 0.55, WIDTH_IN - left - 0.75, height)
    most = max(cost.total.amount / cost.hours for cost in costs.values())
    axes.set(xlim=(0, most), ylim=(len(costs), 0), yticks=[], xlabel=f"{currency} for an hour, computed")
    axes.spines["left"].set_visible(False)
    alts = []
    for row, (name, cost) in enumerate(costs.items()):
        parts = {"depreciation": cost.depreciation, "energy": cost.energy, "cloud": cost.cloud}
        start = 0.0
        for part, money in parts.items():
            size = money.amount / cost.hours
            axes.add_patch(
                Rectangle((start, row + 0.14), size, 0.72, fc=MONEY_COLOURS[part], ec="white", lw=0.6)
            )
            start += size
        axes.text(-0.015 * most, row + 0.5, name, ha="right", va="center", fontsize=TEXT_PT, color=INK)
        axes.text(start + 0.012 * most, row + 0.5, f"{start:.3g}", va="center", fontsize=TEXT_PT, color=INK)
        told = ", ".join(
            f"{_NAMES[part]} {money.amount / cost.hours:.3g}" for part, money in parts.items() if money.amount
        )
        alts.append(f"{name}: {start:.3g} {currency} an hour ({told})")
    x = MARGIN_IN
    for part, colour in MONEY_COLOURS.items():
        _square(figure, x, _TITLE_IN, colour, _NAMES[part])
        x += width_in(_NAMES[part], SMALL_PT) + 0.4
    return Picture(figure, f"{title}. Stacked bars. {'; '.join(alts)}.")


def _square(figure: object, x: float, top: float, colour: str, name: str) -> None:
    width, height = figure.get_size_inches()  # type: ignore[attr-defined]
    y = height - top - 0.1
    figure.add_artist(  # type: ignore[attr-defined]
        Rectangle((x / width, (y - 0.055) / height), 0.11 / width, 0.11 / height, fc=colour, ec=QUIET, lw=0.4)
    )
    figure.text(  # type: ignore[attr-defined]
        (x + 0.16) / width, y / height, name, fontsize=SMALL_PT, color=INK, va="center"
    )


def plot_break_even(owned: Owned, rented: Rented, *, title: str = "") -> Picture:
    """What owning and renting have cost after so many hours of use, up to all hours of the card's life.

    A grey line marks the hours of use at the utilisation of ``owned``, a black dot where both cost the
    same.
    """
    years = owned.depreciation.years
    life = years * HOURS_A_YEAR
    at = break_even_hours(owned, rented)
    inside = at is not None and at <= life
    if not title:
        title = f"Owning pays from {at:,.0f} hours of use on" if inside else "Renting is cheaper to the end"
    bought = owned.price.amount * owned.depreciation.lost_share()
    hours = np.array([0.0, life])
    own = bought + hours * owned.energy_rate.value
    rent = hours * rented.rate.value
    figure = new_figure(3.7, title)
    top = 1.05 * max(own[-1], rent[-1], 1e-9)
    left = 0.45 + width_in(f"{top:,.0f}", SMALL_PT)
    axes = add_axes(figure, left, 0.62, WIDTH_IN - left - 1.15, 3.7 - 0.62 - 0.72)
    axes.set(
        xlim=(0, life),
        ylim=(0, top),
        xlabel=f"hours of use in {years:g} years (computed)",
        ylabel=f"{owned.price.currency} spent",
    )
    axes.xaxis.set_major_locator(_ticks(life))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    axes.plot(hours, own, color=BLUE, lw=2.2)
    axes.plot(hours, rent, color=VERMILLION, lw=2.2)
    _label_ends(axes, life, top, {"own": (own[-1], BLUE), "rented": (rent[-1], VERMILLION)})
    used = owned.utilisation * life
    axes.axvline(used, color=GREY, lw=1.6)
    note = f"{owned.utilisation:.0%} of the time"
    axes.text(
        used,
        1.02,
        note,
        transform=axes.get_xaxis_transform(),
        ha="left" if owned.utilisation < 0.15 else "right" if owned.utilisation > 0.85 else "center",
        va="bottom",
        fontsize=SMALL_PT,
        color=QUIET,
    )
    if inside and at is not None:
        axes.plot([at], [rented.rate.value * at], "o", color="black", ms=7)
    told = f"they cross at {at:,.0f} hours" if inside else "they do not cross within its life"
    return Picture(
        figure,
        f"{title}. Two lines over the hours of use: owning begins at {bought:,.0f} and ends at "
        f"{own[-1]:,.0f} {owned.price.currency}, renting begins at 0 and ends at {rent[-1]:,.0f}; {told}. "
        f"Marked: {used:,.0f} hours, {note}.",
    )


def _ticks(life: float) -> MaxNLocator:
    return MaxNLocator(5 if life < 100_000 else 4)


def _label_ends(axes: Axes, life: float, top: float, ends: Mapping[str, tuple[float, str]]) -> None:
    """Names right of the lines' ends, kept apart where the lines end close together."""
    (first, (y1, c1)), (second, (y2, c2)) = sorted(ends.items(), key=lambda item: item[1][0])
    gap = 0.13 * top
    if y2 - y1 < gap:
        middle = min(max((y1 + y2) / 2, gap / 2), top - gap / 2)
        y1, y2 = middle - gap / 2, middle + gap / 2
    for name, y, colour in ((first, y1, c1), (second, y2, c2)):
        axes.annotate(
            f"{name}\n{ends[name][0]:,.0f}",
            (life, y),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
            color=colour,
            weight="bold",
            annotation_clip=False,
        )


def plot_value(
    offers: list[Offer], straight: StraightLine, market: Market, *, title: str = "What a card is still worth"
) -> Picture:
    """Dated prices of one card as dots, with straight-line and market depreciation from the first of them.

    Raises:
        CourseError: fewer than two offers, or offers in several currencies.
    """
    if len(offers) < 2 or len({offer.price.currency for offer in offers}) > 1:
        raise CourseError("A value over time needs two or more prices in one currency.")
    dated = sorted(offers, key=lambda offer: latest_day(offer.day))
    first = latest_day(dated[0].day)
    ages = [(latest_day(offer.day) - first).days / 365.25 for offer in dated]
    prices = [offer.price.amount for offer in dated]
    until = max(*ages, straight.years, market.years) * 1.08
    figure = new_figure(3.4, title)
    axes = add_axes(figure, 0.8, 0.62, WIDTH_IN - 0.8 - 1.3, 3.4 - 0.62 - 0.6)
    axes.set(
        xlim=(0, until),
        ylim=(0, 1.12 * max(prices)),
        xlabel="years after its launch",
        ylabel=dated[0].price.currency,
    )
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    time = np.linspace(0, until, 60)
    lost = straight.lost_share() / straight.years
    line = prices[0] * np.maximum(1 - lost * time, 1 - straight.lost_share())
    curve = prices[0] * (1 - market.yearly_loss) ** time
    axes.plot(time, line, color=GREY, lw=2, ls="--")
    axes.plot(time, curve, color=BLUE, lw=2, ls="--")
    axes.plot(ages, prices, "o", color=INK, ms=7, zorder=3)
    for age, offer in zip(ages, dated, strict=True):
        early = age < 0.75 * until  # above the curve is room, except at the end
        axes.annotate(
            f"{offer.price.amount:,.0f} ({offer.kind}, {offer.day})",
            (age, offer.price.amount),
            xytext=(8, 6) if early else (-4, -15),
            ha="left" if early else "right",
            textcoords="offset points",
            fontsize=SMALL_PT,
            color=INK,
            bbox={"fc": "white", "ec": "none", "pad": 0.3, "alpha": 0.85},
        )
    for name, y, colour in (
        ("straight line", line[-1], QUIET),
        (f"market, -{market.yearly_loss:.0%} a year", curve[-1], BLUE),
    ):
        axes.annotate(
            name.replace(", ", ",\n").replace("straight ", "straight\n"),
            (until, y),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
            color=colour,
            annotation_clip=False,
        )
    told = ", ".join(f"{price:,.0f} after {age:.1f} years" for age, price in zip(ages, prices, strict=True))
    return Picture(
        figure,
        f"{title}. Prices as dots: {told}. A straight line falls to {line[-1]:,.0f}, a curve that loses "
        f"{market.yearly_loss:.0%} a year to {curve[-1]:,.0f} {dated[0].price.currency}.",
    )
