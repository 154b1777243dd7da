"""Which pictures does lesson 04 draw? The stall of a step, the way up, a sweep of workers, and a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle

from course_lib.errors import CourseError
from course_lib.teach.look import (
    GREY,
    INK,
    LINE_STYLES,
    MARGIN_IN,
    QUIET,
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
from course_lib.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.train.loading.gains import Climb
    from course_lib.train.loading.measurement import LoaderMeasurement
    from course_lib.train.loading.timeline import Timeline
    from course_lib.train.loading.tuning import Tuning

_TITLE_IN, _AXIS_IN, _BAR_IN = 0.42, 0.55, 0.4
SEEN = 0.002  # of the longest bar: what is shorter cannot be seen, and is left out of the legend
MOST_TICKS = 16  # whole numbers below an axis without touching each other
# Waiting for data is orange in all lessons; its parts are shades of it.
STALL_COLOURS: Mapping[str, str] = {
    "step": TIME_COLOURS["backward"],
    "reading": "#B87700",
    "decoding": TIME_COLOURS["data"],
    "collating": "#F5CE7E",
    "transfer": TIME_COLOURS["transfer"],
    "slower step": GREY,
}
_STEP = TIME_COLOURS["backward"]
_ON_WHITE = {"fc": "white", "ec": "none", "pad": 0.8}  # under a number, so that no line runs through it


def plot_stall(
    measurements: LoaderMeasurement | Mapping[str, LoaderMeasurement],
    *,
    title: str = "Where the time of a step goes",
) -> Picture:
    """One stacked bar for each measurement: the step alone, then each part of its stall.

    Raises:
        CourseError: there is no measurement, or one could not look into its loader.
    """
    named = dict(measurements) if isinstance(measurements, Mapping) else {"": measurements}
    if not named or any(one.stall is None for one in named.values()):
        raise CourseError("There is no stall to draw: measure a DataLoader.")
    longest = 1000 * max(one.total_s for one in named.values())
    line = 0.22 if any(named) else 0.0
    height = (_BAR_IN + 0.14 + line) * len(named)
    figure = new_figure(_TITLE_IN + 0.5 + height + _AXIS_IN, title)
    room = WIDTH_IN - 2 * MARGIN_IN - 0.1
    axes = add_axes(figure, MARGIN_IN, _AXIS_IN, room, height)
    axes.set(xlim=(0, longest), ylim=(height, 0), yticks=[], xlabel="time of one step (ms), measured")
    axes.spines["left"].set_visible(False)
    top, alts = 0.0, []
    for name, one in named.items():
        if name:
            axes.text(0, top + line / 2, name, fontsize=TEXT_PT, color=INK, weight="bold", va="center")
        stall: dict[str, float] = {str(part): seconds for part, seconds in (one.stall or {}).items()}
        parts = {"step": one.total_s - sum(stall.values()), **stall}
        left = 0.0
        for part, seconds in parts.items():
            ms, colour = 1000 * seconds, STALL_COLOURS[part]
            hatch = "..." if part == "step" and one.emulated else ""
            axes.add_patch(
                Rectangle((left, top + line), ms, _BAR_IN, fc=colour, ec="white", lw=0.6, hatch=hatch)
            )
            _inside(axes, (left, top + line, ms), f"{ms:.0f}", colour, longest / room)
            left += ms
        top += _BAR_IN + 0.14 + line
        told = ", ".join(f"{part} {1000 * seconds:.1f} ms" for part, seconds in parts.items())
        alts.append(f"{name + ': ' if name else ''}{told}")
    emulated = any(one.emulated for one in named.values())
    step = "the step (emulated)" if emulated else "the step"
    seen = {"step"}
    for one in named.values():
        seen |= {part for part, seconds in (one.stall or {}).items() if 1000 * seconds > SEEN * longest}
    shown = {part: colour for part, colour in STALL_COLOURS.items() if part in seen}
    legend(figure, {step if part == "step" else part: c for part, c in shown.items()}, _TITLE_IN)
    return Picture(figure, f"{title}. Stacked bars, measured. {'; '.join(alts)}.")


def plot_climb(climb: Climb, *, title: str = "How well the card is fed") -> Picture:
    """A bar for each set-up: its throughput as a share of what the step could use alone."""
    rungs = climb.rungs
    left = max(width_in(rung.name, TEXT_PT) for rung in rungs) + 0.3
    height = _BAR_IN * len(rungs)
    figure = new_figure(_TITLE_IN + 0.4 + height + _AXIS_IN + 0.05, title)
    axes = add_axes(figure, left, _AXIS_IN, WIDTH_IN - left - 0.75, height)
    axes.set(xlim=(0, 100), ylim=(len(rungs), 0), yticks=[], xlabel="share of the step alone (%), measured")
    axes.spines["left"].set_visible(False)
    for row, rung in enumerate(rungs):
        share = 100 * rung.of_alone
        axes.add_patch(Rectangle((0, row + 0.12), min(share, 100), 0.76, fc=_STEP))
        axes.add_patch(Rectangle((share, row + 0.12), max(0, 100 - share), 0.76, fc=TIME_COLOURS["data"]))
        axes.text(-2, row + 0.5, rung.name, ha="right", va="center", fontsize=TEXT_PT, color=INK)
        axes.text(102, row + 0.5, f"{share:.0f} %", va="center", fontsize=TEXT_PT, color=INK)
    works = "the step works (emulated)" if climb.emulated else "the step works"
    legend(figure, {works: _STEP, "it waits": TIME_COLOURS["data"]}, _TITLE_IN)
    told = "; ".join(f"{rung.name}: {rung.of_alone:.0%}" for rung in rungs).replace("%", " %")
    return Picture(figure, f"{title}. Blue: the step works; orange: it waits. {told}.")


def plot_sweep(
    measured: Mapping[int, float],
    *,
    tuned: Tuning | None = None,
    alone: float | None = None,
    marks: Mapping[str, int] | None = None,
    title: str = "How many workers?",
) -> Picture:
    """Throughput against the number of workers: points are measured, the dashed line is the model's.

    Args:
        measured: samples a second by number of workers.
        tuned: draws its model, and what the step could use alone.
        alone: samples a second of the step alone, where there is no tuning.
        marks: numbers of workers that rules suggest, by the name of the rule.
        title: stands above.

    Raises:
        CourseError: nothing was measured.
    """
    if not measured:
        raise CourseError("Nothing was measured yet.")
    marks = marks or {}
    most = max(*measured, *marks.values(), 2)
    limit = tuned.alone_samples_per_second if tuned is not None and tuned.step_counts else alone
    highest = max(*measured.values(), limit if limit and limit < 4 * max(measured.values()) else 0)
    figure = new_figure(3.3 + 0.2 * len(marks), title)
    axes = add_axes(figure, 0.75, 0.55 + 0.2 * len(marks), WIDTH_IN - 1.2, 2.2)
    axes.set(xlim=(-0.4, most + 0.4), ylim=(0, 1.2 * highest), ylabel="samples a second")
    axes.set_xticks(range(0, most + 1, 1 + most // MOST_TICKS))
    axes.set_xlabel("workers")
    if tuned is not None:
        numbers = list(range(most + 1))
        predicted = [tuned.predicted(number) for number in numbers]
        axes.plot(numbers, predicted, LINE_STYLES["predicted"], color=QUIET, lw=1.4)
    ordered = sorted(measured)
    if tuned is None:
        axes.plot(ordered, [measured[n] for n in ordered], color=_STEP, lw=0.8, alpha=0.5)
    axes.plot(ordered, [measured[n] for n in ordered], "o", color=_STEP, markersize=7)
    for number in ordered:
        axes.annotate(
            format_count(measured[number]),
            (number, measured[number]),
            xytext=(0, -14),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL_PT,
            color=INK,
            bbox=_ON_WHITE,
        )
    if limit and limit > 1.2 * highest:
        text = f"the step alone: {format_count(limit)} a second, far above this picture"
        axes.text(most + 0.4, 1.19 * highest, text, ha="right", va="top", fontsize=SMALL_PT, color=INK)
    if limit and limit <= 1.2 * highest:
        axes.axhline(limit, color="black", lw=1.4)
        axes.text(
            most + 0.4, limit * 1.01, "the step alone", ha="right", va="bottom", fontsize=SMALL_PT, color=INK
        )
    for row, (name, number) in enumerate(marks.items()):
        y = 0.1 + 0.2 * row
        text = f"{name}: {number} worker{'' if number == 1 else 's'}"
        figure.text(0.75 / WIDTH_IN, y / figure.get_figheight(), text, fontsize=SMALL_PT, color=VERMILLION)
        axes.axvline(number, color=VERMILLION, lw=0.8, ls=":")
    told = ", ".join(f"{number} workers {measured[number]:.0f}" for number in ordered)
    said = "".join(f" {name} suggests {number}." for name, number in marks.items())
    return Picture(figure, f"{title} Samples a second, measured: {told}.{said}")


def plot_timeline(timelines: Timeline | Mapping[str, Timeline], *, title: str = "Who works when") -> Picture:
    """Bars over time for each worker and for the step; gaps in the row of the step are waiting.

    Raises:
        CourseError: there is no timeline.
    """
    named = {"": timelines} if not isinstance(timelines, Mapping) else dict(timelines)
    if not named:
        raise CourseError("There is no timeline to draw.")
    row_in, head = 0.3, 0.26
    height = sum((head if name else 0) + row_in * len(one.rows) + 0.1 for name, one in named.items())
    longest = 1000 * max(span.end_s for one in named.values() for span in one.spans)
    figure = new_figure(_TITLE_IN + height + _AXIS_IN, title)
    axes = add_axes(figure, 0.9, _AXIS_IN, WIDTH_IN - 1.15, height)
    axes.set(xlim=(0, longest), ylim=(height, 0), yticks=[], xlabel="time (ms), measured")
    axes.spines["left"].set_visible(False)
    top, alts = 0.0, []
    for name, one in named.items():
        if name:
            axes.text(0, top + head / 2, name, fontsize=TEXT_PT, color=INK, weight="bold", va="center")
            top += head
        for row in one.rows:
            axes.text(
                -0.015 * longest, top + row_in / 2, row, ha="right", va="center", fontsize=TEXT_PT, color=INK
            )
            for span in (span for span in one.spans if span.row == row):
                colour = _STEP if row == "step" else TIME_COLOURS["data"]
                _span(axes, (1000 * span.begin_s, 1000 * span.end_s), (top, row_in), colour, span.batch)
            top += row_in
        top += 0.1
        alts.append(
            f"{name + ': ' if name else ''}{one.batches} batches, the step waits {1000 * one.waited_s:.0f} ms"
        )
    return Picture(
        figure, f"{title}. Orange bars: a batch is made; blue bars: the step runs on it. {'; '.join(alts)}."
    )


def _span(axes: Axes, when: tuple[float, float], row: tuple[float, float], colour: str, number: int) -> None:
    top, height = row
    axes.add_patch(
        Rectangle((when[0], top + 0.03), when[1] - when[0], height - 0.06, fc=colour, ec="white", lw=0.8)
    )
    low, high = axes.get_xlim()
    inches = (when[1] - when[0]) / (high - low) * (WIDTH_IN - 1.15)
    if inches > width_in(str(number), SMALL_PT) + 0.04:
        axes.text(
            sum(when) / 2, top + height / 2, str(number), ha="center", va="center", fontsize=SMALL_PT,
            color=text_on(colour),
        )  # fmt: skip


def _inside(axes: Axes, place: tuple[float, float, float], text: str, colour: str, ms_an_inch: float) -> None:
    left, top, ms = place
    if ms / ms_an_inch > width_in(text, SMALL_PT) + 0.08:
        axes.text(
            left + ms / 2, top + _BAR_IN / 2, text, ha="center", va="center", fontsize=SMALL_PT,
            color=text_on(colour), bbox={"fc": colour, "ec": "none", "pad": 1.2},
        )  # fmt: skip
