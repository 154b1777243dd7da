"""Do the lessons still work, how long do they take, and what did they find? Runs without anybody watching.

Each lesson runs in a throwaway learner's folder, so that a run neither sees nor changes the learner's own
copies and progress. What it leaves is an executed notebook and one HTML page.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.files import checkout_root
from course_lib.teach.build import Edition
from course_lib.teach.lessons import Lesson, cell_source, find_lesson, lessons
from course_lib.teach.running.kernel_errors import HiddenError
from course_lib.teach.running.memory_use import MemoryKind
from course_lib.teach.workspace import FOLDER_VARIABLE, KERNEL_DEFAULTS

if TYPE_CHECKING:  # papermill takes a second to import, and `course run --help` does not need it
    from course_lib.teach.exercises.result import Result
    from course_lib.teach.running.headless import CellRun, Failure
    from course_lib.teach.verdicts import Judgement

QUICK_CELL_LIMIT_S = 60
FULL_CELL_LIMIT_S = 240


@dataclass(frozen=True)
class LessonRun:
    """One lesson that was run: how long, how much memory, what failed, and what it found.

    ``seconds`` hold the start of the kernel too. ``peak_bytes`` is the most that the kernel and all its
    children used together, as ``memory_kind`` counts it (see memory_use.py). ``hidden_errors`` are those that
    stopped no cell: in a widget's callback, in a thread. ``results`` holds the last result of each exercise.
    """

    lesson: str
    edition: Edition
    parameters: Mapping[str, Any]
    seconds: float
    peak_bytes: int
    memory_kind: MemoryKind
    cells: tuple[CellRun, ...]
    failure: Failure | None
    hidden_errors: tuple[HiddenError, ...]
    results: tuple[Result, ...]
    judgements: tuple[Judgement, ...]
    notebook: Path
    page: Path

    @property
    def ok(self) -> bool:
        """Whether every cell ran to its end and no callback failed."""
        return self.failure is None and not self.hidden_errors

    @property
    def slowest(self) -> CellRun | None:
        """The code cell that took longest; None when no cell ran."""
        return max(self.cells, key=lambda cell: cell.seconds, default=None)

    @property
    def passed(self) -> int:
        """How many of the exercises were answered correctly."""
        return sum(result.outcome == "correct" for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data; times in seconds, memory in bytes."""
        plain = ("cells", "failure", "hidden_errors")
        data = {name: value for name, value in vars(self).items() if name not in plain}
        return data | {
            "ok": self.ok,
            "slowest_cell_seconds": self.slowest.seconds if self.slowest else None,
            "passed": self.passed,
            "cells": [asdict(cell) for cell in self.cells],
            "failure": asdict(self.failure) if self.failure else None,
            "hidden_errors": [asdict(error) for error in self.hidden_errors],
            "results": [result.to_json() for result in self.results],
            "judgements": [judgement.to_json() for judgement in self.judgements],
            "notebook": str(self.notebook),
            "page": str(self.page),
        }


def run_lesson(
    lesson: str | Lesson,
    *,
    quick: bool = False,
    parameters: Mapping[str, Any] | None = None,
    solved: bool = False,
    out: Path | None = None,
    cell_limit_s: int | None = None,
    progress: bool = False,
    folder: Path | None = None,
) -> LessonRun:
    """Run one lesson from top to bottom in a throwaway learner's folder.

    Args:
        lesson: its number, word or name.
        quick: the short run: sets the lesson's parameter ``quick``.
        parameters: values for names in the lesson's parameters cell.
        solved: the edition with the solutions, derived now from the lesson's source.
        out: where the executed notebook and its HTML page go; ``default_out()`` by default.
        cell_limit_s: seconds that one cell may take; 60 for a quick run and 240 for a full one by default.
        progress: show a bar on a terminal.
        folder: where the lessons are; the course's own by default.

    Raises:
        CourseError: no such lesson, a parameter the lesson does not have, or a value of another type.
    """
    from course_lib.teach.exercises.result import results_in
    from course_lib.teach.running.headless import execute
    from course_lib.teach.running.page import write_page
    from course_lib.teach.verdicts import judgements_in

    lesson = find_lesson(lesson, folder) if isinstance(lesson, str) else lesson
    settings = _settings(lesson, parameters or {}, quick)
    out = default_out() if out is None else out
    out.mkdir(parents=True, exist_ok=True)
    stem = f"{lesson.name}.solved" if solved else lesson.name
    notebook, page = out / f"{stem}.ipynb", out / f"{stem}.html"
    limit = cell_limit_s or (QUICK_CELL_LIMIT_S if quick else FULL_CELL_LIMIT_S)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="course-run-", ignore_cleanup_errors=True) as learner:
        workplace = Path(learner)
        copy = workplace / f"{lesson.name}.ipynb"
        copy.write_text(_edition(lesson, solved), encoding="utf-8")
        ran = execute(
            copy,
            notebook,
            parameters=settings,
            folder=workplace,
            environment={
                **KERNEL_DEFAULTS,
                **os.environ,
                FOLDER_VARIABLE: learner,
                **({"COURSE_QUICK": "1"} if quick else {}),
            },
            cell_limit_s=limit,
            progress=stem if progress else None,
        )
        seconds = time.perf_counter() - begin
        run = LessonRun(
            lesson=lesson.name,
            edition="solved" if solved else "learner",
            parameters=settings,
            seconds=seconds,
            peak_bytes=ran.peak_bytes,
            memory_kind=ran.memory_kind,
            cells=ran.cells,
            failure=ran.failure,
            hidden_errors=ran.hidden_errors,
            results=tuple({result.id: result for result in results_in(ran.notebook)}.values()),
            judgements=tuple(judgements_in(ran.notebook)),
            notebook=notebook,
            page=page,
        )
        write_page(ran.notebook, page, title=stem, problems=problems_of(run), images_from=workplace)
    return run


