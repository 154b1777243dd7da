"""How is the time of a step drawn as stacked bars, with every part named however small it is?

A part that has room carries its name and share inside; the others are named in a line below their bar. All is
laid out in inches, so that a label knows the room it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from course_lib.errors import CourseError
from course_lib.teach.look import (
    HATCHES,
    INK,
    MARGIN_IN,
    QUIET,
    SMALL_PT,
    TIME_COLOURS,
    WIDTH_IN,
    How,
    add_axes,
    heading,
    new_figure,
    text_on,
    width_in,
)
from course_lib.teach.picture import Picture
from course_lib.train.split import StepSplit
from course_lib.units import format_count, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Per = Literal["step", "sample"]

_LINE_IN = 0.23  # a line of small text
_BAR_IN = 0.40
_GAP_IN = 0.14  # between two bars with their labels
_TITLE_IN = 0.42
_AXIS_IN = 0.55  # below the bars: tick labels and the axis' name
_ROOM_IN = WIDTH_IN - 2 * MARGIN_IN - 0.1  # half of the last tick's label stands outside
_SQUARE_IN = 0.11
_AFTER_SQUARE_IN, _AFTER_NAME_IN = 0.04, 0.09


def plot_split(
    splits: StepSplit | Mapping[str, StepSplit],
    *,
    title: str = "Where the time of a step goes",
    how: How | Mapping[str, How] = "measured",
    per: Per = "step",
) -> Picture:
    """One stacked bar for each split: the parts of a step, in the order in which they happen.

    Args:
        splits: one split, or several by name, drawn from top to bottom.
        title: stands above the bars.
        how: whether the times were measured, predicted or emulated; for all, or by name.
        per: bars of the time of a step, or of a sample, which compares steps of different batch sizes.

    Raises:
        CourseError: there is no split, or one does not know its batch size and ``per`` is "sample".
    """
    named = {"": splits} if isinstance(splits, StepSplit) else splits
    if not isinstance(named, Mapping) or not named:
        raise CourseError("There is no split to draw: give a StepSplit, or several by name.")
    kinds: Mapping[str, How] = dict.fromkeys(named, how) if isinstance(how, str) else how
    longest = max(_seconds(name, split, per) for name, split in named.items())
    bars = [_Bar(name, split, kinds.get(name, "measured"), per, longest) for name, split in named.items()]
    height = sum(bar.height for bar in bars)
    figure = new_figure(_TITLE_IN + height + _AXIS_IN, title)
    axes = add_axes(figure, MARGIN_IN, _AXIS_IN, _ROOM_IN, height)
    axes.set(xlim=(0, _ROOM_IN), ylim=(0, height), yticks=[])
    axes.spines["left"].set_visible(False)
    _label_time_axis(axes, longest, per)
    top = height
    for bar in bars:
        bar.draw(axes, top)
        top -= bar.height
    texts = "; ".join(bar.alt for bar in bars)
    return Picture(figure, f"{title}. Stacked bars of the time of one {per}. {texts}.")


def percent(share: float) -> str:
    """A share as it stands in a picture: three figures near 0 and 1, two between."""
    if share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.0f} %" if 0.0995 <= share < 0.995 or share == 1 else f"{100 * share:.1f} %"


def _label_time_axis(axes: Axes, longest_s: float, per: Per) -> None:
    units = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))
    factor, unit = next((pair for pair in units if longest_s * pair[0] >= 1), units[0])
    axes.set_xlabel(f"time of one {per} ({unit})")
    most = longest_s * factor
    ticks = [t for t in MaxNLocator(6).tick_values(0, most) if t <= most * 1.0001] if most else [0.0]
    axes.set_xticks([t / most * _ROOM_IN if most else 0.0 for t in ticks], [f"{t:g}" for t in ticks])


def _seconds(name: str, split: StepSplit, per: Per) -> float:
    """Seconds of a step, or of a sample."""
    if per == "step":
        return split.step.mean_s
    if not split.samples:
        raise CourseError(f'The split {name!r} does not know how many samples a step has: use per="step".')
    return split.step.mean_s * split.steps / split.samples


@dataclass(frozen=True)
class _Bar:
    """One bar with the line above it and the names below it."""

    name: str
    split: StepSplit
    how: How
    per: Per
    longest_s: float  # the time that takes the whole width

    @cached_property
    def seconds(self) -> float:
        return _seconds(self.name, self.split, self.per)

    @property
    def summary(self) -> str:
        rate = self.split.samples_per_second
        speed = f", {format_count(rate)} samples a second" if rate else ""
        return f"{format_seconds(self.seconds)} a {self.per}{speed}, {self.how}"

    @property
    def alt(self) -> str:
        parts = ", ".join(f"{phase} {percent(share)}" for phase, share in self.parts.items())
        return f"{self.name + ': ' if self.name else ''}{self.summary}: {parts or 'no time at all'}"

    @cached_property
    def parts(self) -> dict[str, float]:
        """The phases that took any time, with their shares."""
        return {phase: share for phase, share in self.split.shares.items() if share > 0}

    def length(self, phase: str) -> float:
        """How long the phase's segment is, in inches."""
        return self.parts[phase] * self.seconds / self.longest_s * _ROOM_IN

    def label_inside(self, phase: str) -> str | None:
        """The label that fits into the phase's segment, on one line or two; None when there is no room."""
        share = percent(self.parts[phase])
        for label in (f"{phase} {share}", f"{phase}\n{share}"):
            if width_in(label, SMALL_PT) + 0.1 <= self.length(phase):
                return label
        return None

    @cached_property
    def lines_below(self) -> list[list[str]]:
        """The phases without room for a label inside, as many in a line as fit."""
        lines: list[list[str]] = [[]]
        x = 0.0
        for phase in self.parts:
            if self.label_inside(phase):
                continue
            width = self._width_below(phase)
            if lines[-1] and x + width - _AFTER_NAME_IN > _ROOM_IN:
                lines.append([])
                x = 0.0
            lines[-1].append(phase)
            x += width
        return lines

    @property
    def height(self) -> float:
        """Inches that the bar takes with all its labels."""
        return _LINE_IN * (1 + len(self.lines_below)) + _BAR_IN + _GAP_IN

    def draw(self, axes: Axes, top: float) -> None:
        """Draw everything below ``top``, in inches."""
        heading(axes, top - _LINE_IN / 2, self.name, self.summary, _ROOM_IN)
        bottom = top - _LINE_IN - _BAR_IN
        if not self.parts:
            axes.text(0, bottom + _BAR_IN / 2, "no time at all", fontsize=SMALL_PT, color=QUIET, va="center")
        left = 0.0
        for phase in self.parts:
            self._draw_segment(axes, phase, left, bottom)
            left += self.length(phase)
        for number, line in enumerate(self.lines_below):
            self._draw_names(axes, line, bottom - (number + 0.55) * _LINE_IN)

    def _draw_segment(self, axes: Axes, phase: str, left: float, bottom: float) -> None:
        length, colour = self.length(phase), TIME_COLOURS[phase]
        # A white edge parts the segments; it would wipe out one that is only a hair wide.
        edge = 0.6 if length > 0.05 else 0.0
        axes.add_patch(Rectangle((left, bottom), length, _BAR_IN, fc=colour, ec="white", lw=edge))
        if HATCHES[self.how]:
            shade = (0, 0, 0, 0.45)
            axes.add_patch(
                Rectangle(
                    (left, bottom), length, _BAR_IN, fill=False, ec=shade, lw=0, hatch=HATCHES[self.how]
                )
            )
        axes.text(
            left + length / 2,
            bottom + _BAR_IN / 2,
            self.label_inside(phase) or "",
            fontsize=SMALL_PT,
            color=text_on(colour),
            ha="center",
            va="center",
            linespacing=1.05,
            bbox={"fc": colour, "ec": "none", "pad": 1},
        )

    def _draw_names(self, axes: Axes, phases: list[str], y: float) -> None:
        x = 0.0
        for phase in phases:
            axes.add_patch(
                Rectangle(
                    (x, y - _SQUARE_IN / 2), _SQUARE_IN, _SQUARE_IN, fc=TIME_COLOURS[phase], ec=QUIET, lw=0.4
                )
            )
            text = f"{phase} {percent(self.parts[phase])}"
            axes.text(
                x + _SQUARE_IN + _AFTER_SQUARE_IN, y, text, fontsize=SMALL_PT, color=INK, va="center_baseline"
            )
            x += self._width_below(phase)

    def _width_below(self, phase: str) -> float:
        text = width_in(f"{phase} {percent(self.parts[phase])}", SMALL_PT)
        return _SQUARE_IN + _AFTER_SQUARE_IN + text + _AFTER_NAME_IN
