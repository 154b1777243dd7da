"""What happens when a notebook is run from top to bottom without anybody watching?

papermill runs the cells. Around it stand what it does not have: a listener for errors that stop no cell
(kernel_errors.py), a watch on the memory of the kernel and all its children (memory_use.py), and an end
that leaves no process behind, also after Ctrl-C, a cell that takes too long or a kernel that dies.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbclient.output_widget import OutputWidget
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines

from course_lib.teach.running.kernel_errors import (
    HiddenError,
    KernelListener,
    error_line,
    errors_in_text,
    errors_in_widgets,
)
from course_lib.teach.running.memory_use import MemoryKind, MemoryWatch

_ENGINE = "course"
_MARKER_TAG = "papermill-error-cell-tag"  # papermill puts cells with this tag into a failed notebook
_ARROW_LINE = re.compile(r"^-+> *\d+ (?P<source>.*)$", re.MULTILINE)
_ANSI_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# The engine's errors reach the reader as Failure; nbclient's own words about them would come twice.
_log = logging.getLogger("course_lib.headless")
_log.addHandler(logging.NullHandler())
_log.propagate = False


@dataclass(frozen=True)
class CellRun:
    """One code cell that ran: its number in brackets, its first line, seconds, and the peak of memory."""

    number: int
    source: str
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Failure:
    """The cell at which a notebook stopped: its number, the line that failed, and the error."""

    cell: int
    source: str
    error: str

    def __str__(self) -> str:
        return f"cell [{self.cell}] failed with {self.error}\n    {self.source}"


@dataclass(frozen=True)
class Execution:
    """A notebook that ran: the notebook with its outputs, and what was seen meanwhile."""

    notebook: NotebookNode
    cells: tuple[CellRun, ...]
    peak_bytes: int
    memory_kind: MemoryKind
    failure: Failure | None
    hidden_errors: tuple[HiddenError, ...]


@dataclass
class _Watched:
    """What the engine is told, and what it finds: papermill passes it through to the client."""

    folder: Path
    environment: Mapping[str, str]
    cell_limit_s: int
    started: list[int] = field(default_factory=list)  # indices of the code cells, in the order they started
    peaks: dict[int, int] = field(default_factory=dict)
    peak_bytes: int = 0
    memory_kind: MemoryKind = "PSS"
    listener: KernelListener | None = None
    stderr: Path | None = (
        None  # what goes past the kernel's own streams: of child processes, or its own words
    )
    stderr_text: str = ""
    notebook: NotebookNode | None = None


def execute(
    source: Path,
    output: Path,
    *,
    parameters: Mapping[str, Any],
    folder: Path,
    environment: Mapping[str, str],
    cell_limit_s: int,
    progress: str | None = None,
) -> Execution:
    """Run all cells of a notebook in a kernel of its own, up to the first that fails.

    Args:
        source: the notebook to run; it is not changed.
        output: where the executed notebook is kept. It is written after each cell, so that a run that is
            stopped leaves what it has.
        parameters: values set in a new cell after the one tagged ``parameters``.
        folder: the kernel's working folder.
        environment: all environment variables of the kernel.
        cell_limit_s: a cell that takes longer is stopped, and the run with it.
        progress: the words beside the progress bar; None shows no bar.

    Returns:
        What happened. A cell that fails, takes too long or loses its kernel is told in ``failure``.

    Raises:
        KeyboardInterrupt: after Ctrl-C, when the kernel and its children are gone.
    """
    papermill_engines.register(_ENGINE, _Engine)
    watched = _Watched(folder, environment, cell_limit_s)
    failure = None
    try:
        with contextlib.suppress(papermill.PapermillExecutionError):  # the notebook tells it better, below
            papermill.execute_notebook(
                _no_placeholders(source),
                _no_placeholders(output),
                parameters=dict(parameters) or None,
                engine_name=_ENGINE,
                progress_bar={"desc": progress, "disable": None, "leave": False} if progress else False,
                watched=watched,
            )
    except CellTimeoutError:
        failure = _failure_without_error(watched, f"it took longer than its limit of {cell_limit_s} s")
    except DeadKernelError:
        failure = _failure_without_error(
            watched, "the kernel died, most often because the system ran out of memory"
        )
    notebook = watched.notebook
    assert notebook is not None, "papermill returned without having started the notebook"
    notebook.cells = [cell for cell in notebook.cells if _MARKER_TAG not in cell.metadata.get("tags", ())]
    failure = failure or _failure_in(notebook)
    papermill.iorw.write_ipynb(notebook, str(output))
    return Execution(
        notebook=notebook,
        cells=tuple(_cell_run(notebook, index, watched) for index in watched.started),
        peak_bytes=watched.peak_bytes,
        memory_kind=watched.memory_kind,
        failure=failure,
        hidden_errors=_hidden_errors(notebook, watched),
    )


class _OutputWidget(OutputWidget):
    """nbclient's stand-in for the browser's Output widget, sending on the socket that it reads from.

    nbclient sends around its asyncio socket, which can swallow the wake-up for the reply of the running cell:
    about one cell in twenty with an Output widget then waits until its time limit (nbclient issue 312).
    """

    def send(
        self,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: list[Any] | None = None,
    ) -> None:
        """Send a comm message to the widget in the kernel."""
        channel = self.kernel_client.shell_channel
        content = {"comm_id": self.comm_id, "data": data or {}}
        message = channel.session.msg("comm_msg", content, self.parent_header, metadata=metadata or {})
        channel.socket.send_multipart(channel.session.serialize(message) + (buffers or []))


class _Client(PapermillNotebookClient):  # type: ignore[misc]  # papermill has no types
    """papermill's client, with a listener and a memory watch around the cells."""

    def __init__(self, notebook_manager: Any, watched: _Watched, **settings: Any) -> None:
        super().__init__(notebook_manager, **settings)
        self.watched = watched
        self.widget_registry = {"@jupyter-widgets/output": {"OutputModel": _OutputWidget}}
        self.memory: MemoryWatch | None = None

    def papermill_execute_cells(self) -> None:
        """Run the cells while the kernel is being listened to and measured."""
        watched = self.watched
        watched.listener = KernelListener(self.km.connection_file)
        watched.listener.start()
        self.memory = MemoryWatch(self.km.provisioner.pid)
        self.on_cell_execute = self._cell_starts
        with self.memory:
            try:
                super().papermill_execute_cells()
            except BaseException:
                # A kernel that is busy would not hear a polite request.
                self.shutdown_kernel = "immediate"
                raise
            finally:
                watched.listener.stop()
                # Read before the kernel ends: a child that is stopped then may die with a traceback.
                if watched.stderr is not None:
                    watched.stderr_text = watched.stderr.read_text(encoding="utf-8", errors="replace")
                self._keep_peak()
                watched.peak_bytes, watched.memory_kind = self.memory.peak_bytes, self.memory.kind

    def _cell_starts(self, cell: NotebookNode, cell_index: int) -> None:
        self._keep_peak()
        self.watched.started.append(cell_index)

    def _keep_peak(self) -> None:
        assert self.memory is not None
        self.memory.sample()
        if self.watched.started:
            self.watched.peaks.setdefault(self.watched.started[-1], self.memory.peak_since_mark)
        self.memory.mark()


