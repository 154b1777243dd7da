"""How does a plain function become a lab: sliders, and a picture that answers them?

`Lab` answers at once, when a slider is let go: for a function that takes less than 0.3 s. `MeasuringLab` has
a button, for a function that measures for seconds; it runs beside the notebook, shows how far it is, and can
be cancelled. In both, the picture of before stays until the new one is ready, and an error is one sentence.

The function stays a plain one: where there are no sliders, a lesson or a learner calls it directly.
"""

from __future__ import annotations

import gc
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import ipywidgets

from course_lib.errors import CourseError
from course_lib.teach.running.kernel_errors import LAB_FAILED
from course_lib.units import format_seconds

Progress = Callable[[float, str], None]
"""What a measuring function calls now and then: how far it is, from 0 to 1, and what it is doing."""

_WIDE = ipywidgets.Layout(width="32em")
_NAME_FIRST = {"description_width": "12em"}  # room for "memory differs, %": longer names are cut
_SHOW_EVERY_S = (
    0.1  # a function may tell its progress a thousand times a second; the browser need not hear it
)
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_one_measurement = threading.Lock()  # two at a time would measure each other


def choices(name: str, values: Sequence[Any], value: Any) -> ipywidgets.SelectionSlider:
    """A slider over given values, such as powers of two."""
    return ipywidgets.SelectionSlider(
        options=list(values),
        value=value,
        description=name,
        continuous_update=False,
        style=_NAME_FIRST,
        layout=_WIDE,
    )


def whole_numbers(name: str, low: int, high: int, value: int) -> ipywidgets.IntSlider:
    """A slider over the whole numbers from ``low`` to ``high``."""
    return ipywidgets.IntSlider(
        min=low,
        max=high,
        value=value,
        description=name,
        continuous_update=False,
        style=_NAME_FIRST,
        layout=_WIDE,
    )


def menu(name: str, values: Sequence[Any], value: Any) -> ipywidgets.Dropdown:
    """A list to choose one value from."""
    return ipywidgets.Dropdown(
        options=list(values), value=value, description=name, style=_NAME_FIRST, layout=_WIDE
    )


@dataclass(frozen=True)
class Answer:
    """What the function returned for one setting of the controls."""

    values: Mapping[str, Any]
    result: Any


@dataclass(frozen=True)
class LabError:
    """An error of the function that was not the learner's: the setting, the error and its traceback."""

    values: Mapping[str, Any]
    error: str
    traceback: str


