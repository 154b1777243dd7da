"""Which pictures does lesson 05 draw? What each update was made of, and what an update costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle

from course_lib.errors import CourseError
from course_lib.teach.look import (
    GREY,
    INK,
    MARGIN_IN,
    MEMORY_COLOURS,
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
from course_lib.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from course_lib.train.equivalence import Proof
    from course_lib.train.update_cost import UpdateCost

_TITLE_IN = 0.42
_CELL_IN = 0.2
_SHARE = 1e-6  # nearer to 1 than this is right


def plot_made_of(proofs: Proof | Mapping[str, Proof], *, title: str) -> Picture:
    """What each update was made of: a row for each, a column for each micro-batch of each epoch.

    A frame stands where a micro-batch belongs, its number says how much it counts: 1 is its share of the
    window. Blue is right, red is wrong. Computed, from the gradients that the updates used.

    Raises:
        CourseError: there is nothing to draw.
    """
    named = dict(proofs) if isinstance(proofs, Mapping) else {"": proofs}
    if not any(proof.columns for proof in named.values()):
        raise CourseError("There is no update to draw: the step made none.")
    heads = {name: 0.3 if name else 0.05 for name in named}
    rows = {name: max(len(proof.made_of), len(proof.expected_made_of)) for name, proof in named.items()}
    below = 0.55
    height = _TITLE_IN + sum(heads[name] + rows[name] * _CELL_IN + 0.12 for name in named) + below
    figure = new_figure(height, title)
    left = 0.85
    top = height - _TITLE_IN
    alts = []
    for number, (name, proof) in enumerate(named.items()):
        top -= heads[name] + rows[name] * _CELL_IN
        axes = add_axes(figure, left, top, WIDTH_IN - left - MARGIN_IN, rows[name] * _CELL_IN)
        if name:
            axes.set_title(name, fontsize=TEXT_PT, color=INK, loc="left", pad=4)
        _draw_weights(axes, proof, rows[name], last=number == len(named) - 1)
        top -= 0.12
        alts.append(f"{name + ': ' if name else ''}{_weights_in_words(proof)}")
    return Picture(figure, f"{title}. Tables, rows are updates, columns are micro-batches. {' '.join(alts)}")


def _draw_weights(axes: Axes, proof: Proof, rows: int, *, last: bool) -> None:
    columns = len(proof.columns)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.spines[:].set_visible(False)
    axes.set_yticks([row + 0.5 for row in range(rows)], [f"update {row + 1}" for row in range(rows)])
    axes.tick_params(length=0)
    names = [column.partition(".")[2] for column in proof.columns]
    axes.set_xticks([c + 0.5 for c in range(columns)], names if last else [""] * columns)
    if last:
        axes.set_xlabel("micro-batch, in two passes over the data")
    for row in range(rows):
        weights = proof.made_of[row] if row < len(proof.made_of) else (0.0,) * columns
        wanted = _wanted(proof, row)
        for column, weight in enumerate(weights):
            right = abs(weight - wanted[column]) < _SHARE
            if abs(weight) > _SHARE:
                colour = SKY_BLUE if right else VERMILLION
                axes.add_patch(Rectangle((column, row), 1, 1, fc=colour, ec="white", lw=0.8))
                axes.text(
                    column + 0.5, row + 0.52, _short(weight), ha="center", va="center",
                    fontsize=SMALL_PT - 1, color=text_on(colour),
                )  # fmt: skip
    for row, wanted_row in enumerate(proof.expected_made_of):
        for column, weight in enumerate(wanted_row):
            if weight:
                axes.add_patch(
                    Rectangle((column, row), 1, 1, fill=False, ec=QUIET, lw=0.7, zorder=3, clip_on=False)
                )


def _wanted(proof: Proof, row: int) -> Sequence[float]:
    """The row that an update should have had: the one of its number."""
    return proof.expected_made_of[row] if row < len(proof.expected_made_of) else (0.0,) * len(proof.columns)


def _short(weight: float) -> str:
    """A number of at most three characters."""
    if abs(weight - round(weight)) < 0.005 and abs(weight) < 999:
        return f"{round(weight)}" if round(weight) else "~0"
    if abs(weight) < 0.995:
        return f"{weight:.2f}".replace("0.", ".")
    return f"{weight:.1f}" if abs(weight) < 9.95 else f"{weight:.0f}"


def _weights_in_words(proof: Proof) -> str:
    parts = []
    for row, weights in enumerate(proof.made_of):
        held = [(proof.columns[c], w) for c, w in enumerate(weights) if abs(w) > _SHARE]
        if not held:
            parts.append(f"update {row + 1} holds nothing")
            continue
        values = sorted({_short(w) for _, w in held})
        span = f"{held[0][0]} to {held[-1][0]}"
        parts.append(f"update {row + 1} holds micro-batches {span}, counting {' and '.join(values)}")
    missing = len(proof.expected_made_of) - len(proof.made_of)
    if missing > 0:
        parts.append(f"{missing} updates are missing")
    return "; ".join(parts) + "."


def plot_update_costs(costs: Sequence[UpdateCost], *, title: str) -> Picture:
    """Memory (counted) and time (measured) of the same update in several cuts: bars for both.

    Raises:
        CourseError: there is no measurement.
    """
    if not costs:
        raise CourseError("There is no measurement to draw.")
    names = [f"{c.accumulation_steps} × {c.micro_batch}" for c in costs]
    bar, gap = 0.36, 0.75
    left = 0.3 + max(width_in(name, TEXT_PT) for name in names)
    height = bar * len(costs)
    figure = new_figure(_TITLE_IN + 0.25 + height + 0.42, title)
    room = (WIDTH_IN - left - gap - 1.0) / 2
    memory = [[float(c.steady_bytes), float(c.kept_bytes)] for c in costs]
    times = [[c.seconds_per_sample] for c in costs]
    panels: tuple[tuple[str, list[list[float]], tuple[str, ...], list[str]], ...] = (
        (
            "memory, counted",
            memory,
            (GREY, MEMORY_COLOURS["activations"]),
            [format_bytes(round(sum(m))) for m in memory],
        ),
        (
            "time of one image, measured",
            times,
            (TIME_COLOURS["backward"],),
            [format_seconds(t[0]) for t in times],
        ),
    )
    for column, (name, values, colours, labels) in enumerate(panels):
        axes = add_axes(figure, left + column * (room + gap), 0.42, room, height)
        most = max(sum(parts) for parts in values) or 1.0
        axes.set(xlim=(0, most), ylim=(len(costs), 0), xticks=[], yticks=[])
        axes.spines["bottom"].set_visible(False)
        axes.set_title(name, fontsize=TEXT_PT, color=INK, loc="left", pad=4)
        for row, parts in enumerate(values):
            begin = 0.0
            for part, colour in zip(parts, colours, strict=True):
                axes.add_patch(Rectangle((begin, row + 0.12), part, 0.76, fc=colour))
                begin += part
            axes.text(begin + 0.03 * most, row + 0.5, labels[row], va="center", fontsize=TEXT_PT, color=INK)
            if not column:
                axes.text(
                    -0.05 * most, row + 0.5, names[row], ha="right", va="center", fontsize=TEXT_PT, color=INK
                )
    x = MARGIN_IN
    for words, colour in (
        ("weights, gradients, optimizer", GREY),
        ("activations of one micro-batch", MEMORY_COLOURS["activations"]),
    ):
        wide, high = figure.get_size_inches()
        square = Rectangle((x / wide, 0.13 / high), 0.11 / wide, 0.11 / high, fc=colour, ec=QUIET, lw=0.4)
        figure.add_artist(square)
        figure.text((x + 0.16) / wide, 0.185 / high, words, fontsize=SMALL_PT, color=INK, va="center")
        x += 0.35 + width_in(words, SMALL_PT)
    told = "; ".join(
        f"{name}: {of_memory}, {of_time} an image"
        for name, of_memory, of_time in zip(names, panels[0][3], panels[1][3], strict=True)
    )
    return Picture(figure, f"{title}. Bars; memory counted, time measured. {told}.")