class _Engine(NBClientEngine):  # type: ignore[misc]
    """What papermill calls to run a notebook that it has prepared."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: Any, kernel_name: str, *, watched: _Watched, **_settings: Any
    ) -> None:
        """Run the notebook in a kernel of its own, and leave no process behind."""
        watched.notebook = nb_man.nb
        client = _Client(
            nb_man,
            watched,
            kernel_name=kernel_name,
            timeout=watched.cell_limit_s,
            startup_timeout=120,  # a cold disk, or a virus scanner's first look at torch
            iopub_timeout=30,  # a busy machine may send a large picture late
            log=_log,
        )
        with tempfile.TemporaryDirectory(prefix="course-kernel-", ignore_cleanup_errors=True) as folder:
            watched.stderr = Path(folder) / "stderr"
            try:
                with watched.stderr.open("wb") as stderr:
                    client.execute(cwd=str(watched.folder), env=dict(watched.environment), stderr=stderr)
            finally:
                if client.memory is not None:
                    client.memory.end_descendants()


def _no_placeholders(path: Path) -> str:
    """papermill reads ``{name}`` in a path as a parameter; a folder may be called so."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _cell_run(notebook: NotebookNode, index: int, watched: _Watched) -> CellRun:
    cell = notebook.cells[index]
    return CellRun(
        number=_number(notebook, index),
        source=_first_line(cell.source),
        seconds=float(cell.metadata.papermill.get("duration") or 0.0),
        peak_bytes=watched.peaks.get(index, 0),
    )


def _number(notebook: NotebookNode, index: int) -> int:
    """The number in brackets; for a cell that never answered, the one that it would have got."""
    count = notebook.cells[index].get("execution_count")
    if count is not None:
        return int(count)
    before = [cell for cell in notebook.cells[:index] if cell.cell_type == "code" and cell.source.strip()]
    return 1 + len(before)


def _failure_in(notebook: NotebookNode) -> Failure | None:
    for index, cell in enumerate(notebook.cells):
        if not cell.metadata.get("papermill", {}).get("exception"):
            continue
        error = _own_error(cell)
        if error is None:
            return Failure(_number(notebook, index), _first_line(cell.source), "an error without a message")
        arrow = _ARROW_LINE.search(_ANSI_COLOURS.sub("", "\n".join(error["traceback"])))
        line = arrow["source"].strip() if arrow else _first_line(cell.source)
        return Failure(_number(notebook, index), line, error_line(error))
    return None


def _failure_without_error(watched: _Watched, error: str) -> Failure:
    notebook, index = watched.notebook, watched.started[-1]
    assert notebook is not None
    return Failure(_number(notebook, index), _first_line(notebook.cells[index].source), error)


def _own_error(cell: NotebookNode) -> NotebookNode | None:
    """The error at which a cell stopped: the last that it shows."""
    errors = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
    return errors[-1] if errors else None


def _hidden_errors(notebook: NotebookNode, watched: _Watched) -> tuple[HiddenError, ...]:
    expected = [
        cell.execution_count
        for cell in notebook.cells
        if cell.cell_type == "code"
        and (cell.metadata.papermill.get("exception") or "raises-exception" in cell.metadata.get("tags", ()))
    ]
    heard = watched.listener.hidden_errors(expected) if watched.listener else ()
    known = {hidden.error for hidden in heard}
    shown = tuple(error for error in errors_in_widgets(notebook) if error.error not in known)
    return heard + shown + errors_in_text(watched.stderr_text, cell=None)


def _first_line(source: str) -> str:
    """The first line of a cell that is code, at most 80 letters of it."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    line = next((line for line in lines if not line.startswith("#")), lines[0] if lines else "")
    return line if len(line) <= 80 else line[:77] + "..."
