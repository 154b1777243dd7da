"""Which pictures does lesson 07 draw? Cards over time (card_maps), ranks, alarms, and busy cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from course_lib.diagnose.cluster_series import Array
from course_lib.errors import CourseError
from course_lib.teach.card_maps import plot_cards
from course_lib.teach.look import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MARGIN_IN,
    SMALL_PT,
    TEXT_PT,
    TIME_COLOURS,
    VERMILLION,
    WIDTH_IN,
    add_axes,
    legend,
    new_figure,
    text_on,
    width_in,
)
from course_lib.teach.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.teach.alarm_count import AlarmCount
    from course_lib.train.ranks.straggler import RankTimes

__all__ = ["plot_alarms", "plot_busy", "plot_cards", "plot_ranks"]

_TITLE_IN = 0.42
_MISSED = "#D9D9D9"
_PART_COLOURS = {
    "data": TIME_COLOURS["data"],
    "compute": TIME_COLOURS["backward"],
    "waiting": GREY,
    "exchange": TIME_COLOURS["communication"],
    "update": TIME_COLOURS["optimizer"],
}
_PART_NAMES = {
    "data": "its batch",
    "compute": "forward and backward",
    "waiting": "waiting for others",
    "exchange": "all-reduce itself",
    "update": "optimizer",
}


def plot_ranks(
    runs: RankTimes | Mapping[str, RankTimes], *, title: str = "One step, rank by rank"
) -> Picture:
    """Stacked bars of a step's parts, one for each rank, for one run or several by name; medians, measured.

    Raises:
        CourseError: there is no run.
    """
    named = dict(runs) if isinstance(runs, Mapping) else {"": runs}
    if not named:
        raise CourseError("There is no run to draw.")
    parts = list(_PART_COLOURS)
    medians = {
        name: 1000 * np.array([np.median(run.part_s(part), axis=0) for part in parts]).T
        for name, run in named.items()
    }
    longest = max(float(times.sum(axis=1).max()) for times in medians.values())
    legend_rows = 2
    bar, head = 0.34, 0.3
    height = sum((head if name else 0) + len(times) * bar + 0.08 for name, times in medians.items())
    figure = new_figure(_TITLE_IN + 0.22 * legend_rows + 0.08 + height + 0.52, title)
    left = 0.75
    room = WIDTH_IN - left - MARGIN_IN - 0.1
    axes = add_axes(figure, left, 0.52, room, height)
    axes.set(xlim=(0, longest), ylim=(height, 0), yticks=[], xlabel="time of one step (ms), measured")
    axes.spines["left"].set_visible(False)
    top, alts = 0.0, []
    for name, times in medians.items():
        if name:
            axes.text(0, top + 0.16, name, fontsize=TEXT_PT, color=INK, weight="bold", va="center")
            top += head
        for rank, row in enumerate(times):
            axes.text(
                -0.02 * longest,
                top + bar / 2,
                f"rank {rank}",
                ha="right",
                va="center",
                fontsize=TEXT_PT,
                color=INK,
            )
            _rank_bar(axes, row, (top + 0.03, bar - 0.06), longest / room)
            told = ", ".join(f"{_PART_NAMES[p]} {ms:.1f} ms" for p, ms in zip(parts, row, strict=True))
            alts.append(f"{name + ', ' if name else ''}rank {rank}: {told}")
            top += bar
        top += 0.08
    legend(figure, {_PART_NAMES[p]: colour for p, colour in _PART_COLOURS.items()}, _TITLE_IN)
    return Picture(figure, f"{title}. Stacked bars. {'; '.join(alts)}.")


def _rank_bar(axes: Axes, row: Array, place: tuple[float, float], ms_an_inch: float) -> None:
    left = 0.0
    for (_, colour), ms in zip(_PART_COLOURS.items(), row, strict=True):
        axes.add_patch(Rectangle((left, place[0]), ms, place[1], fc=colour, ec="white", lw=0.6))
        label = f"{ms:.0f}"
        if ms / ms_an_inch > width_in(label, SMALL_PT) + 0.1 and ms >= 0.5:
            middle = place[0] + place[1] / 2
            axes.text(
                left + ms / 2,
                middle,
                label,
                ha="center",
                va="center",
                fontsize=SMALL_PT,
                color=text_on(colour),
            )
        left += ms


def plot_alarms(count: AlarmCount) -> Picture:
    """Of each kind of simulated job, the share that the thresholds call sick and that comparing finds."""
    title = f"{count.false_alarms} false alarms, {count.misses} sick jobs missed (simulated)"
    bar, left = 0.36, 1.8
    kinds = list(count.of)
    height = bar * len(kinds)
    figure = new_figure(_TITLE_IN + 0.52 + height + 0.55, title)
    room = WIDTH_IN - left - 1.1
    axes = add_axes(figure, left, 0.55, room, height)
    axes.set(xlim=(0, 100), ylim=(len(kinds), 0), yticks=[], xlabel="share of the jobs called sick (%)")
    axes.spines["left"].set_visible(False)
    alts = []
    for row, kind in enumerate(kinds):
        of, alarmed, compared = count.of[kind], count.alarmed[kind], count.compared[kind]
        share = 100 * alarmed / of
        healthy = kind == "healthy"
        axes.add_patch(Rectangle((0, row + 0.14), 100, 0.72, fc=_MISSED if not healthy else "#F2F2F2"))
        axes.add_patch(Rectangle((0, row + 0.14), share, 0.72, fc=VERMILLION if healthy else GREEN))
        axes.plot(
            [100 * compared / of] * 2, [row + 0.02, row + 0.98], color="black", linewidth=2.5, clip_on=False
        )
        name = kind.replace("_", " ")
        axes.text(-2.5, row + 0.5, name, ha="right", va="center", fontsize=TEXT_PT, color=INK)
        axes.text(103.5, row + 0.5, f"{alarmed} of {of}", va="center", fontsize=TEXT_PT, color=INK)
        alts.append(f"{name}: {alarmed} of {of}, by comparing the cards {compared}")
    names = {"sick, found": GREEN, "sick, missed": _MISSED, "healthy, false alarm": VERMILLION}
    legend(figure, names | {"black line: by comparing the cards over time": "#000000"}, _TITLE_IN)
    return Picture(figure, f"{title}. Bars, jobs that the thresholds call sick. {'; '.join(alts)}.")


def plot_busy(rates: Mapping[str, tuple[float, float]], *, title: str) -> Picture:
    """Utilisation beside the arithmetic that was done, a bar for each workload: (percent, GFLOP/s), measured.

    Raises:
        CourseError: there is nothing to draw.
    """
    if not rates:
        raise CourseError("There is no workload to draw.")
    bar, left, gap = 0.36, 1.45, 0.75
    height = bar * len(rates)
    room = (WIDTH_IN - left - gap - 0.85) / 2
    figure = new_figure(_TITLE_IN + 0.25 + height + 0.2, title)
    columns = (("utilisation (%)", 0, BLUE, "{:.0f} %"), ("work done (GFLOP/s)", 1, GREEN, "{:,.3g}"))
    for column, (name, index, colour, form) in enumerate(columns):
        axes = add_axes(figure, left + column * (room + gap), 0.15, room, height)
        most = max(100.0 if index == 0 else 1e-9, *(pair[index] for pair in rates.values()))
        axes.set(xlim=(0, most), ylim=(len(rates), 0), yticks=[], xticks=[])
        axes.spines["bottom"].set_visible(False)
        axes.set_title(name, fontsize=TEXT_PT, color=INK, loc="left", pad=4)
        for row, (label, pair) in enumerate(rates.items()):
            axes.add_patch(Rectangle((0, row + 0.12), pair[index], 0.76, fc=colour))
            text = form.format(pair[index])
            axes.text(pair[index] + 0.03 * most, row + 0.5, text, va="center", fontsize=TEXT_PT, color=INK)
            if column == 0:
                axes.text(
                    -0.05 * most, row + 0.5, label, ha="right", va="center", fontsize=TEXT_PT, color=INK
                )
    told = "; ".join(f"{name}: {util:.0f} % busy, {rate:.3g} GFLOP/s" for name, (util, rate) in rates.items())
    return Picture(figure, f"{title}. Bars, measured. {told}.")