class Lab:
    """Sliders over a function that answers at once.

        Lab(step_time, {"batch_size": choices("batch size", [8, 16, 32], 16)})

    The function is called with the controls' values by name, first with those they start with. What it
    returns is shown by ``_repr_html_`` (a Picture, a result of the library), or as text.

    Raise CourseError in the function for a setting that cannot be used: its sentence stands in place of the
    picture. Any other error is told in one sentence too, and kept in ``errors`` for the tests.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        controls: Mapping[str, ipywidgets.ValueWidget],
        *,
        show: Callable[[Sequence[Answer]], Any] = lambda answers: answers[-1].result,
        keep: int = 1,
    ) -> None:
        """``show`` makes what is seen from the latest ``keep`` answers, the newest last."""
        self.controls = dict(controls)
        self.buttons: dict[str, ipywidgets.Button] = {}
        self.errors: list[LabError] = []
        self.answers: list[Answer] = []
        self._function = function
        self._show = show
        self._keep = keep
        self._message = ipywidgets.HTML()
        self._picture = ipywidgets.HTML()
        self.box = ipywidgets.VBox([*self.controls.values(), *self._between(), self._message, self._picture])
        self._start()

    @property
    def result(self) -> Any:
        """What the function returned last; None before it has."""
        return self.answers[-1].result if self.answers else None

    @property
    def values(self) -> dict[str, Any]:
        """The setting of the controls, by name."""
        return {name: control.value for name, control in self.controls.items()}

    def _between(self) -> list[ipywidgets.Widget]:
        """The widgets between the controls and the message."""
        return []

    def _start(self) -> None:
        for control in self.controls.values():
            control.observe(lambda change: self._answer_at_once(), names="value")
        self._answer_at_once()

    def _answer_at_once(self) -> None:
        """Answer, and collect garbage later: in a notebook full of objects that takes as long again."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            self._answer(self.values)
        finally:
            if was_on:
                gc.enable()

    def _answer(self, values: dict[str, Any], **more: Any) -> None:
        """Call the function and show what comes of it; no error leaves this method."""
        try:
            answer = Answer(values, self._function(**values, **more))
            self.answers = [*self.answers, answer][-self._keep :]
            picture = _html(self._show(self.answers))
        except CourseError as error:
            self._say(str(error))
            self._forget()
        except Exception as error:
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self.errors.append(LabError(values, told, traceback.format_exc()))
            self._say(
                f"This lab has a fault of its own ({told}). It is not yours: choose another setting, or "
                "restart the kernel."
            )
            self._message.add_class(LAB_FAILED)
            self._forget()
        else:
            self._say("")
            self._picture.value = picture

    def _forget(self) -> None:
        """Take the picture away: it belongs to another setting."""
        self._picture.value = ""

    def _say(self, sentence: str) -> None:
        self._message.remove_class(LAB_FAILED)
        self._message.value = f"<p>{escape(sentence)}</p>" if sentence else ""

    def _call(self) -> str:
        """How the function is called without the sliders."""
        name = getattr(self._function, "__name__", "the function")
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in self.values.items())})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget, and for a page that shows no widgets what it shows now."""
        note = f"This is a lab with sliders. Where you see none, call <code>{escape(self._call())}</code>."
        return {
            # Written out, since only ipywidgets 8 has a method for it, and Colab has 7.
            _WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id},
            "text/html": f"{self._message.value}{self._picture.value}<p>{note}</p>",
            "text/plain": repr(self),
        }

    def __repr__(self) -> str:
        return f"<Lab: {self._call()}>"


class _CancelledError(BaseException):
    """The learner pressed Cancel. Not an Exception, so that no handler in the function keeps it."""


class MeasuringLab(Lab):
    """Sliders, and a button that measures with their setting.

    The function also takes ``progress`` and calls it now and then; the bar follows, and that is where a
    measurement can be cancelled. It runs in a thread, so that the notebook hears the button meanwhile. One
    measurement runs at a time in a notebook, whichever lab it is of.
    """

    def _between(self) -> list[ipywidgets.Widget]:
        self.buttons = {
            "measure": ipywidgets.Button(description="Measure", button_style="primary", icon="play"),
            "cancel": ipywidgets.Button(description="Cancel", disabled=True),
        }
        self._bar = ipywidgets.FloatProgress(min=0, max=1, layout=ipywidgets.Layout(width="14em"))
        self._doing = ipywidgets.Label()
        self._followed_at = -_SHOW_EVERY_S
        self._cancel = threading.Event()
        self._telling = threading.RLock()  # the thread that measures and the one of the buttons tell in turn
        self._thread: threading.Thread | None = None
        return [ipywidgets.HBox([*self.buttons.values(), self._bar, self._doing])]

    def _start(self) -> None:
        self._bar.layout.display = "none"
        self.buttons["measure"].on_click(lambda button: self.measure())
        self.buttons["cancel"].on_click(lambda button: self._ask_to_end())
        self._say("Choose a setting and press Measure.")

    def _forget(self) -> None:
        """Keep the picture: each of its measurements carries its setting, and stays true."""

    def measure(self) -> None:
        """Begin a measurement with the controls' values, as the button does."""
        if not _one_measurement.acquire(blocking=False):
            self._say(
                "Another measurement is running. Wait until it has ended: two would disturb each other."
            )
            return
        self._cancel.clear()
        self._say("")
        self.buttons["measure"].disabled = True
        self.buttons["cancel"].disabled = False
        self._bar.value = 0
        self._bar.layout.display = ""
        self._doing.value = "starting"  # a first call may import torch before it can tell anything
        self._thread = threading.Thread(target=self._work, args=(self.values,), name="lab", daemon=True)
        self._thread.start()

    def _ask_to_end(self) -> None:
        """Cancel at the next word of progress, and say at once that the button was heard."""
        with self._telling:
            if not self.buttons["cancel"].disabled:  # else the measurement has ended meanwhile
                self._cancel.set()
                self._doing.value = "cancelling after this step"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the measurement has ended; say whether it has. For code that presses the button."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _work(self, values: dict[str, Any]) -> None:
        begin, ended = time.perf_counter(), ""
        try:
            self._answer(values, progress=self._follow)
            ended = f"took {format_seconds(time.perf_counter() - begin)}"
        except _CancelledError:
            ended = "cancelled"
        finally:
            _one_measurement.release()
            with self._telling:
                self._doing.value = ended
                self._bar.layout.display = "none"
                self.buttons["cancel"].disabled = True
                self.buttons["measure"].disabled = False

    def _follow(self, share: float, doing: str) -> None:
        with self._telling:
            if self._cancel.is_set():
                raise _CancelledError
            if time.monotonic() - self._followed_at >= _SHOW_EVERY_S:
                self._followed_at = time.monotonic()
                self._bar.value = min(max(share, 0.0), 1.0)
                self._doing.value = doing


def _html(shown: Any) -> str:
    if shown is None:
        return ""
    html = shown._repr_html_() if hasattr(shown, "_repr_html_") else None
    return html if isinstance(html, str) else f"<pre>{escape(str(shown))}</pre>"
