"""Which pictures does lesson 02 draw? Who gets which samples, buckets in time, and what more cards give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle

from course_lib.errors import CourseError
from course_lib.teach.look import (
    BLUE,
    GREY,
    HATCHES,
    INK,
    LINE_STYLES,
    MARGIN_IN,
    ORANGE,
    QUIET,
    SKY_BLUE,
    SMALL_PT,
    TEXT_PT,
    TIME_COLOURS,
    VERMILLION,
    WIDTH_IN,
    add_axes,
    new_figure,
    text_on,
    width_in,
)
from course_lib.teach.picture import Picture
from course_lib.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.plan.scaling import ScaledStep
    from course_lib.teach.scale_out import ScaleOut
    from course_lib.train.ranks.communication import BucketTrace

_TITLE_IN = 0.42
_RANK_COLOURS = (BLUE, ORANGE, SKY_BLUE, VERMILLION)
MOST_SAMPLES = 16


def plot_samples(
    passes: Mapping[str, Sequence[Sequence[Sequence[int]]]], *, count: int = MOST_SAMPLES, title: str = ""
) -> Picture:
    """Which rank trains on which of the first samples, in which step of each pass.

    Args:
        passes: a row for each name: for each rank, for each step, the indices of its samples.
        count: how many samples are shown, from index 0 on, 1 to 16.
        title: stands above.

    Raises:
        CourseError: there is no pass, more than four ranks, or another count.
    """
    if not passes or not 1 <= count <= MOST_SAMPLES:
        raise CourseError(f"Give a pass, and 1 to {MOST_SAMPLES} samples to draw.")
    if any(len(ranks) > len(_RANK_COLOURS) for ranks in passes.values()):
        raise CourseError(f"At most {len(_RANK_COLOURS)} ranks can be told apart in this picture.")
    left, cell = 1.75, 0.4
    pitch = min(0.285, (WIDTH_IN - left - MARGIN_IN) / count)
    height = cell * len(passes)
    figure = new_figure(_TITLE_IN + 0.3 + height + 0.5, title)
    axes = add_axes(figure, left, 0.5, pitch * count, height)
    axes.set(xlim=(0, count), ylim=(len(passes), 0), yticks=[], xlabel="sample number")
    axes.set_xticks([i + 0.5 for i in range(count)], [str(i) for i in range(count)])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    alts = []
    for row, (name, ranks) in enumerate(passes.items()):
        axes.text(-0.2, row + 0.5, name, ha="right", va="center", fontsize=TEXT_PT, color=INK)
        told = []
        for sample in range(count):
            owner, step = _find(ranks, sample)
            colour = "#F2F2F2" if owner is None else _RANK_COLOURS[owner]
            axes.add_patch(Rectangle((sample + 0.04, row + 0.08), 0.92, 0.84, fc=colour, ec="none"))
            if step is not None:
                axes.text(
                    sample + 0.5,
                    row + 0.5,
                    str(step + 1),
                    ha="center",
                    va="center",
                    fontsize=SMALL_PT,
                    color=text_on(colour),
                )
            told.append("nobody" if owner is None else f"rank {owner}")
        alts.append(f"{name}: {', '.join(told)}")
    _legend_row(figure, max(len(ranks) for ranks in passes.values()))
    return Picture(figure, f"{title.rstrip('?.')}. Samples 0 to {count - 1}, by rank. {'; '.join(alts)}.")


def _find(ranks: Sequence[Sequence[Sequence[int]]], sample: int) -> tuple[int | None, int | None]:
    for rank, steps in enumerate(ranks):
        for step, indices in enumerate(steps):
            if sample in indices:
                return rank, step
    return None, None


def _legend_row(figure: object, ranks: int) -> None:
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    width, height = figure.get_size_inches()
    x, y = MARGIN_IN, height - _TITLE_IN - 0.08
    for rank in range(ranks):
        figure.add_artist(
            Rectangle(
                (x / width, (y - 0.055) / height),
                0.11 / width,
                0.11 / height,
                fc=_RANK_COLOURS[rank],
                ec=QUIET,
                lw=0.4,
            )
        )
        name = f"rank {rank}"
        figure.text((x + 0.16) / width, y / height, name, fontsize=SMALL_PT, color=INK, va="center")
        x += 0.36 + width_in(name, SMALL_PT)
    figure.text(x / width, y / height, "number: in which step", fontsize=SMALL_PT, color=QUIET, va="center")


def plot_buckets(traces: Mapping[str, BucketTrace], *, title: str = "The exchange of one step") -> Picture:
    """The backward pass, and below it each bucket of gradients on its way, for one setting or several.

    Raises:
        CourseError: there is nothing to draw.
    """
    if not traces:
        raise CourseError("There is no step to draw.")
    left, bar, head = 1.3, 0.2, 0.3
    rows = sum(1 + len(trace.sizes) for trace in traces.values())
    height = rows * bar + head * len(traces)
    end = max(max(trace.end_s) for trace in traces.values())
    figure = new_figure(_TITLE_IN + height + 0.6, title)
    room = WIDTH_IN - left - MARGIN_IN - 0.75
    axes = add_axes(figure, left, 0.55, room, height)
    axes.set(
        xlim=(0, 1000 * end),
        ylim=(height, 0),
        yticks=[],
        xlabel="ms from the start of the backward pass, measured",
    )
    axes.spines["left"].set_visible(False)
    top, alts = 0.0, []
    for name, trace in traces.items():
        axes.text(
            0, top + head / 2, name, fontsize=TEXT_PT, color=INK, weight="bold", va="center", clip_on=False
        )
        top += head
        ends = 1000 * trace.backward_s
        _span(axes, (0, ends), (top, bar), TIME_COLOURS["backward"], "backward")
        top += bar
        for number, (size, begin, stop) in enumerate(
            zip(trace.sizes, trace.begin_s, trace.end_s, strict=True), start=1
        ):
            label = f"bucket {number}, {size / 2**20:.3g} MiB"
            _span(axes, (1000 * begin, 1000 * stop), (top, bar), TIME_COLOURS["communication"], label)
            top += bar
        axes.plot([ends, ends], [top - bar * (1 + len(trace.sizes)), top], color="black", linewidth=1)
        exposed = 1000 * max(0.0, max(trace.end_s) - trace.backward_s)
        told = f"{exposed:.1f} ms exposed"
        axes.text(
            1000 * end * 1.01,
            top - bar,
            told.replace(" exp", "\nexp"),
            fontsize=SMALL_PT,
            color=INK,
            va="center",
        )
        many = f"{len(trace.sizes)} bucket{'s' * (len(trace.sizes) > 1)}"
        alts.append(f"{name}: {many}, {told}")
    return Picture(figure, f"{title}, measured. {'; '.join(alts)}.")


def _span(axes: Axes, span: tuple[float, float], rows: tuple[float, float], colour: str, label: str) -> None:
    top, bar = rows
    axes.add_patch(
        Rectangle((span[0], top + 0.02), span[1] - span[0], bar - 0.04, fc=colour, ec="white", lw=0.6)
    )
    axes.annotate(
        label,
        (0, top + bar / 2),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=SMALL_PT,
        color=QUIET,
        annotation_clip=False,
    )


def plot_scaling(
    out: ScaleOut,
    measured: Mapping[int, float] | None = None,
    *,
    title: str = "What more cards give (predicted)",
) -> Picture:
    """Efficiency over the number of cards, and where the time of the chosen step goes.

    ``measured`` holds efficiencies (0 to 1) by number of ranks that were measured, if any.
    """
    figure = new_figure(3.5, title)
    curve = add_axes(figure, 0.65, 0.6, 2.75, 2.15)
    counts = [step.cards for step in out.steps]
    shares = [100 * step.efficiency for step in out.steps]
    curve.plot(counts, shares, color=BLUE, linestyle=LINE_STYLES["predicted"], marker="o", markersize=3.5)
    curve.set_xscale("log", base=2)
    curve.set(xlim=(0.8, 1300), ylim=(0, 112), xlabel="cards", ylabel="efficiency (%)")
    ticks = [1, 8, 64, 1024] if len(counts) > 4 else counts
    curve.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    curve.minorticks_off()
    chosen = out.step
    curve.plot([chosen.cards], [100 * chosen.efficiency], "o", color=VERMILLION, markersize=8)
    if measured:
        curve.plot(
            list(measured), [100 * share for share in measured.values()], "D", color="black", markersize=6,
            linestyle="none",
        )  # fmt: skip
    curve.axvline(8, color=GREY, linewidth=0.8)
    curve.text(8.6, 105, "several computers", fontsize=SMALL_PT, color=QUIET)  # no curve comes so high
    _step_bar(add_axes(figure, 4.3, 0.6, 0.55, 2.15), chosen)
    told = "; ".join(f"{count}: {share:.0f} %" for count, share in zip(counts, shares, strict=True))
    seen = "".join(f" Measured with {n}: {100 * s:.0f} %." for n, s in (measured or {}).items())
    return Picture(
        figure,
        f"{title}. Efficiency by number of cards: {told}. Chosen: {out}.{seen} Link {out.link}, "
        f"{out.network}.",
    )


def _step_bar(axes: Axes, step: ScaledStep) -> None:
    parts = {
        "forward": (step.one_card / 3, TIME_COLOURS["forward"]),
        "backward": (step.one_card * 2 / 3, TIME_COLOURS["backward"]),
        "exposed": (step.exposed, TIME_COLOURS["communication"]),
        "waiting": (step.waiting, GREY),
    }
    whole = sum(seconds for seconds, _ in parts.values())
    bottom, lowest = 0.0, 0.0
    for name, (seconds, colour) in parts.items():
        share = seconds / whole
        axes.bar(
            0,
            share,
            bottom=bottom,
            color=colour,
            width=1,
            hatch=HATCHES["predicted"],
            edgecolor="white",
            lw=0.6,
        )
        if seconds > 0:
            y = max(bottom + share / 2, lowest)  # one line above the label before it
            lowest = y + 0.09
            label = f"{name} {format_seconds(seconds)}"
            axes.annotate(label, (0.6, y), fontsize=SMALL_PT, color=INK, va="center", annotation_clip=False)
        bottom += share
    axes.set(xlim=(-0.5, 0.5), ylim=(0, 1.02), xticks=[], yticks=[])
    axes.spines[["left", "bottom"]].set_visible(False)
    cards = f"{step.cards:,} card{'s' * (step.cards > 1)}"
    axes.set_title(
        f"a step on {cards}:\n{format_seconds(step.seconds)}", fontsize=TEXT_PT, color=INK, loc="left", pad=14
    )
