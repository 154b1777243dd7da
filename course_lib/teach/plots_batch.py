"""Pictures of batch sizes: the guide's rule against twenty models, and a search by trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.errors import CourseError
from course_lib.teach.look import (
    INK,
    MEMORY_COLOURS,
    QUIET,
    SMALL_PT,
    VERMILLION,
    WIDTH_IN,
    add_axes,
    new_figure,
)
from course_lib.teach.picture import Picture
from course_lib.train.rescue.batch_size_result import BatchSizeSearch
from course_lib.units import format_bytes

if TYPE_CHECKING:
    from course_lib.teach.labs.oom import RuleOfThumb

_MIB = 2**20
_LEAST = 0.03  # the left edge of the rule's axis


def plot_rule(rule: RuleOfThumb, *, title: str = "") -> Picture:
    """For each card a row of dots, one for each model: how many times the guide's first batch would fit.

    Where not even one sample fits, the dot stands at the left edge.
    """
    title = title or f"The guide's first batch against the largest that fits, {len(rule.largest)} models"
    rows = list(rule.rule)
    figure = new_figure(0.72 + 0.42 * len(rows) + 0.6, title)
    axes = add_axes(figure, 1.6, 0.6, WIDTH_IN - 1.6 - 0.25, 0.42 * len(rows))
    axes.set(xscale="log", xlim=(_LEAST, 700), ylim=(-0.5, len(rows) - 0.5))
    axes.set_yticks(range(len(rows)), [f"{card}: {rule.rule[card]:g}" for card in rows])
    axes.set_xticks([0.1, 1, 10, 100], ["a tenth", "just fits", "10 times", "100 times"])
    axes.minorticks_off()
    axes.set_xlabel("the largest batch that fits, as a multiple of the guide's")
    axes.axvspan(_LEAST, 1, color=VERMILLION, alpha=0.15, lw=0)
    axes.axvline(1, color=INK, lw=1.2)
    for number, card in enumerate(rows):
        factors = [max(row[card] / rule.rule[card], 1.15 * _LEAST) for row in rule.largest.values()]
        axes.plot(
            factors,
            [number] * len(factors),
            "o",
            color=QUIET,
            markersize=6,
            alpha=0.55,
            markeredgewidth=0,
        )
    for x, words in ((_LEAST**0.5, "runs out of memory"), (25, "room left unused")):
        axes.text(x, len(rows) - 0.42, words, fontsize=SMALL_PT, color=INK, ha="center", va="bottom")
    return Picture(
        figure,
        f"{title}. Dots on a logarithmic axis, predicted. Of {len(rule.factors)} pairs, {rule.failures} run "
        f"out of memory at the guide's batch, {rule.within_two} are within a factor of two; the largest "
        f"factor is {rule.too_small:.0f}.",
    )


def plot_trials(search: BatchSizeSearch, *, title: str = "Two probes, a line, one confirmation") -> Picture:
    """Memory against the batch size, beyond what was in use before: what the trials read, the line through
    them, and the limit.

    Raises CourseError where the memory of no trial could be read.
    """
    start = search.in_use_bytes
    read = [
        (t.batch_size, t.peak_bytes - start) for t in search.trials if t.fits and t.peak_bytes is not None
    ]
    if not read:
        raise CourseError("No trial of this search has a reading of its memory: there is nothing to draw.")
    failed = [t.batch_size for t in search.trials if not t.fits]
    figure = new_figure(3.1, title)
    axes = add_axes(figure, 0.75, 0.62, WIDTH_IN - 0.75 - 0.35, 2.0)
    most = max([size for size, _ in read] + failed)
    limit = ((search.limit_bytes or 0) - start) / _MIB
    top = 1.2 * max(limit, *(peak / _MIB for _, peak in read))
    axes.set(xlim=(0, 1.22 * most), ylim=(0, top), xlabel="batch size")
    axes.set_ylabel("MiB of this step")
    if search.limit_bytes is not None:
        axes.axhline(limit, color=INK, lw=1.5)
        axes.text(0.01 * most, limit, f"limit {limit:,.0f} MiB", fontsize=SMALL_PT, color=INK, va="bottom")
    if search.fixed_bytes is not None and search.bytes_per_sample:
        ends = (0.0, 1.08 * most)
        line = [(search.fixed_bytes - start + search.bytes_per_sample * size) / _MIB for size in ends]
        axes.plot(ends, line, "--", color=QUIET, lw=1.3)
    for number, (size, peak) in enumerate(read, start=1):
        axes.plot([size], [peak / _MIB], "o", color=MEMORY_COLOURS["activations"], markersize=7)
        low = peak / _MIB < 0.25 * top  # beside the point, where the axis is near; else below the line
        axes.annotate(
            f"{number}: batch {size}",
            (size, peak / _MIB),
            (10, -3) if low else (4, -13),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_PT,
            color=INK,
        )
    for size in failed:
        axes.plot([size], [1.06 * limit], "x", color=VERMILLION, markersize=8, mew=2, clip_on=False)
    told = ", ".join(f"batch {size} at {format_bytes(peak)}" for size, peak in read)
    return Picture(
        figure,
        f"{title}. Memory over the batch size, measured, beyond what was in use before: {told}; "
        f"{len(failed)} out of memory. The limit is {limit:,.0f} MiB. The line meets it near "
        f"{search.batch_size}.",
    )
