"""Which picture answers which card to take? Each card by its hours and its money, and the front of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import LogLocator

from course_lib.errors import CourseError
from course_lib.teach.look import (
    GREEN,
    GREY,
    INK,
    MARGIN_IN,
    QUIET,
    SMALL_PT,
    WIDTH_IN,
    add_axes,
    new_figure,
    width_in,
)
from course_lib.teach.picture import Picture
from course_lib.units import Money, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.plan.advise import Advice

_FAR = 5.0  # so many times the dearest, or the cheapest

Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in pixels."""


def plot_front(advice: Advice, *, budget: Money | None = None, title: str = "") -> Picture:
    """Hours against money for each card, both predicted; the front that no card beats is joined by a line.

    Raises:
        CourseError: no card has both hours and a price.
    """
    points = [
        (choice, choice.job.hours, choice.job.cheapest.amount)
        for choice in advice.possible
        if choice.job and choice.job.cheapest
    ]
    if not points:
        raise CourseError("No card can do this job at a price that is known.")
    title = title or f"{advice.model}, {advice.samples:,} samples x {advice.epochs:g}: hours and money"
    figure = new_figure(4.1, title)
    hours, money = [h for _, h, _ in points], [m for _, _, m in points]
    # A budget far from all points is told in words: an axis that reaches it would press them together.
    shown = budget is not None and min(money) / _FAR <= budget.amount <= max(money) * _FAR
    drawn = [*money, budget.amount] if budget is not None and shown else money
    low, high = min(drawn), max(drawn)
    left = 0.45 + max(width_in(f"{high:,.0f}0", SMALL_PT), width_in(f"{low:,.1g}", SMALL_PT))
    axes = add_axes(figure, left, 0.78, WIDTH_IN - left - 0.35, 4.1 - 0.78 - 0.55)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(min(hours) / 1.6, max(hours) * 1.9),
        ylim=(low / 1.8, high * 1.6),
        xlabel="hours (predicted)",
        ylabel=f"cheapest way, {advice.assumed.tariff.currency} (predicted)",
    )
    for axis, ends in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if ends[1] / ends[0] < 300 else (1,)))
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axis.set_minor_formatter(lambda value, _: "")
    front = sorted((h, m) for choice, h, m in points if choice.on_front)
    axes.plot([h for h, _ in front], [m for _, m in front], color=GREEN, lw=1.6, ls="--", zorder=1)
    taken: list[Box] = []
    if budget is not None:
        taken = _budget(axes, budget.amount, shown)
    for choice, h, m in points:
        rented = (
            choice.job is not None
            and choice.job.rent is not None
            and choice.job.cheapest == choice.job.rent.total
        )
        axes.plot(
            [h], [m], "o" if rented else "s", ms=8 if choice.on_front else 5.5,
            color=GREEN if choice.on_front else GREY, zorder=2,
        )  # fmt: skip
    _labels(
        axes,
        [(choice.card.name, h, m) for choice, h, m in points if choice.on_front],
        [(h, m) for _, h, m in points],
        taken,
    )
    figure.text(
        MARGIN_IN / WIDTH_IN, 0.012, "round: rented; square: own. Green: no card is both faster and cheaper",
        fontsize=SMALL_PT, color=QUIET, va="bottom",
    )  # fmt: skip
    told = "; ".join(
        f"{choice.card.name} {format_seconds(3600 * h)}, {m:,.2f}"
        + (", on the front" if choice.on_front else "")
        for choice, h, m in points
    )
    return Picture(figure, f"{title}. Points: {told}.")


def _budget(axes: Axes, amount: float, shown: bool) -> list[Box]:
    """Draw the budget as a line, or in words beyond the axis; returns the room that it takes, in pixels."""
    edges, a_point = axes.get_window_extent(), axes.figure.dpi / 72
    name = f"budget {amount:,.0f}"
    taken = []
    if shown:
        axes.axhline(amount, color="black", lw=1.4)
        line = float(axes.transData.transform((1.0, amount))[1])
        taken.append((edges.x0, line - 1, edges.x1, line + 1))
        at, lift = (line - edges.y0) / edges.height, 2.0
    elif amount > axes.get_ylim()[1]:
        name, at, lift = f"{name}, far above", 1.0, -12.0
    else:
        name, at, lift = f"{name}, far below", 0.0, 4.0
    axes.annotate(
        name, (1.0, at), xycoords="axes fraction", xytext=(0, lift), textcoords="offset points", ha="right",
        fontsize=SMALL_PT, color=INK,
    )  # fmt: skip
    low = edges.y0 + at * edges.height + lift * a_point
    left = edges.x1 - width_in(name, SMALL_PT) * axes.figure.dpi
    return [*taken, (left, low, edges.x1, low + 10 * a_point)]


def _labels(
    axes: Axes,
    points: Sequence[tuple[str, float, float]],
    dots: Sequence[tuple[float, float]],
    taken: Sequence[Box],
) -> None:
    """Names beside points, moved until none covers a dot, another name or what is taken, or leaves the
    axes.
    """
    a_pixel = 72 / axes.figure.dpi  # in points
    edges = axes.get_window_extent()
    boxes = [*taken, *((px - 6, py - 6, px + 6, py + 6) for px, py in map(axes.transData.transform, dots))]
    places = [
        (side, dy) for dy in (5, -19, 20, -34, 35, -49, 50, 65, 80, 95, 110) for side in ("right", "left")
    ]
    for name, x, y in sorted(points, key=lambda point: point[1]):
        px, py = axes.transData.transform((x, y))
        width, height = width_in(name, SMALL_PT) / a_pixel * 72, 14.0
        for side, dy in places:
            left = 9.0 if side == "right" else -9 - width
            box = (px + left, py + dy, px + left + width, py + dy + height)
            inside = edges.y0 + 4 < box[1] and box[3] < edges.y1 and edges.x0 < box[0] and box[2] < edges.x1
            if inside and not any(
                a < box[2] and c > box[0] and b < box[3] and d > box[1] for a, b, c, d in boxes
            ):
                break
        boxes.append(box)
        axes.annotate(
            name, (x, y), xytext=(left * a_pixel, dy * a_pixel), textcoords="offset points",
            fontsize=SMALL_PT, color=INK, annotation_clip=False,
            bbox={"fc": "white", "ec": "none", "pad": 0.3, "alpha": 0.8},
            arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.7} if dy not in (5, -19) else None,
        )  # fmt: skip
