"""Which pictures does lesson 01 draw? A roofline, prices, hours by images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from course_lib.errors import CourseError
from course_lib.teach.look import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    QUIET,
    SKY_BLUE,
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
    from course_lib.teach.labs.hardware import PriceTable

_TITLE_IN = 0.42


@dataclass(frozen=True)
class Operation:
    """One operation for the roofline: what it computes and moves, and the seconds that it took."""

    name: str
    flops: float
    nbytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations for each byte that is moved."""
        return self.flops / self.nbytes


def plot_roofline(
    peak_flops: float,
    bandwidth: float,
    operations: Sequence[Operation],
    *,
    title: str = "The roof of this machine",
) -> Picture:
    """The roof (predicted, dashed) over the arithmetic intensity, and what was reached (dots, measured).

    Args:
        peak_flops: operations a second.
        bandwidth: bytes a second.
        operations: at least one.
        title: of the picture.

    Raises:
        CourseError: nothing to draw.
    """
    if not operations or peak_flops <= 0 or bandwidth <= 0:
        raise CourseError("A roofline needs a peak, a bandwidth and at least one operation.")
    figure = new_figure(3.7, title)
    axes = add_axes(figure, 0.85, 0.62, WIDTH_IN - 0.85 - 0.35, 3.7 - 0.62 - 0.55)
    xs = [op.intensity for op in operations]
    reached = [op.flops / op.seconds / 1e9 for op in operations]
    low = min(*xs, peak_flops / bandwidth) / 4
    high = max(*xs, peak_flops / bandwidth) * 4
    line = np.geomspace(low, high, 100)
    roof = np.minimum(peak_flops, line * bandwidth) / 1e9
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(min(*reached, roof.min()) / 2.5, peak_flops / 1e9 * 3),
        xlabel="operations for each byte moved (FLOP/byte)",
        ylabel="GFLOP a second",
    )
    axes.plot(line, roof, color=INK, lw=2, ls="--")
    ridge = peak_flops / bandwidth
    axes.axvline(ridge, color=GREY, lw=1, ls=":")
    axes.text(
        ridge * 0.9, axes.get_ylim()[0] * 1.2, "waits for memory", ha="right", fontsize=SMALL_PT, color=QUIET
    )
    axes.text(
        ridge * 1.1,
        axes.get_ylim()[0] * 1.2,
        "waits for arithmetic",
        ha="left",
        fontsize=SMALL_PT,
        color=QUIET,
    )
    for op, x, y in zip(operations, xs, reached, strict=True):
        top = min(peak_flops, x * bandwidth) / 1e9
        axes.plot([x, x], [y, top], color=GREY, lw=1, ls=":")
        axes.plot([x], [y], "o", color=BLUE, ms=8, zorder=3)
        above = y > top * 1.05  # the name goes to the side of the dot where the roof is not
        left = above or x > high / 16
        axes.annotate(
            op.name,
            (x, y),
            xytext=(-9 if left else 9, 3 if above else -3),
            textcoords="offset points",
            ha="right" if left else "left",
            va="bottom" if above else "top",
            fontsize=SMALL_PT,
            color=INK,
        )
    told = "; ".join(
        f"{op.name}: {op.intensity:.3g} FLOP a byte, {y:.3g} GFLOP/s of "
        f"{min(peak_flops, op.intensity * bandwidth) / 1e9:.3g}"
        for op, y in zip(operations, reached, strict=True)
    )
    return Picture(
        figure,
        f"{title}. A line that rises with {bandwidth / 1e9:.3g} GB/s until it is flat at "
        f"{peak_flops / 1e9:.4g} GFLOP/s, predicted; below it dots, measured. {told}.",
    )


