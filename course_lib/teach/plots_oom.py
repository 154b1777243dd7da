"""Pictures of memory: what a training step holds at its peak, and how it gets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from course_lib.errors import CourseError
from course_lib.plan.alive import LAYERS, alive_over_step
from course_lib.plan.memory import MemoryPlan
from course_lib.plan.optimizers import OptimizerRule
from course_lib.plan.step_trace import StepTrace
from course_lib.teach.look import (
    GREY,
    HATCHES,
    INK,
    MARGIN_IN,
    MEMORY_COLOURS,
    QUIET,
    SMALL_PT,
    WIDTH_IN,
    add_axes,
    heading,
    new_figure,
    text_on,
    width_in,
)
from course_lib.teach.picture import Picture
from course_lib.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GIB, _MIB = 2**30, 2**20
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("parameters", ("parameter", "buffer")),
    ("gradients", ("gradient",)),
    ("optimizer states", ("optimizer",)),
    ("activations", ("activation", "input")),
    ("temporaries", ("temporary",)),
)
_ROOM_IN = WIDTH_IN - 2 * MARGIN_IN - 0.1
_LINE_IN, _BAR_IN, _GAP_IN, _HEAD_IN, _AXIS_IN, _CARD_IN = 0.23, 0.34, 0.16, 0.42, 0.55, 0.24
_SQUARE_IN = 0.11
_OVER_LINES = {"fc": "white", "ec": "none", "pad": 1}  # the line of a card must not strike words through


def parts_of(plan: MemoryPlan) -> dict[str, int]:
    """A plan's total in bytes by the colours of the course: what is alive at the peak, what kernels borrow
    (temporaries), and the context with what the allocator keeps unused.
    """
    alive = dict(plan.timeline.alive)
    parts = {name: sum(alive.get(kind, 0) for kind in kinds) for name, kinds in _PARTS}
    parts["temporaries"] += max(0, plan.allocated - plan.timeline.peak_bytes)
    parts["context"] = plan.total - sum(parts.values())
    return {name: nbytes for name, nbytes in parts.items() if nbytes > 0}


def plot_memory(
    plans: MemoryPlan | Mapping[str, MemoryPlan],
    *,
    other: MemoryPlan | None = None,
    title: str = "What a training step holds at its peak (predicted)",
) -> Picture:
    """One stacked bar for each plan, with a black line where the card ends.

    The dashed box behind a bar reaches to the safe figure. The card is that of the last plan; ``other`` adds
    the line of a second card. Raises CourseError for no plan.
    """
    named = {"": plans} if isinstance(plans, MemoryPlan) else dict(plans)
    if not named:
        raise CourseError("There is no plan to draw: give a MemoryPlan, or several by name.")
    last = list(named.values())[-1]
    cards = {last.card: last.capacity} | ({other.card: other.capacity} if other else {})
    longest = 1.03 * max(*(max(p.total, p.safe) for p in named.values()), last.capacity)
    shown = {name: size for name, size in cards.items() if size <= longest}
    legend = list(dict.fromkeys(name for plan in named.values() for name in parts_of(plan)))
    height = len(named) * (_LINE_IN + _BAR_IN + _GAP_IN) + _CARD_IN + _LINE_IN
    figure = new_figure(_HEAD_IN + height + _AXIS_IN, title)
    axes = add_axes(figure, MARGIN_IN, _AXIS_IN, _ROOM_IN, height)
    axes.set(xlim=(0, _ROOM_IN), ylim=(0, height), yticks=[])
    axes.spines["left"].set_visible(False)
    _memory_axis(axes, longest, beyond={name: size for name, size in cards.items() if name not in shown})
    scale = _ROOM_IN / longest
    _legend(axes, legend, height - _LINE_IN / 2)
    top = height - _LINE_IN - _CARD_IN
    bars_top = top
    for name, plan in named.items():
        _bar(axes, name, plan, top, scale)
        top -= _LINE_IN + _BAR_IN + _GAP_IN
    _card_lines(axes, shown, scale, bars_top)
    said = [f"{name + ': ' if name else ''}{_in_words(plan)}" for name, plan in named.items()]
    ends = ", ".join(f"{name} {format_bytes(size)}" for name, size in cards.items())
    return Picture(figure, f"{title}. Stacked bars. {'; '.join(said)}. Cards: {ends}.")


def plot_step(
    trace: StepTrace, optimizer: str | OptimizerRule = "sgd", *, capacity: int | None = None, title: str = ""
) -> Picture:
    """What is alive during one step, in layers: parameters and states lie below, activations pile up in the
    forward pass and go away in the backward pass.

    ``capacity``: bytes of a card for the tensors, drawn as a line.
    """
    alive = alive_over_step(trace, optimizer)
    title = title or f"One step of {trace.model}, batch {trace.batch_size} (predicted)"
    figure = new_figure(3.25, title)
    axes = add_axes(figure, 0.6, 0.42, WIDTH_IN - 0.6 - MARGIN_IN - 0.05, 2.05)
    count = len(alive.phases)
    layers = [[value / _GIB for value in alive.bytes_of[name]] for name in LAYERS]
    axes.stackplot(range(count), layers, colors=[MEMORY_COLOURS[name] for name in LAYERS], lw=0)
    axes.plot(range(count), [total / _GIB for total in alive.totals], "--", color=QUIET, lw=0.7)  # predicted
    highest = max(alive.totals) / _GIB
    top = 1.22 * max(highest, (capacity or 0) / _GIB)
    axes.set(xlim=(0, count - 1), ylim=(0, top), xticks=[])
    axes.set_ylabel("GiB alive")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    _phases(axes, alive.phases)
    at = alive.peak
    axes.plot([at], [highest], "o", color=INK, markersize=4)
    side = "left" if at < count / 2 else "right"
    shift = 6 if side == "left" else -6
    axes.annotate(
        f"peak {highest:.2f} GiB",
        (at, highest),
        (shift, 6),
        textcoords="offset points",
        ha=side,
        fontsize=SMALL_PT,
        color=INK,
    )
    if capacity is not None:
        axes.axhline(capacity / _GIB, color=INK, lw=1.5)
        axes.text(
            count * 0.01,
            capacity / _GIB + 0.02 * top,
            f"limit {capacity / _GIB:.2f} GiB",
            fontsize=SMALL_PT,
            color=INK,
            va="bottom",
        )
    legend = add_axes(figure, 0.6, 2.56, WIDTH_IN - 0.6 - MARGIN_IN, _LINE_IN)
    legend.set(xlim=(0, WIDTH_IN - 0.6 - MARGIN_IN), ylim=(0, _LINE_IN))
    legend.set_axis_off()
    _legend(legend, [name for name in LAYERS if max(alive.bytes_of[name])], _LINE_IN / 2, hatched=False)
    words = ", ".join(f"{name} {format_bytes(alive.bytes_of[name][at])}" for name in LAYERS)
    return Picture(
        figure,
        f"{title}. Live bytes over the operations of a step, in layers. The peak, {highest:.2f} GiB, is in "
        f"the {alive.phases[at]} pass: {words}.",
    )


def _memory_axis(axes: Axes, longest: float, beyond: Mapping[str, int]) -> None:
    unit, factor = ("GiB", _GIB) if longest >= _GIB else ("MiB", _MIB)
    most = longest / factor
    ticks = [tick for tick in MaxNLocator(7).tick_values(0, most) if tick <= most]
    axes.set_xticks([tick / most * _ROOM_IN for tick in ticks], [f"{tick:g}" for tick in ticks])
    further = "".join(f"; {name}, {format_bytes(size)}, ends further right" for name, size in beyond.items())
    axes.set_xlabel(f"memory of the card ({unit}){further}", parse_math=False)


def _bar(axes: Axes, name: str, plan: MemoryPlan, top: float, scale: float) -> None:
    verdict = f"{format_bytes(plan.total)}, {plan.verdict.split(':', 1)[0]}"
    heading(axes, top - _LINE_IN / 2, name, verdict, _ROOM_IN, bbox=_OVER_LINES)
    left, bottom = 0.0, top - _LINE_IN - _BAR_IN
    for part, nbytes in parts_of(plan).items():
        length, colour = nbytes * scale, MEMORY_COLOURS[part]
        edge = 0.6 if length > 0.05 else 0.0
        axes.add_patch(Rectangle((left, bottom), length, _BAR_IN, fc=colour, ec="white", lw=edge))
        axes.add_patch(
            Rectangle(
                (left, bottom),
                length,
                _BAR_IN,
                fill=False,
                ec=(0, 0, 0, 0.3),
                lw=0,
                hatch=HATCHES["predicted"],
            )
        )
        label = format_bytes(nbytes)
        if width_in(label, SMALL_PT) + 0.12 <= length:
            axes.text(
                left + length / 2,
                bottom + _BAR_IN / 2,
                label,
                fontsize=SMALL_PT,
                color=text_on(colour),
                ha="center",
                va="center",
                bbox={"fc": colour, "ec": "none", "pad": 1},
            )
        left += length
    axes.add_patch(
        Rectangle(
            (left, bottom), max(0.0, plan.safe * scale - left), _BAR_IN, fill=False, ec=QUIET, lw=0.9, ls="--"
        )
    )


def _card_lines(axes: Axes, cards: Mapping[str, int], scale: float, top: float) -> None:
    """A black line where each card ends, its name above it, and no two names over each other."""
    taken = -1.0
    for name, size in sorted(cards.items(), key=lambda item: item[1]):
        x = size * scale
        axes.plot([x, x], [0, top], color=INK, lw=1.6, clip_on=False)
        width = width_in(name, SMALL_PT, bold=True)
        at = min(max(0.0, x - width / 2), _ROOM_IN - width)
        at = max(at, taken)
        axes.text(at, top + 0.04, name, fontsize=SMALL_PT, weight="bold", color=INK, va="bottom")
        taken = at + width + 0.1


def _legend(axes: Axes, names: Sequence[str], y: float, *, hatched: bool = True) -> None:
    x = 0.0
    for name in names:
        colour = MEMORY_COLOURS[name]
        axes.add_patch(
            Rectangle((x, y - _SQUARE_IN / 2), _SQUARE_IN, _SQUARE_IN, fc=colour, ec=QUIET, lw=0.4)
        )
        axes.text(x + _SQUARE_IN + 0.04, y, name, fontsize=SMALL_PT, color=INK, va="center_baseline")
        x += _SQUARE_IN + 0.04 + width_in(name, SMALL_PT) + 0.11


def _phases(axes: Axes, phases: Sequence[str]) -> None:
    """The names of the phases below the axis, and thin lines between them; the optimizer is one moment."""
    start = 0
    for phase in ("forward", "backward"):
        count = sum(one == phase for one in phases)
        if count:
            axes.text(
                start + count / 2,
                -0.06,
                f"{phase} pass",
                fontsize=SMALL_PT,
                color=QUIET,
                ha="center",
                va="top",
                transform=axes.get_xaxis_transform(),
            )
            start += count
            axes.axvline(start - 0.5, color=GREY, lw=0.8, ls=":")
    axes.text(
        1,
        -0.06,
        "then the optimizer",
        fontsize=SMALL_PT,
        color=QUIET,
        ha="right",
        va="top",
        transform=axes.transAxes,
    )


def _in_words(plan: MemoryPlan) -> str:
    parts = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in parts_of(plan).items())
    return f"{format_bytes(plan.total)}, {plan.verdict}: {parts}"
