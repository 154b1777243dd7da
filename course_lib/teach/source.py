"""What does the source of a lesson say, and is it a lesson? Reads ``notebooks/source/NN_topic.py``.

The format is jupytext's py:percent; ``docs/authoring.md`` says what the course adds to it. Everything that
an author can get wrong is found here and told with its place, before a notebook is made from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from course_lib.errors import CourseError
from course_lib.teach import solutions
from course_lib.teach.lessons import heading, split_name

FIRST_LANGUAGE = "en"
MOST_CODE_LINES = 15
WIDEST_CODE_LINE = 88  # a wider one scrolls sideways in a browser window of 1,280 pixels

_KEPT_OPTIONS = ("tags", "jupyter")  # what a cell of the source may carry into the notebook
_JUPYTEXT_OPTIONS = ("lines_to_next_cell", "cell_marker")  # how jupytext remembers the look of the source
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
_MAGIC = re.compile(r"^# [!%]\w(?:.*\\\n# )*.*", re.MULTILINE)  # a backslash at its end: it goes on
_MARKER = re.compile(r"# ?%%")


@dataclass(frozen=True)
class SourceCell:
    """One cell of a lesson, as its author wrote it, with the same text in other languages."""

    kind: Literal["markdown", "code"]
    text: str
    metadata: Mapping[str, Any]  # tags, and what Jupyter itself reads, such as a hidden input
    translations: Mapping[str, str]  # language -> the text of a markdown cell in it
    place: str  # "04_loading.py, cell 7 (line 83)"

    @property
    def tags(self) -> tuple[str, ...]:
        """The cell's tags, such as ``exercise``."""
        return tuple(self.metadata.get("tags", ()))


@dataclass(frozen=True)
class LessonSource:
    """A lesson as its author wrote it: complete, and free of the mistakes that ``read_source`` finds."""

    name: str  # 04_loading
    topic: str  # loading
    title: str
    cells: tuple[SourceCell, ...]
    exercises: Mapping[str, tuple[SourceCell, ...]]  # id -> its cells; the last one holds the check
    languages: tuple[str, ...]  # the first is the one the lesson is written in

    def __str__(self) -> str:
        return f"{self.name}: {self.title} ({len(self.cells)} cells, {len(self.exercises)} exercises)"


def read_source(path: Path) -> LessonSource:
    """Read and examine one lesson.

    Raises:
        CourseError: the file is no lesson; the sentence names the file, the cell, its line and the cure.
    """
    _, topic = split_name(path.stem)
    cells = _fold_translations(_read_cells(path))
    title = heading(cells[0].text) if cells and cells[0].kind == "markdown" else None
    if title is None:
        raise CourseError(f"{path.name}: the first cell must be a markdown cell that begins '# Title'.")
    for cell in cells:
        if cell.kind == "code":
            _examine_code(cell)
    _examine_parameters(path, cells)
    languages = sorted({language for cell in cells for language in cell.translations})
    return LessonSource(
        name=path.stem,
        topic=topic,
        title=title,
        cells=cells,
        exercises=_exercises(cells, topic),
        languages=(FIRST_LANGUAGE, *languages),
    )