def plot_prices(
    table: PriceTable, *, title: str = "2023: the best buy depends on what you pay for"
) -> Picture:
    """Bars in two panels, by card: money for each image a second, and images for each joule."""
    rows = sorted(table.rows, key=lambda row: row.price_per_rate)
    bar = 0.3
    height = bar * len(rows)
    left = max(width_in(row.card.name, TEXT_PT) for row in rows) + 0.3
    figure = new_figure(_TITLE_IN + 0.3 + height + 0.6, title)
    gap = 0.65
    room = (WIDTH_IN - left - gap - 0.55) / 2
    panels = (
        ("USD for each image a second", [row.price_per_rate for row in rows], BLUE, "least is best"),
        ("images for each joule, at TDP", [row.images_per_joule for row in rows], ORANGE, "most is best"),
    )
    for number, (label, values, colour, head) in enumerate(panels):
        axes = add_axes(figure, left + number * (room + gap), 0.58, room, height)
        axes.set(xlim=(0, max(values)), ylim=(len(rows), 0), yticks=[], xlabel=label)
        axes.xaxis.label.set_fontsize(SMALL_PT)
        axes.spines["left"].set_visible(False)
        axes.text(0, -0.25, head, fontsize=SMALL_PT, color=QUIET, va="bottom")
        best = min(values) if number == 0 else max(values)
        for row, value in enumerate(values):
            axes.add_patch(
                Rectangle((0, row + 0.14), value, 0.72, fc=colour, alpha=1 if value == best else 0.55)
            )
            axes.text(
                value + 0.02 * max(values), row + 0.5, f"{value:.3g}", va="center",
                fontsize=SMALL_PT, color=INK,
                weight="bold" if value == best else "normal",
            )  # fmt: skip
            if number == 0:
                axes.text(
                    -0.03 * max(values), row + 0.5, rows[row].card.name, ha="right", va="center",
                    fontsize=TEXT_PT, color=INK,
                )  # fmt: skip
    told = "; ".join(
        f"{row.card.name}: {row.price_per_rate:.2f} USD, {row.images_per_joule:.1f} images" for row in rows
    )
    return Picture(figure, f"{title}. Bars for each image a second and each joule. {told}.")


def plot_hours_by_images(
    seconds_per_image: Mapping[str, float], epochs: int, borders: Sequence[float], *, title: str
) -> Picture:
    """Hours of a training over the number of images, one line a card, both axes logarithmic (predicted).

    ``borders``: numbers of images to mark, where the guide changes its card.
    """
    if not seconds_per_image:
        raise CourseError("There is no card to draw.")
    figure = new_figure(3.7, title)
    axes = add_axes(figure, 0.85, 0.62, WIDTH_IN - 0.85 - 1.35, 3.7 - 0.62 - 0.75)
    images = np.array([1e4, 1e7])
    lines = {name: images * each * epochs / 3600 for name, each in seconds_per_image.items()}
    top = max(float(line[-1]) for line in lines.values())
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(images[0], images[-1]),
        ylim=(min(float(line[0]) for line in lines.values()) / 1.5, top * 1.5),
        xlabel="images in the data set",
        ylabel=f"hours for {epochs} epochs (predicted)",
    )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_major_formatter(
        lambda value, _: f"{value:,.0f}" if value < 1e6 else f"{value / 1e6:.0f} M"
    )
    for border in borders:
        axes.axvline(border, color=GREY, lw=1.2, ls=":")
        axes.text(
            border, 1.02, f"{border:,.0f}", transform=axes.get_xaxis_transform(), ha="center", va="bottom",
            fontsize=SMALL_PT, color=QUIET,
        )  # fmt: skip
    colours = (BLUE, VERMILLION, GREEN, ORANGE, SKY_BLUE, INK)
    ends = sorted(((float(line[-1]), name) for name, line in lines.items()), reverse=True)
    at = [np.log10(end) for end, _ in ends]
    span = np.log10(axes.get_ylim()[1] / axes.get_ylim()[0])
    for number in range(1, len(at)):
        at[number] = min(at[number], at[number - 1] - 0.06 * span)
    for (_, name), y, colour in zip(ends, at, colours * 3, strict=False):
        axes.plot(images, lines[name], color=colour, lw=2, ls="--")
        axes.annotate(
            name, (images[-1], 10**y), xytext=(5, 0), textcoords="offset points", va="center",
            fontsize=SMALL_PT, color=colour, weight="bold", annotation_clip=False,
        )  # fmt: skip
    told = "; ".join(f"{name} {end:,.0f} hours for 10 million" for end, name in ends)
    return Picture(figure, f"{title}. Parallel straight lines, one a card: {told}.")
