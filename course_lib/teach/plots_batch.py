"""Pictures of batch sizes: the guide's rule against twenty models, and a search by trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from course_lib.train.batch_size_result import BatchSizeSearch
from course_lib.units import format_bytes

if TYPE_CHECKING:
    from course_lib.teach.labs.oom import RuleOfThumb

_MIB = 2**20


def plot_rule(rule: RuleOfThumb, *, title: str = "") -> Picture:
    """For each card a row of dots, one for each model: how many times the guide's first batch would fit."""
    title = title or f"The guide's first batch against the largest that fits, {len(rule.largest)} models"
    rows = list(rule.rule)
    figure = new_figure(0.95 + 0.5 * len(rows) + 0.55, title)
    axes = add_axes(figure, 1.35, 0.6, WIDTH_IN - 1.35 - 0.25, 0.5 * len(rows))
    axes.set(xscale="log", xlim=(0.03, 300), ylim=(-0.5, len(rows) - 0.5))
    axes.set_yticks(range(len(rows)), [f"{card}: {rule.rule[card]:g}" for card in rows])
    axes.set_xticks([0.1, 1, 10, 100], ["a tenth", "just fits", "10 times", "100 times"])
    axes.minorticks_off()
    axes.set_xlabel("the largest batch that fits, as a multiple of the guide's")
    axes.axvspan(0.03, 1, color=VERMILLION, alpha=0.15, lw=0)
    axes.axvline(1, color=INK, lw=1.2)
    for number, card in enumerate(rows):
        factors = [row[card] / rule.rule[card] for row in rule.largest.values()]
        axes.plot(
            [max(factor, 0.05) for factor in factors],
            [number] * len(factors),
            "o",
            color=QUIET,
            markersize=6,
            alpha=0.55,
            markeredgewidth=0,
        )
    axes.text(
        0.18, len(rows) - 0.45, "runs out of memory", fontsize=SMALL_PT, color=INK, ha="center", va="bottom"
    )
    axes.text(
        12, len(rows) - 0.45, "room left unused", fontsize=SMALL_PT, color=INK, ha="center", va="bottom"
    )
    return Picture(
        figure,
        f"{title}. Dots on a logarithmic axis, predicted. Of {len(rule.factors)} pairs, {rule.failures} run "
        f"out of memory at the guide's batch, {rule.within_two} are within a factor of two; the largest "
        f"factor is {rule.too_small:.0f}.",
    )


def plot_trials(search: BatchSizeSearch, *, title: str = "Two probes, a line, one confirmation") -> Picture:
    """Memory against the batch size: what the trials read, the line through them, and the limit."""
    read = [(t.batch_size, t.peak_bytes) for t in search.trials if t.fits and t.peak_bytes is not None]
    failed = [t.batch_size for t in search.trials if not t.fits]
    figure = new_figure(3.2, title)
    axes = add_axes(figure, 0.75, 0.62, WIDTH_IN - 0.75 - 0.35, 2.1)
    most = max([size for size, _ in read] + failed)
    limit = (search.limit_bytes or max(peak for _, peak in read)) / _MIB
    axes.set(xlim=(0, 1.08 * most), ylim=(0, 1.18 * limit), xlabel="batch size")
    axes.set_ylabel("MiB in use")
    axes.axhline(limit, color=INK, lw=1.5)
    axes.text(0.01 * most, 1.02 * limit, f"limit {limit:,.0f} MiB", fontsize=SMALL_PT, color=INK, va="bottom")
    if search.fixed_bytes is not None and search.bytes_per_sample:
        ends = (0.0, 1.05 * most)
        line = [(search.fixed_bytes + search.bytes_per_sample * size) / _MIB for size in ends]
        axes.plot(ends, line, "--", color=QUIET, lw=1.3)
    for number, (size, peak) in enumerate(read, start=1):
        axes.plot([size], [peak / _MIB], "o", color=MEMORY_COLOURS["activations"], markersize=7)
        right = size > 0.8 * most
        axes.annotate(
            f"{number}: {size}",
            (size, peak / _MIB),
            (-8 if right else 8, -14),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=SMALL_PT,
            color=INK,
        )
    for size in failed:
        axes.plot([size], [1.06 * limit], "x", color=VERMILLION, markersize=8, mew=2, clip_on=False)
    told = ", ".join(f"batch {size} at {format_bytes(peak)}" for size, peak in read)
    return Picture(
        figure,
        f"{title}. Memory over the batch size, measured: {told}; {len(failed)} out of memory. The limit is "
        f"{limit:,.0f} MiB. The line meets it near {search.batch_size}.",
    )
