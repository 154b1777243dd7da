"""How does a figure come into a page, sharp, with a text for those who do not see it, and only once?

A lesson's plotting function returns a `Picture`: a matplotlib figure that belongs to no pyplot, so that it is
shown once, where it is the last line of a cell, and is forgotten with the variable that holds it. It goes
into the page as an <img> with alternative text, which JupyterLab, VS Code, Colab and the HTML page of
``course run`` all show; a bare PNG has no place for that text.
"""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_SCALE = 0.8
"""A picture in a narrow window shrinks to this, where its small print can still be read; then it scrolls."""


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """A figure with its alternative text. ``sharpness``: dots that are drawn for one pixel of the page."""

    figure: Figure
    alt: str
    sharpness: float = 2.0

    def png(self) -> bytes:
        """The picture as a PNG file."""
        data = BytesIO()
        self.figure.savefig(data, format="png", dpi=self.figure.dpi * self.sharpness, facecolor="white")
        return data.getvalue()

    def _repr_html_(self) -> str:
        return self._image(base64.b64encode(self.png()).decode())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        png = base64.b64encode(self.png()).decode()
        return {"text/html": self._image(png), "image/png": png, "text/plain": self.alt}

    def _image(self, png: str) -> str:
        width, height = (round(inches * self.figure.dpi) for inches in self.figure.get_size_inches())
        least = round(_LEAST_SCALE * width)
        # The size keeps the place while the picture is decoded, so that a page with a new one does not jump.
        return (
            '<div style="overflow-x:auto">'
            f'<img alt="{escape(self.alt)}" width="{width}" height="{height}" decoding="sync" '
            f'style="max-width:100%;min-width:{least}px;height:auto" src="data:image/png;base64,{png}"></div>'
        )

    def __str__(self) -> str:
        return self.alt

    def __repr__(self) -> str:
        return f"<Picture: {self.alt}>"


class LivePicture:
    """A picture that changes in its place while a cell runs.

        with LivePicture(draw) as picture:
            for ...:
                picture.refresh()

    ``draw`` makes the picture of this moment. It is called at most every ``every_s`` seconds, and once more
    when the block ends. Outside of a notebook nothing is drawn.
    """

    def __init__(self, draw: Callable[[], Picture], every_s: float = 0.5) -> None:
        self._draw = draw
        self._every_s = every_s
        self._drawn_at = -float("inf")
        self._handle: Any = None

    def __enter__(self) -> Self:
        self.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._drawn_at = -float("inf")
        self.refresh()

    def refresh(self) -> None:
        """Draw again, unless it was done just now."""
        if time.monotonic() - self._drawn_at < self._every_s or not in_notebook():
            return
        from IPython.display import display

        picture = self._draw()
        if self._handle is None:
            self._handle = display(picture, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(picture)
        self._drawn_at = time.monotonic()


def in_notebook() -> bool:
    """Whether this code runs in a kernel, whose front end can show pictures."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
