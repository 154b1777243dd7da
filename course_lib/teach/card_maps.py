"""How are the cards of one job drawn over time, so that the odd one shows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from course_lib.diagnose.cluster_series import Array, ClusterSeries
from course_lib.diagnose.nan_stats import mean, median
from course_lib.errors import CourseError
from course_lib.teach.look import (
    BLUE,
    INK,
    MARGIN_IN,
    QUIET,
    SMALL_PT,
    TEXT_PT,
    VERMILLION,
    WIDTH_IN,
    add_axes,
    new_figure,
    text_on,
    width_in,
)
from course_lib.teach.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE_IN, _ROW_IN, _PANEL_IN = 0.42, 0.17, 2.35
_COLUMNS = 60  # of a heat map: samples are averaged to so many
_COLOURS = "cividis"  # made for readers with and without colour blindness


def plot_cards(series: ClusterSeries, *, marked: int | None = None, title: str) -> Picture:
    """The cards of one job over time: utilisation, power and clock as heat maps, memory as bars.

    Args:
        series: two cards or more.
        marked: the number of the card whose rows are to be pointed at.
        title: stands above; say in it whether the cards were measured or simulated.

    Raises:
        CourseError: the series has one card only, or no card of that number.
    """
    cards = len(series.gpus)
    if cards < 2:
        raise CourseError("There is one card only: the picture compares two or more.")
    if marked is not None and marked not in series.gpus:
        raise CourseError(f"The series has the cards {list(series.gpus)}, and no card {marked}.")
    rows = cards * _ROW_IN
    panel = 0.34 + rows + 0.42
    figure = new_figure(_TITLE_IN + 2 * panel, title)
    lefts = (0.62, WIDTH_IN - MARGIN_IN - _PANEL_IN)
    bottoms = (panel + 0.42, 0.42)
    power = 100 * series.power_w / series.power_cap_w
    # From half of the most on, as the clock: pauses are dark anyway, and cards at work differ visibly.
    most = 10 * np.ceil(float(np.nanmax(median(power, axis=0), initial=10.0)) * 1.1 / 10)
    clock = series.sm_clock_mhz
    fastest = float(np.nanmax(clock)) if np.isfinite(clock).any() else 1.0
    maps = (
        ("utilisation", series.util, 0.0, 100.0, "%", 0, 0),
        ("power, of its limit", power, 0.5 * most, most, "%", 1, 0),
        ("clock", clock, 0.5 * fastest, fastest, "MHz", 0, 1),
    )
    for name, values, low, high, unit, column, row in maps:
        axes = add_axes(figure, lefts[column], bottoms[row], _PANEL_IN, rows)
        _heat_map(figure, axes, (name, unit), values, (low, high))
        _card_labels(axes, series.gpus, marked, named=column == 0)
    axes = add_axes(figure, lefts[1], bottoms[1], _PANEL_IN, rows)
    _memory_bars(axes, series, marked)
    _card_labels(axes, series.gpus, marked, named=False)
    said = f" GPU {marked} is marked." if marked is not None else ""
    return Picture(figure, f"{title}. {_cards_alt(series)}{said}", sharpness=1.6)


def _heat_map(
    figure: Figure, axes: Axes, name: tuple[str, str], values: Array, bounds: tuple[float, float]
) -> None:
    axes.set_title(name[0], fontsize=TEXT_PT, color=INK, loc="left", pad=5)
    cards = values.shape[1]
    axes.set(xlim=(0, 1), ylim=(cards, 0), xticks=[])
    axes.set_xlabel("time →", fontsize=SMALL_PT, color=QUIET, labelpad=3)
    axes.spines[:].set_visible(False)
    if not np.isfinite(values).any():
        _say_missing(axes)
        return
    parts = np.array_split(values, min(_COLUMNS, len(values)))
    averaged = np.array([mean(part, axis=0) for part in parts]).T
    low, high = bounds
    axes.imshow(
        averaged,
        cmap=_COLOURS,
        vmin=low,
        vmax=high,
        aspect="auto",
        extent=(0, 1, cards, 0),
        interpolation="nearest",
    )
    for line in range(1, cards):
        axes.axhline(line, color="white", linewidth=1)
    width, height = figure.get_size_inches()
    place = axes.get_position()
    label, least = f"{high:.0f} {name[1]}", f"{low:.0f}"
    right = place.x1 - (width_in(label, SMALL_PT) + 0.05) / width
    bar = figure.add_axes((right - 0.4 / width, place.y1 + 0.1 / height, 0.4 / width, 0.09 / height))
    bar.imshow(np.linspace(0, 1, 64)[None], cmap=_COLOURS, aspect="auto")
    bar.set(xticks=[], yticks=[])
    bar.spines[:].set_visible(False)
    middle = place.y1 + 0.145 / height
    figure.text(place.x1, middle, label, ha="right", va="center", fontsize=SMALL_PT, color=QUIET)
    figure.text(right - 0.45 / width, middle, least, ha="right", va="center", fontsize=SMALL_PT, color=QUIET)


def _memory_bars(axes: Axes, series: ClusterSeries, marked: int | None) -> None:
    cards = len(series.gpus)
    axes.set_title("memory (GiB)", fontsize=TEXT_PT, color=INK, loc="left", pad=5)
    used = median(series.used_mib, axis=0) / 1024
    if not np.isfinite(used).any():
        axes.set(ylim=(cards, 0), xticks=[])
        _say_missing(axes)
        return
    limit = float(np.nanmax(series.total_mib)) / 1024 if np.isfinite(series.total_mib).any() else None
    axes.set(ylim=(cards, 0), xlim=(0, 1.02 * (limit or float(np.nanmax(used)))))
    programs: dict[int, set[int | None]] = {}
    for process in series.processes or ():
        if process.gpu is not None and process.kind != "G":
            programs.setdefault(process.gpu, set()).add(process.pid)
    for row, (card, gib) in enumerate(zip(series.gpus, used, strict=True)):
        if not np.isfinite(gib):
            continue
        colour = VERMILLION if card == marked else BLUE
        axes.add_patch(Rectangle((0, row + 0.12), gib, 0.76, fc=colour))
        count = len(programs.get(card, ()))
        text = f"{gib:.1f}" + (f", {count} programs" if count > 1 else "")
        inside = gib > 0.5 * axes.get_xlim()[1]
        axes.text(
            gib + (-1 if inside else 1) * 0.015 * axes.get_xlim()[1],
            row + 0.52,
            text,
            ha="right" if inside else "left",
            va="center",
            fontsize=SMALL_PT - 0.5,
            color=text_on(colour) if inside else INK,
        )
    if limit:
        axes.axvline(limit, color="black", linewidth=1.5)
        axes.text(limit, -0.12, "limit", ha="right", va="bottom", fontsize=SMALL_PT, color=INK, clip_on=False)


def _say_missing(axes: Axes) -> None:
    axes.text(
        *(0.5, 0.5),
        "not in this dump",
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=QUIET,
        fontsize=TEXT_PT,
    )


def _card_labels(axes: Axes, gpus: tuple[int, ...], marked: int | None, *, named: bool) -> None:
    names = [f"GPU {gpu}" if named else f"{gpu}" for gpu in gpus]
    axes.set_yticks([row + 0.5 for row in range(len(gpus))], names)
    axes.tick_params(axis="y", length=0)
    for gpu, label in zip(gpus, axes.get_yticklabels(), strict=True):
        if gpu == marked:
            label.set(color=VERMILLION, weight="bold")


def _cards_alt(series: ClusterSeries) -> str:
    columns = (
        ("utilisation in %", median(series.util, axis=0)),
        ("power in % of the limit", median(100 * series.power_w / series.power_cap_w, axis=0)),
        ("clock in MHz", median(series.sm_clock_mhz, axis=0)),
        ("memory in GiB", median(series.used_mib, axis=0) / 1024),
    )
    said = [
        f"{name} {', '.join(f'{value:.0f}' for value in values)}"
        if np.isfinite(values).all()
        else f"{name} unknown"
        for name, values in columns
    ]
    return f"Medians over time from GPU {series.gpus[0]} to {series.gpus[-1]}: {'; '.join(said)}."