def _read_cells(path: Path) -> tuple[SourceCell, ...]:
    """The cells in the order of the file, each markdown cell of another language still on its own."""
    import jupytext
    from nbformat import ValidationError

    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CourseError(f"There is no lesson source {path}.") from None
    except UnicodeDecodeError:
        raise CourseError(f"{path.name} is not UTF-8 text; save it again as UTF-8.") from None
    # With its own magics, jupytext turns the comment "# copy the batch" into a shell command: see _MAGIC.
    form = {"extension": ".py", "format_name": "percent", "comment_magics": False}
    try:
        notebook = jupytext.reads(text, fmt=form)
    except (ValueError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise CourseError(f"{path.name}: a header or an option of a cell is wrong: {reason}.") from None
    _examine_header(path, notebook.metadata)
    lines = [number for number, line in enumerate(text.split("\n"), start=1) if _MARKER.match(line)]
    known_lines = lines if len(lines) == len(notebook.cells) else [0] * len(notebook.cells)
    cells = []
    for number, (cell, line) in enumerate(zip(notebook.cells, known_lines, strict=True), start=1):
        place = f"{path.name}, cell {number}" + (f" (line {line})" if line else "")
        if cell.cell_type not in ("markdown", "code"):
            raise CourseError(
                f"{place}: a {cell.cell_type} cell; a lesson has markdown and code cells only. "
                "A header that is not closed with '# ---', or is not YAML, reads as one too."
            )
        options = {key: value for key, value in cell.metadata.items() if key not in _JUPYTEXT_OPTIONS}
        language = options.pop("lang", None)
        _examine_options(place, cell.cell_type, options, language)
        code = _MAGIC.sub(_without_comment_signs, cell.source) if cell.cell_type == "code" else cell.source
        translations = {language: code} if language is not None else {}
        cells.append(SourceCell(cell.cell_type, code, MappingProxyType(options), translations, place))
    return tuple(cells)


def _without_comment_signs(command: re.Match[str]) -> str:
    return re.sub(r"^# ", "", command.group(), flags=re.MULTILINE)


def _examine_header(path: Path, metadata: Mapping[str, Any]) -> None:
    kernel = metadata.get("kernelspec", {})
    if not isinstance(kernel, Mapping) or any(
        kernel.get(key, expected) != expected
        for key, expected in (("name", "python3"), ("language", "python"))
    ):
        raise CourseError(
            f"{path.name}: the header asks for another kernel than python3; leave the kernelspec out, "
            "`course build` writes it."
        )


def _examine_options(place: str, kind: str, options: Mapping[str, Any], language: object) -> None:
    unknown = [key for key in options if key not in _KEPT_OPTIONS]
    if unknown:
        raise CourseError(
            f"{place}: unknown {' and '.join(map(repr, unknown))} in the line of the cell; it may hold "
            '[markdown], tags=["..."], jupyter={...}, and lang="..." at a markdown cell.'
        )
    if language is None:
        return
    if kind != "markdown":
        raise CourseError(f"{place}: lang belongs to markdown cells only; code is the same in all languages.")
    if not isinstance(language, str) or not _LANGUAGE.fullmatch(language) or language == FIRST_LANGUAGE:
        raise CourseError(
            f"{place}: lang={language!r} is not another language than {FIRST_LANGUAGE!r}; write its code, "
            'as in lang="zh" or lang="pt-BR", and leave lang out for the first language.'
        )


def _fold_translations(cells: tuple[SourceCell, ...]) -> tuple[SourceCell, ...]:
    """Put each marked markdown cell into the unmarked one that it translates: the one before it."""
    folded: list[SourceCell] = []
    for cell in cells:
        if not cell.translations:
            folded.append(cell)
            continue
        if not folded or folded[-1].kind != "markdown":
            raise CourseError(f"{cell.place}: a cell with lang stands directly after the cell it translates.")
        original = folded[-1]
        (language,) = cell.translations
        if language in original.translations:
            raise CourseError(f"{cell.place}: the cell before it has a text in {language!r} already.")
        both = {**original.translations, **cell.translations}
        folded[-1] = SourceCell("markdown", original.text, original.metadata, both, original.place)
    return tuple(folded)


def _examine_code(cell: SourceCell) -> None:
    is_exercise = "exercise" in cell.tags
    if not is_exercise and solutions.has_markers(cell.text):
        raise CourseError(f'{cell.place}: a solution in a cell without tags=["exercise"].')
    try:
        editions = (solutions.solved(cell.text), solutions.unsolved(cell.text))
    except CourseError as error:
        raise CourseError(f"{cell.place}: {error}") from None
    for code in editions:
        _parse(cell, code)
    length = sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in editions[0].split("\n"))
    if length > MOST_CODE_LINES and not is_exercise:
        raise CourseError(
            f"{cell.place}: {length} lines of code; a cell has at most {MOST_CODE_LINES}, blank lines and "
            "comments not counted. Split it, or move a part to course_lib."
        )
    for line in "\n".join(editions).split("\n"):
        if len(line) > WIDEST_CODE_LINE:
            raise CourseError(
                f"{cell.place}: a line of code has at most {WIDEST_CODE_LINE} characters, and this one "
                f"{len(line)}: {line.strip()[:40]!r}. Break it."
            )