def run_lessons(
    words: Sequence[str] = (), *, folder: Path | None = None, **settings: Any
) -> Iterator[LessonRun]:
    """Run lessons one after the other, all of them by default, and yield each as it ends.

    Names and parameters are examined before the first lesson starts. ``settings`` are those of
    ``run_lesson``. A lesson that fails does not keep the next from running.

    Raises:
        CourseError: as ``run_lesson``, or there is no lesson at all.
    """
    chosen = [find_lesson(word, folder) for word in words] if words else list(lessons(folder))
    chosen = list({lesson.name: lesson for lesson in chosen}.values())
    if not chosen:
        raise CourseError("There is no lesson to run; make the notebooks with `course build`.")
    for lesson in chosen:
        _settings(lesson, settings.get("parameters") or {}, settings.get("quick", False))
    return (run_lesson(lesson, folder=folder, **settings) for lesson in chosen)


def default_out() -> Path:
    """Where runs leave their pages: ``build/run`` of a checkout, elsewhere ``./course-run``."""
    root = checkout_root()
    return root / "build" / "run" if root else Path.cwd() / "course-run"


def problems_of(run: LessonRun) -> tuple[str, ...]:
    """What went wrong in a run, one text each."""
    failure = (str(run.failure),) if run.failure else ()
    return (*failure, *(str(error) for error in run.hidden_errors))


def parse_value(text: str) -> Any:
    """The value of a parameter as it is typed: a Python literal (64, 1e-3, True, [1, 2]), or else text."""
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def parameters_of(lesson: Lesson) -> dict[str, Any]:
    """The names set in the cell tagged ``parameters``, with their defaults; None where no literal says it.

    papermill would read the cell line by line, and miss a default such as ``quick = a == b``.
    """
    cells = json.loads(lesson.path.read_text(encoding="utf-8"))["cells"]
    tagged = (cell_source(cell) for cell in cells if "parameters" in cell["metadata"].get("tags", ()))
    found = {}
    for statement in ast.parse(next(tagged, "")).body:
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = _literal(getattr(statement, "value", None))
    return found


def _settings(lesson: Lesson, given: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    """The parameters to set in this lesson. Raises CourseError for a name or a type that it does not have."""
    known = parameters_of(lesson)
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"Did you mean {near[0]}?" if near else f"It has {', '.join(known) or 'none'}."
            raise CourseError(f"{lesson.name} has no parameter {name!r}. {advice}")
        if name == "quick" and not isinstance(value, bool):  # its default is taken from the environment
            raise CourseError(f"The parameter quick is true or false, not {value!r}.")
        if known[name] is not None and not _fits(value, known[name]):
            kind = type(known[name]).__name__
            raise CourseError(
                f"The parameter {name} of {lesson.name} is of type {kind} (by default {known[name]!r}), and "
                f"{value!r} is not."
            )
    return {**({"quick": True} if quick and "quick" in known else {}), **given}


def _literal(node: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None


def _fits(value: object, default: object) -> bool:
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is type(default)


def _edition(lesson: Lesson, solved: bool) -> str:
    if not solved:
        return lesson.path.read_text(encoding="utf-8")
    from course_lib.teach.build import derive, notebook_text
    from course_lib.teach.source import read_source

    return notebook_text(derive(read_source(lesson.path.parent / "source" / f"{lesson.name}.py"), "solved"))
