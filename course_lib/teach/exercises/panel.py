"""How does an answer reach the learner, once, in a notebook and in a terminal?

``check``, ``hint`` and ``solution`` show their panel themselves, so that it is seen wherever in a cell they
are called, and return the object they have shown. As the last line of a cell that object stays quiet: it was
shown in this cell already. Asked for again in a later cell, it shows itself again.
"""

from __future__ import annotations

import html
import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self


@dataclass(frozen=True)
class Tone:
    """How a panel looks. The word in its heading says the same as the colour."""

    mark: str
    colour: str


# Okabe and Ito's colours, which colour-blind readers can tell apart.
GOOD = Tone("\N{CHECK MARK}", "#009E73")
MORE = Tone("\N{RIGHTWARDS ARROW}", "#E69F00")
OPEN = Tone("\N{WHITE CIRCLE}", "#777777")
ADVICE = Tone("?", "#0072B2")


@dataclass(frozen=True)
class Panel:
    """What is shown: a heading, a text, code, small notes. Code inside a text stands between backticks."""

    tone: Tone
    heading: str
    text: str = ""
    code: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"[{self.heading}]" + (f" {self.text}" if self.text else "")]
        if self.code:
            parts.append("\n".join("    " + line for line in self.code.splitlines()))
        parts += [f"  {note}" for note in self.notes]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        tone = self.tone
        parts = [
            f'<b><span style="color:{tone.colour}" aria-hidden="true">{tone.mark}</span> '
            f"{_rich(self.heading)}</b>"
        ]
        if self.text:
            parts.append(f"<div>{_rich(self.text)}</div>")
        if self.code:
            parts.append(
                f'<pre style="margin:.5em 0;white-space:pre;overflow-x:auto">{html.escape(self.code)}</pre>'
            )
        parts += [f'<div style="font-size:90%;opacity:.8">{_rich(note)}</div>' for note in self.notes]
        return (
            f'<div role="status" style="border-left:5px solid {tone.colour};padding:.3em .9em;margin:.4em 0">'
            + "".join(parts)
            + "</div>"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Shown(ABC):
    """What shows itself as a panel, once a cell."""

    _shown_in_cell: int | None = field(default=None, compare=False)

    @property
    @abstractmethod
    def panel(self) -> Panel:
        """What the learner sees."""

    def show(self) -> Self:
        """Show the panel now; the object returned stays quiet at the end of this cell."""
        shell = notebook_shell()
        if shell is None:
            _print(str(self))
            return self
        shell.display_pub.publish(self.mime_bundle())
        return replace(self, _shown_in_cell=shell.execution_count)

    def __str__(self) -> str:
        return str(self.panel)

    def _repr_html_(self) -> str:
        return self.panel._repr_html_()

    def mime_bundle(self) -> dict[str, Any]:
        """What is written into the output of the notebook's cell, by mime type."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def _ipython_display_(self) -> None:
        shell = notebook_shell()
        if shell is not None and shell.execution_count != self._shown_in_cell:
            shell.display_pub.publish(self.mime_bundle())


def notebook_shell() -> Any | None:
    """IPython's shell where one is running (a notebook, an IPython terminal), else None."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()


def _rich(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text)).replace("\n", "<br>")


def _print(text: str) -> None:
    """Print, with a question mark for each character that this terminal cannot write."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, errors="replace").decode(encoding))