def _parse(cell: SourceCell, code: str) -> ast.Module:
    """The syntax tree of a cell, its magic lines (``!course doctor``, ``%matplotlib``) passed over."""
    try:
        return ast.parse(re.sub(r"^[!%](?:.*\\\n)*.*$", "pass", code, flags=re.MULTILINE))
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise CourseError(f"{cell.place}: {error.msg}: {line!r} (line {error.lineno} of the cell).") from None


def _examine_parameters(path: Path, cells: tuple[SourceCell, ...]) -> None:
    tagged = [cell for cell in cells if "parameters" in cell.tags]
    if len(tagged) != 1:
        found = ", ".join(cell.place for cell in tagged) or "there is none"
        raise CourseError(f'{path.name}: one code cell must have tags=["parameters"] ({found}).')
    (cell,) = tagged
    names = (
        {node.id for node in ast.walk(_parse(cell, cell.text)) if isinstance(node, ast.Name)}
        if cell.kind == "code"
        else set()
    )
    if "quick" not in names:
        raise CourseError(
            f"{cell.place}: the parameters are code, and one of them is quick: "
            'quick = bool(int(os.environ.get("COURSE_QUICK", "0")))'
        )


def _exercises(cells: tuple[SourceCell, ...], topic: str) -> Mapping[str, tuple[SourceCell, ...]]:
    """The exercises in the order of the lesson: id -> its cells, which follow each other."""
    exercises: dict[str, tuple[SourceCell, ...]] = {}
    pending: list[SourceCell] = []  # exercise cells whose check is in a cell still to come
    for cell in cells:
        is_exercise = cell.kind == "code" and "exercise" in cell.tags
        if pending and not is_exercise:
            break
        ids = list(_checked(cell)) if cell.kind == "code" else []
        if ids and not is_exercise:
            raise CourseError(f'{cell.place}: check(...) in a cell without tags=["exercise"].')
        if not is_exercise:
            continue
        pending.append(cell)
        if not ids:
            continue
        if len(ids) > 1:
            raise CourseError(f"{cell.place}: {len(ids)} calls of check; an exercise has one.")
        _examine_exercise(ids[0], pending, topic, exercises)
        exercises[ids[0]] = tuple(pending)
        pending = []
    if pending:
        raise CourseError(
            f"{pending[0].place}: an exercise without its check; end it with "
            f'check("{topic}.name_of_the_exercise", the_answer), here or in the next cell.'
        )
    return MappingProxyType(exercises)


def _examine_exercise(
    exercise_id: str, cells: list[SourceCell], topic: str, earlier: Mapping[str, tuple[SourceCell, ...]]
) -> None:
    place = cells[-1].place
    if exercise_id in earlier:
        raise CourseError(
            f"{place}: {exercise_id!r} was checked before, in {earlier[exercise_id][-1].place}."
        )
    if not re.fullmatch(rf"{topic}\.[a-z][a-z0-9_]*", exercise_id):
        raise CourseError(f"{place}: {exercise_id!r} must be called {topic!r}, a point, and one name.")
    if not any(solutions.has_markers(cell.text) for cell in cells):
        raise CourseError(
            f"{place}: the exercise {exercise_id!r} has no solution; put it between the lines "
            f"{solutions.START!r} and {solutions.END!r}."
        )


def _checked(cell: SourceCell) -> Iterator[str]:
    """The first argument of each call of ``check`` in a code cell."""
    for node in ast.walk(_parse(cell, solutions.solved(cell.text))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check":
            first = node.args[0] if node.args else None
            if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
                raise CourseError(f"{cell.place}: check needs the id of its exercise in quotes, first.")
            yield first.value
