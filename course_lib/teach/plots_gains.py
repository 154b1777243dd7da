"""What is something worth? Pictures of gains over a plain way, and of results from several seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from matplotlib.ticker import FixedLocator, FuncFormatter

from course_lib.errors import CourseError
from course_lib.teach.look import (
    GREEN,
    GREY,
    INK,
    TEXT_PT,
    VERMILLION,
    WIDTH_IN,
    add_axes,
    legend,
    new_figure,
)
from course_lib.teach.picture import Picture
from course_lib.teach.plots_precision import FORMAT_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.train.number_formats.format_times import FormatTimes

_TITLE_IN = 0.42


@dataclass(frozen=True)
class Gain:
    """How many times as fast as the format it is compared with, with its spread where there is one."""

    times: float
    low: float | None = None
    high: float | None = None
    how: Literal["measured", "predicted", "published"] = "measured"


def gains_of(times: FormatTimes, what: str) -> dict[str, Gain]:
    """Each format's gain over fp32, by a name with `what` in it; an estimate where a format was not run."""
    plain = times.times["fp32"].seconds
    return {
        f"{name}, {what}": Gain(one.speedup, one.low, one.high)
        if one.speedup
        else Gain(plain / one.seconds, how="predicted")
        for name, one in times.times.items()
        if name != "fp32"
    }


def plot_gains(gains: Mapping[str, Gain], *, title: str, axis: str = "times as fast as fp32") -> Picture:
    """A point for each gain on an axis of factors, with its spread as a line; filled where measured here.

    Raises CourseError when there is nothing to draw, or a gain is not positive.
    """
    if not gains:
        raise CourseError("There is no gain to draw.")
    if any(not gain.times > 0 for gain in gains.values()):
        raise CourseError("A gain is a factor above zero.")
    row, left = 0.34, 2.5
    height = row * len(gains)
    figure = new_figure(_TITLE_IN + 0.2 + height + 0.6, title)
    axes = add_axes(figure, left, 0.6, WIDTH_IN - left - 0.75, height)
    ends = [x for g in gains.values() for x in (g.times, g.low or g.times, g.high or g.times)]
    low, high = math.floor(math.log2(min(*ends, 1))) - 0.2, math.ceil(math.log2(max(*ends, 1))) + 0.2
    axes.set(xlim=(low, high), ylim=(len(gains), 0), yticks=[], xlabel=axis)
    ticks = range(math.ceil(low), math.floor(high) + 1, max(1, math.ceil((high - low) / 7)))
    axes.xaxis.set_major_locator(FixedLocator(sorted({0, *ticks})))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{2.0**x:g}" if x >= 0 else f"1/{2.0**-x:g}"))
    axes.axvline(0, color="black", lw=1.4)
    for number, (name, gain) in enumerate(gains.items()):
        colour = GREEN if gain.times >= 1.05 else VERMILLION if gain.times < 0.95 else GREY
        middle, x = number + 0.5, math.log2(gain.times)
        if gain.low and gain.high:
            axes.plot(
                [math.log2(gain.low), math.log2(gain.high)], [middle, middle], color=colour, lw=2.2, alpha=0.6
            )
        solid = gain.how == "measured"
        axes.scatter([x], [middle], s=60, zorder=3, fc=colour if solid else "white", ec=colour, lw=1.8)
        _beside(axes, middle, name, f"{_factor(gain.times)} ×")
    names = {"filled: measured here": GREY}
    if any(gain.how != "measured" for gain in gains.values()):
        names["hollow: published or predicted"] = "#FFFFFF"
    legend(figure, names, _TITLE_IN)
    told = "; ".join(f"{name}: {_factor(gain.times)} times ({gain.how})" for name, gain in gains.items())
    return Picture(figure, f"{title}. Points on an axis of factors. {told}.")


def _factor(times: float) -> str:
    """A factor with the digits that tell it from 1: 1.05, 3.3, 15, 1/8.3, 1/300."""
    if times < 0.5:
        return f"1/{1 / times:.0f}" if times <= 0.1 else f"1/{1 / times:.2g}"
    return f"{times:.2f}" if times < 2 else f"{times:.2g}"


def plot_seeds(accuracies: Mapping[str, Sequence[float]], *, title: str) -> Picture:
    """A point for each seed and a line for their mean, a row for each name; accuracies from 0 to 1, measured.

    Raises CourseError when there is nothing to draw.
    """
    if not accuracies or not all(accuracies.values()):
        raise CourseError("There is no accuracy to draw.")
    row, left = 0.36, 1.95
    height = row * len(accuracies)
    figure = new_figure(_TITLE_IN + height + 0.62, title)
    axes = add_axes(figure, left, 0.55, WIDTH_IN - left - 1.35, height)
    values = [100 * value for many in accuracies.values() for value in many]
    room = max(0.5, 0.1 * (max(values) - min(values)))
    axes.set(xlim=(min(values) - room, max(values) + room), ylim=(len(accuracies), 0), yticks=[])
    axes.set_xlabel("digits read right in the test (%)")
    alts = []
    for number, (name, many) in enumerate(accuracies.items()):
        colour = FORMAT_COLOURS.get(name.split()[0], GREY)
        mean = 100 * math.fsum(many) / len(many)
        spread = 100 * (max(many) - min(many))
        axes.scatter(
            [100 * value for value in many], [number + 0.5] * len(many), fc=colour, ec="white", s=46, zorder=3
        )
        axes.plot([mean, mean], [number + 0.1, number + 0.9], color="black", lw=1.8, zorder=4)
        _beside(axes, number + 0.5, name, f"{mean:.1f} (±{spread / 2:.1f})")
        alts.append(f"{name}: mean {mean:.1f} %, from {100 * min(many):.1f} to {100 * max(many):.1f} %")
    return Picture(figure, f"{title}. Points, one a seed, measured. {'; '.join(alts)}.")


def _beside(axes: Axes, y: float, name: str, value: str) -> None:
    """A row's name left of the axes, its value right of them."""
    for text, end, offset, side in ((name, 0, -8, "right"), (value, 1, 6, "left")):
        axes.annotate(
            text, (end, y), (offset, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha=side, va="center", fontsize=TEXT_PT, color=INK,
        )  # fmt: skip
