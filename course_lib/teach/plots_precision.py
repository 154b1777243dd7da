"""Which pictures does lesson 03 draw? Bits, sizes of numbers, types, the life of a scaler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter

from course_lib.errors import CourseError
from course_lib.teach.look import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MARGIN_IN,
    ORANGE,
    PURPLE,
    SKY_BLUE,
    SMALL_PT,
    TEXT_PT,
    VERMILLION,
    WIDTH_IN,
    YELLOW,
    add_axes,
    legend,
    new_figure,
    text_on,
)
from course_lib.teach.picture import Picture
from course_lib.train.number_formats.float_formats import Bits, float_format

if TYPE_CHECKING:
    from course_lib.train.number_formats.dtype_inspector import DtypeReport
    from course_lib.train.number_formats.exponents import ExponentHistogram
    from course_lib.train.number_formats.scaler_life import ScalerLife

FORMAT_COLOURS: Mapping[str, str] = {
    "fp32": BLUE,
    "tf32": SKY_BLUE,
    "bf16": GREEN,
    "fp16": ORANGE,
    "fp64": GREY,
}
_TITLE_IN = 0.42


def plot_bits(numbers: Sequence[Bits], *, title: str = "") -> Picture:
    """Rows of boxes, one a bit: sign, exponent, fraction, and beside them the number that they stand for.

    Raises CourseError when there is nothing to draw.
    """
    if not numbers:
        raise CourseError("There is no number to draw.")
    row, left, box = 0.36, 0.6, 0.132
    title = title or f"{numbers[0].asked:g}, bit by bit"
    height = row * len(numbers)
    figure = new_figure(_TITLE_IN + 0.3 + height + 0.1, title)
    axes = add_axes(figure, 0, 0.1, WIDTH_IN, height)
    axes.set(xlim=(0, WIDTH_IN), ylim=(height, 0), xticks=[], yticks=[])
    axes.axis("off")
    for number, bits in enumerate(numbers):
        middle = (number + 0.5) * row
        axes.text(left - 0.1, middle, bits.format.name, ha="right", va="center", fontsize=TEXT_PT, color=INK)
        x = left
        for part, colour in ((bits.sign, GREY), (bits.exponent, ORANGE), (bits.fraction, SKY_BLUE)):
            for bit in part:
                axes.add_patch(Rectangle((x, middle - 0.12), box, 0.24, fc=colour, ec="white", lw=0.8))
                axes.text(
                    x + box / 2, middle, bit, ha="center", va="center", fontsize=8, color=text_on(colour)
                )
                x += box
        axes.text(x + 0.1, middle, f"= {bits.held:.7g}", va="center", fontsize=TEXT_PT, color=INK)
    legend(figure, {"sign": GREY, "exponent": ORANGE, "fraction": SKY_BLUE}, _TITLE_IN)
    told = "; ".join(
        f"{b.format.name} {b.sign} {b.exponent} {b.fraction}, which is {b.held:.7g}" for b in numbers
    )
    return Picture(figure, f"{title}. Bits of sign, exponent and fraction. {told}.")


def plot_exponents(
    counted: ExponentHistogram, name: str, scale: float = 1.0, *, what: str = "gradients", title: str = ""
) -> Picture:
    """The sizes of some numbers, multiplied by `scale`, against the range of a format; measured.

    Raises CourseError when all numbers are zero, for an unknown format, or a scale that is no power of two.
    """
    form = float_format(name)
    shift = round(math.log2(scale)) if scale > 0 else 0
    lost = counted.becomes_zero(name, scale)
    rough, infinite = counted.loses_bits(name, scale), counted.overflows(name, scale)
    counted.span()
    title = title or f"{what[:1].upper()}{what[1:]} × 2^{shift} in {name}"
    figure = new_figure(3.2, title)
    axes = add_axes(figure, 0.75, 0.55, WIDTH_IN - 0.75 - MARGIN_IN - 0.05, 1.72)
    ends = {
        "zero": math.log2(form.smallest) - 1,
        "fine": math.log2(form.smallest_normal),
        "top": float(math.log2(form.largest) // 1 + 1),
    }
    bins = {exponent + shift: count for exponent, count in counted.by_exponent().items()}
    colours = {
        "become zero": VERMILLION,
        "lose bits": YELLOW,
        "held in full": GREEN,
        "become infinite": PURPLE,
    }
    for exponent, count in bins.items():
        if exponent < ends["zero"]:
            kind = "become zero"
        elif exponent < ends["fine"]:
            kind = "lose bits"
        else:
            kind = "held in full" if exponent < ends["top"] else "become infinite"
        share = 100 * count / counted.nonzero
        axes.add_patch(Rectangle((exponent, 0), 1, share, fc=colours[kind], ec="white", lw=0.5))
    most = 100 * max(bins.values()) / counted.nonzero
    axes.set(xlim=(-60, 44), ylim=(0, 1.18 * most), xlabel="size (power of two)", ylabel="share (%)")
    axes.xaxis.set_major_locator(FixedLocator(list(range(-56, 45, 8))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"$2^{{{round(x)}}}$"))
    for end in (ends["zero"], ends["top"]):
        if -60 < end < 44:
            axes.axvline(end, color="black", lw=1.6)
    if ends["zero"] > -60:
        middle = (ends["zero"] + ends["top"]) / 2
        axes.text(
            middle,
            1.08 * most,
            f"the range of {name}",
            ha="center",
            va="center",
            fontsize=SMALL_PT,
            color=INK,
        )
    else:
        axes.text(-8, 1.08 * most, f"the range of {name} goes on to both sides", ha="center", va="center",
                  fontsize=SMALL_PT, color=INK)  # fmt: skip
    shares = {
        "become zero": lost,
        "lose bits": rough,
        "held in full": 1 - lost - rough - infinite,
        "become infinite": infinite,
    }
    named = {f"{kind} {abs(share):.1%}": colours[kind] for kind, share in shares.items()}
    legend(figure, named, _TITLE_IN)
    return Picture(
        figure,
        f"{title}. Histogram over powers of two, measured. {lost:.1%} become zero, {rough:.1%} lose bits, "
        f"{infinite:.1%} become infinite.",
    )


def plot_dtypes(report: DtypeReport, *, title: str = "") -> Picture:
    """For each operation of the forward pass, how often it ran, coloured by the type of its result."""
    counts = report.by_operation()
    if not counts:
        raise CourseError("The model did no operation on floating-point numbers.")
    title = title or f"What autocast chose, operation by operation ({report.precision.format})"
    bar, left = 0.27, 2.25
    height = bar * len(counts)
    figure = new_figure(_TITLE_IN + 0.28 + height + 0.12, title)
    most = max(sum(types.values()) for types in counts.values())
    axes = add_axes(figure, left, 0.12, WIDTH_IN - left - 0.9, height)
    axes.set(xlim=(0, most), ylim=(len(counts), 0), xticks=[], yticks=[])
    axes.spines["bottom"].set_visible(False)
    for row, (name, types) in enumerate(counts.items()):
        axes.text(
            -0.02 * most, row + 0.5, name.strip("_"), ha="right", va="center", fontsize=TEXT_PT, color=INK
        )
        start = 0
        for kind, many in types.items():
            axes.add_patch(
                Rectangle((start, row + 0.1), many, 0.8, fc=FORMAT_COLOURS[kind], ec="white", lw=0.6)
            )
            start += many
        told = " + ".join(f"{many} {kind}" for kind, many in types.items())
        axes.text(start + 0.02 * most, row + 0.5, told, va="center", fontsize=SMALL_PT, color=INK)
    used = dict.fromkeys(kind for types in counts.values() for kind in types)
    legend(figure, {kind: FORMAT_COLOURS[kind] for kind in used}, _TITLE_IN)
    alts = "; ".join(
        f"{name}: " + ", ".join(f"{n} in {k}" for k, n in types.items()) for name, types in counts.items()
    )
    return Picture(figure, f"{title}. Bars, counted. {alts}.")


def plot_scaler(life: ScalerLife, *, title: str = "") -> Picture:
    """The scale over the steps, on an axis of powers of two, with the skipped updates marked; measured."""
    title = title or f"The scale over {len(life.steps)} steps: {len(life.skipped)} updates skipped"
    figure = new_figure(2.9, title)
    axes = add_axes(figure, 0.75, 0.55, WIDTH_IN - 0.75 - MARGIN_IN - 0.1, 1.6)
    numbers = [step.step for step in life.steps]
    powers = [math.log2(step.scale) for step in life.steps]
    axes.step(numbers, powers, where="mid", color=BLUE, lw=2)
    skipped = [step for step in life.steps if step.skipped]
    axes.scatter(
        [s.step for s in skipped],
        [math.log2(s.scale) for s in skipped],
        color=VERMILLION,
        zorder=3,
        s=42,
        marker="X",
    )
    low, high = math.floor(min(powers)) - 1, math.ceil(max(powers)) + 1
    every = max(1, math.ceil((high - low) / 6))
    axes.set(xlim=(0, numbers[-1] + 1), ylim=(low, high), xlabel="step", ylabel="scale")
    axes.yaxis.set_major_locator(FixedLocator(list(range(low + 1, high, every))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"$2^{{{round(y)}}}$"))
    legend(figure, {"scale": BLUE, "update skipped, scale halved": VERMILLION}, _TITLE_IN)
    where = ", ".join(map(str, life.skipped)) or "none"
    return Picture(
        figure,
        f"{title}. A line, measured: from {life.steps[0].scale:,.0f} to {life.final_scale:,.0f}. "
        f"Skipped: {where}.",
    )
