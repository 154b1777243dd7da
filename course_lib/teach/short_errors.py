"""What does a learner see when a cell of a lesson raises CourseError? Its sentence, not a traceback.

A CourseError was written for the reader, and its sentence says what to do; the lines of the library that
raised it only bury it. The cell still counts as failed: papermill and nbval see an error as before. Every
other exception keeps its traceback, which is then what a learner needs.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from course_lib.errors import CourseError


def show_short_errors(shell: Any) -> None:
    """Tell an IPython shell (what ``get_ipython()`` returns) to show a CourseError as its sentence alone."""
    shell.set_custom_exc((CourseError,), _show_sentence)


def _show_sentence(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
    tb_offset: int | None = None,
) -> list[str]:
    lines = [f"Not possible: {error}"]
    shell._showtraceback(kind, error, lines)
    return lines
