"""Which errors happened in a kernel without stopping a cell?

A widget's callback that fails stops nothing: ipywidgets shows the error inside an Output widget, or sends it
as the answer to a message of the browser, and a headless run that looks at the cells alone sees none of it.
The same holds for a thread that dies. All of them pass through the kernel's iopub channel, so this module
listens there:

- ``error`` messages: ``Button.on_click``, ``interact`` and ``with Output():``, and ``observe`` callbacks that
  the browser set off;
- ``stderr`` text that holds a traceback: threads, raw comm callbacks, child processes.

What stopped a cell is not hidden: the cell shows it, and it is left out here.
"""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

LAB_FAILED = "course-lab-failed"
"""The style class of a lab's message when the lab's function failed: that is how a run sees it."""

_TAGS = re.compile(r"<[^>]*>")
_ANSI_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK = "Traceback (most recent call last):"
_QUIET_SECONDS = 0.5  # ipykernel sends printed text every 0.2 s: after half a second of silence all is here


@dataclass(frozen=True)
class HiddenError:
    """One error that no cell stopped at.

    ``cell`` is the number in brackets beside the cell (None: nobody knows), ``where`` says what was running,
    ``error`` is the line a traceback ends with, ``traceback`` is all of it.
    """

    cell: int | None
    where: str
    error: str
    traceback: str

    def __str__(self) -> str:
        cell = f"cell [{self.cell}], " if self.cell is not None else ""
        return f"{cell}{self.where}: {self.error}"


@dataclass
class _Request:
    """What the kernel published in answer to one message, in order."""

    kind: str
    count: int | None = None
    after: int | None = None  # the cell that ran last when this request was answered
    errors: list[Mapping[str, Any]] = field(default_factory=list)
    stderr: str = ""


class KernelListener:
    """Hears all that a running kernel publishes, beside the client that runs the cells.

    Give it the kernel's connection file, ``start`` it before the first cell and ``stop`` it while the kernel
    still lives. Raises TimeoutError when the kernel does not answer.
    """

    def __init__(self, connection_file: str) -> None:
        from jupyter_client.blocking.client import BlockingKernelClient

        self._client = BlockingKernelClient(connection_file=connection_file)
        self._client.load_connection_file()
        self._requests: dict[str, _Request] = {}
        self._latest_cell: int | None = None
        self._stopping = threading.Event()
        self._heard_last = time.monotonic()
        self._thread = threading.Thread(target=self._listen, name="kernel-listener", daemon=True)

    def start(self, timeout_s: float = 60) -> None:
        """Connect, and return once messages are known to arrive."""
        self._client.start_channels(stdin=False, hb=False)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            # A new subscriber misses what is sent before it is known: ask until an answer comes through.
            request = self._client.kernel_info()
            if self._answered(request):
                self._thread.start()
                return
        self._client.stop_channels()
        raise TimeoutError(f"the kernel did not answer within {timeout_s:.0f} s")

    def stop(self) -> None:
        """Wait for half a second of silence, at most five, and stop listening."""
        if self._thread.is_alive():
            deadline = time.monotonic() + 5
            while time.monotonic() < min(self._heard_last + _QUIET_SECONDS, deadline):
                time.sleep(0.05)
            self._stopping.set()
            self._thread.join()
        self._client.stop_channels()

    def hidden_errors(self, stopped_cells: Collection[int] = ()) -> tuple[HiddenError, ...]:
        """The errors heard so far.

        Args:
            stopped_cells: numbers of the cells that ended with an error of their own. That error, the last
                one of its cell, is not hidden.
        """
        found = []
        for request in list(self._requests.values()):
            errors = request.errors
            if request.count in stopped_cells and errors:
                errors = errors[:-1]
            cell = request.count if request.count is not None else request.after
            callback = "a widget's callback"
            found += [HiddenError(cell, callback, error_line(e), traceback_text(e)) for e in errors]
            found += errors_in_text(request.stderr, cell)
        return tuple(found)

    def _answered(self, request: str) -> bool:
        try:
            while True:
                message = self._client.get_iopub_msg(timeout=0.5)
                if message["parent_header"].get("msg_id") == request:
                    return True
        except Empty:
            return False

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._hear(self._client.get_iopub_msg(timeout=0.1))
            except Empty:
                continue

    def _hear(self, message: Mapping[str, Any]) -> None:
        parent, content = message["parent_header"], message["content"]
        kind = message["msg_type"]
        if parent.get("msg_type") != "kernel_info_request":
            self._heard_last = time.monotonic()
        request = self._requests.setdefault(
            parent.get("msg_id", ""), _Request(parent.get("msg_type", ""), after=self._latest_cell)
        )
        if kind == "execute_input":
            request.count = self._latest_cell = content["execution_count"]
        elif kind == "error":
            request.errors.append(content)
        elif kind == "stream" and content["name"] == "stderr":
            request.stderr += content["text"]


def errors_in_widgets(notebook: Mapping[str, Any]) -> tuple[HiddenError, ...]:
    """The errors that the widgets of an executed notebook show, read from its stored widget state.

    These are the tracebacks in Output widgets, and the message of a lab whose function failed.
    """
    stored = notebook["metadata"].get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    found = []
    for model in stored.get("state", {}).values():
        state = model.get("state", {})
        for output in state.get("outputs", ()):
            if output.get("output_type") == "error":
                found.append(
                    HiddenError(None, "an Output widget", error_line(output), traceback_text(output))
                )
        if LAB_FAILED in (state.get("_dom_classes") or ()):
            said = _TAGS.sub("", str(state.get("value", "")))
            found.append(HiddenError(None, "a lab", html.unescape(said), ""))
    return tuple(found)


def error_line(content: Mapping[str, Any]) -> str:
    """``ZeroDivisionError: division by zero`` from an error message or an error output."""
    value = _ANSI_COLOURS.sub("", str(content["evalue"])).strip()
    return f"{content['ename']}: {value}" if value else str(content["ename"])


def traceback_text(content: Mapping[str, Any]) -> str:
    """The traceback of an error message or an error output, without colour codes."""
    return _ANSI_COLOURS.sub("", "\n".join(content["traceback"]))


def errors_in_text(text: str, cell: int | None) -> tuple[HiddenError, ...]:
    """One error for each traceback in printed text, from its first line to the line that names the error."""
    lines = _ANSI_COLOURS.sub("", text).splitlines()
    found = []
    for start, line in enumerate(lines):
        if line.strip() != _TRACEBACK:
            continue
        indent = len(line) - len(line.lstrip())
        end = start + 1
        while end < len(lines) and (not lines[end].strip() or lines[end][indent : indent + 1].isspace()):
            end += 1
        whole = lines[start : end + 1]
        found.append(HiddenError(cell, "traceback on stderr", whole[-1].strip(), "\n".join(whole)))
    return tuple(found)
