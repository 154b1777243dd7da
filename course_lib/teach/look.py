"""How does every picture of the course look? Colours with a fixed meaning, sizes, and how certain a thing is.

The same thing has the same colour in every lesson. What was measured is drawn solid, what was predicted
hatched or dashed, what was emulated dotted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path as _text_to_path

# Okabe and Ito's colours, which colour-blind readers can tell apart.
ORANGE, SKY_BLUE, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
INK = "#222222"
QUIET = "#595959"  # contrast of 7 to 1 on white, for small text

TIME_COLOURS: Mapping[str, str] = {
    "data": ORANGE,
    "transfer": YELLOW,
    "forward": SKY_BLUE,
    "backward": BLUE,
    "optimizer": GREEN,
    "communication": PURPLE,
    "rest": GREY,
}
MEMORY_COLOURS: Mapping[str, str] = {
    "parameters": BLUE,
    "gradients": SKY_BLUE,
    "optimizer states": GREEN,
    "activations": ORANGE,
    "temporaries": YELLOW,
    "context": GREY,
}

How = Literal["measured", "predicted", "emulated"]
HATCHES: Mapping[How, str] = {"measured": "", "predicted": "///", "emulated": "..."}
LINE_STYLES: Mapping[How, str] = {"measured": "-", "predicted": "--", "emulated": ":"}

MARGIN_IN = 0.15
WIDTH_IN = 6.4
"""Width of a picture in inches: 640 pixels of a page, half a laptop's screen."""

PIXELS_PER_INCH = 100
TITLE_PT, TEXT_PT, SMALL_PT = 12, 10.5, 9.5


def new_figure(height_in: float, title: str) -> Figure:
    """A figure of the course's width that belongs to no pyplot, with its title at the top left."""
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=PIXELS_PER_INCH)
    FigureCanvasAgg(figure)
    if title:
        figure.text(
            MARGIN_IN / WIDTH_IN,
            1 - 0.1 / height_in,
            title,
            fontsize=TITLE_PT,
            color=INK,
            weight="bold",
            va="top",
            parse_math=False,
        )
    return figure


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches from the lower left corner, in the course's look."""
    whole_width, whole_height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / whole_width, bottom / whole_height, width / whole_width, height / whole_height)
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL_PT, labelcolor=QUIET, color=QUIET)
    axes.xaxis.label.set(fontsize=TEXT_PT, color=INK)
    axes.yaxis.label.set(fontsize=TEXT_PT, color=INK)
    return axes


def legend(figure: Figure, names: Mapping[str, str], top_in: float) -> None:
    """Squares with names, in lines from ``top_in`` inches below the top; ``names`` to colours."""
    width, height = figure.get_size_inches()
    x, y = MARGIN_IN, height - top_in - 0.08
    for name, colour in names.items():
        needs = 0.17 + width_in(name, SMALL_PT)
        if x + needs > width - MARGIN_IN:
            x, y = MARGIN_IN, y - 0.22
        figure.add_artist(
            Rectangle(
                (x / width, (y - 0.055) / height), 0.11 / width, 0.11 / height, fc=colour, ec=QUIET, lw=0.6
            )
        )
        figure.text((x + 0.16) / width, y / height, name, fontsize=SMALL_PT, color=INK, va="center")
        x += needs + 0.16


def heading(axes: Axes, y: float, name: str, summary: str, room_in: float, **style: Any) -> None:
    """A bold name at the left, cut to fit, and a summary beside it; ``axes`` has one unit an inch in x."""
    room = room_in - width_in(summary, SMALL_PT) - 0.15
    while len(name) > 1 and width_in(name, TEXT_PT, bold=True) > room:
        name = name.rstrip("…")[:-1].rstrip() + "…"
    x = 0.0
    if name:
        bold: dict[str, Any] = {"fontsize": TEXT_PT, "color": INK, "weight": "bold", "parse_math": False}
        axes.text(0, y, name, va="center_baseline", **bold, **style)
        x = width_in(name, TEXT_PT, bold=True) + 0.15
    axes.text(x, y, summary, fontsize=SMALL_PT, color=QUIET, va="center_baseline", **style)


def text_on(colour: str) -> str:
    """Black or white, whichever can be read on this colour (WCAG relative luminance)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


@lru_cache(maxsize=2048)
def width_in(text: str, points: float, bold: bool = False) -> float:
    """How wide a text is at a font size, in inches; of several lines, the widest."""
    font = FontProperties(size=points, weight="bold" if bold else "normal")
    return max(
        _text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] / 72
        for line in text.split("\n")
    )
