"""Where does a learner paste a message of their own? A text box with a button, over a function of the text.

The function stays a plain one, such as ``course_lib.diagnose.recognise.explain``: where no widgets are shown,
a lesson calls it on a text in quotes. The text is data; nothing in it is run.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets

from course_lib.errors import CourseError


class PasteBox:
    """A text box, an Explain button, and below them what the function returns.

        PasteBox(explain, "Paste what nvidia-smi printed")

    The result is shown by its ``_repr_html_``, or as text. A CourseError is told in its sentence; any other
    error in one sentence too, and kept in ``errors`` for the tests.
    """

    def __init__(self, function: Callable[[str], Any], invitation: str) -> None:
        self._function = function
        self.errors: list[str] = []
        self.text = ipywidgets.Textarea(
            placeholder=invitation,
            layout=ipywidgets.Layout(width="95%", height="10em"),
            style={"font_size": "12px"},  # a table of 91 columns fits
        )
        self.button = ipywidgets.Button(description="Explain", button_style="primary")
        self.answer = ipywidgets.HTML()
        self.button.on_click(lambda button: self.explain())
        self.box = ipywidgets.VBox([self.text, self.button, self.answer])

    def explain(self) -> None:
        """Explain what stands in the box, as the button does."""
        if not self.text.value.strip():
            self.answer.value = "<p>The box is empty: paste a text, then press Explain.</p>"
            return
        try:
            shown = self._function(self.text.value)
            html = (
                shown._repr_html_() if hasattr(shown, "_repr_html_") else f"<pre>{escape(str(shown))}</pre>"
            )
        except CourseError as error:
            self.answer.value = f"<p>{escape(str(error))}</p>"
        except Exception as error:
            self.errors.append(traceback.format_exc())
            self.answer.value = (
                f"<p>This text could not be read ({escape(type(error).__name__)}). Please report it as a "
                "fault of the course, with the text.</p>"
            )
        else:
            self.answer.value = html

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget; where none is shown, how to do without."""
        name = getattr(self._function, "__name__", "the function")
        without = f"A box to paste into. Where you see none, call <code>{escape(name)}(text)</code>."
        return {
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.box.model_id,
            },
            "text/html": f"<p>{without}</p>",
            "text/plain": f"<PasteBox: {name}(text)>",
        }
