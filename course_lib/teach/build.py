"""How does a notebook come from the source of a lesson? ``course build`` derives the editions of each lesson.

The learner's edition (``notebooks/NN_topic.ipynb``) has stubs in place of the solutions; the solved one
(``build/solved/NN_topic.ipynb``) has the solutions. Where the course is published (``course links``), there
is one for Colab and Kaggle too (``notebooks/hosted/NN_topic.ipynb``). The same source gives the same bytes
on every system and in every build, so that a notebook in the repository changes only when its source did.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from course_lib.errors import CourseError
from course_lib.files import checkout_root, source_dir
from course_lib.teach import solutions
from course_lib.teach.hosted import add_launch_links, hosted_edition
from course_lib.teach.lessons import match_name, split_name
from course_lib.teach.links import HOSTED_FOLDER, read_links
from course_lib.teach.source import FIRST_LANGUAGE, LessonSource, SourceCell, read_source

Edition = Literal["learner", "solved"]
EDITIONS: tuple[Edition, ...] = ("learner", "solved")

METADATA: Mapping[str, Mapping[str, str]] = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},  # papermill writes its parameters in this language
}


def derive(lesson: LessonSource, edition: Edition = "learner", language: str = FIRST_LANGUAGE) -> Any:
    """The notebook (an ``nbformat`` notebook of format 4.5) of one edition in one language.

    A markdown cell without a translation stays in the first language. The id of a cell is a hash of its
    text in the source: it is the same in both editions and all languages, and an edit of one cell leaves the
    ids of the others as they are. Cells with the very same text are told apart by their order.

    Raises:
        CourseError: an edition or a language that the lesson does not have.
    """
    from nbformat import v4

    if edition not in EDITIONS:
        raise CourseError(f"There is no edition {edition!r}; there are {' and '.join(EDITIONS)}.")
    if language not in lesson.languages:
        raise CourseError(
            f"{lesson.name} has no text in {language!r}; it has {', '.join(lesson.languages)}. A translation "
            f'is a cell marked lang="{language}" after the cell that it translates.'
        )
    nodes: Any = v4  # its functions carry no types
    seen: Counter[tuple[str, str]] = Counter()
    cells = []
    for cell in lesson.cells:
        key = (cell.kind, cell.text)
        new_cell = nodes.new_code_cell if cell.kind == "code" else nodes.new_markdown_cell
        cells.append(
            new_cell(
                source=_text(cell, edition, language),
                metadata=dict(cell.metadata),
                id=_cell_id(cell, occurrence=seen[key]),
            )
        )
        seen[key] += 1
    metadata = {key: dict(value) for key, value in METADATA.items()}
    notebook = nodes.new_notebook(cells=cells, metadata=metadata)
    notebook.nbformat_minor = 5
    return notebook


def notebook_text(notebook: Any) -> str:
    """A notebook as it stands in a file: sorted JSON with a newline at the end, the same on all systems."""
    from nbformat import v4

    nodes: Any = v4
    return str(nodes.writes_json(notebook)).rstrip("\n") + "\n"


def exercise_ids(lesson: str, source: Path | None = None) -> tuple[str, ...]:
    """The ids of a lesson's exercises in their order; ``lesson`` is its name, as in ``"04_loading"``."""
    return tuple(read_source(_source_of(lesson, source)).exercises)


def solution_of(exercise_id: str, source: Path | None = None) -> str:
    """The code of an exercise with its solution, read from the lesson's source.

    Raises:
        CourseError: no lesson has an exercise of that id; the sentence names those that the lesson has.
    """
    topic = exercise_id.partition(".")[0]
    paths = _source_paths(source_dir() if source is None else source)
    path = next((path for path in paths if split_name(path.stem)[1] == topic), None)
    if path is None:
        known = ", ".join(split_name(path.stem)[1] for path in paths)
        raise CourseError(
            f"There is no exercise {exercise_id!r}; the id begins with a lesson's word: {known}."
        )
    exercises = read_source(path).exercises
    if exercise_id not in exercises:
        known = ", ".join(exercises) or "none"
        raise CourseError(f"There is no exercise {exercise_id!r} in {path.stem}; its exercises are {known}.")
    return "\n\n".join(solutions.solved(cell.text) for cell in exercises[exercise_id])


@dataclass(frozen=True)
class DerivedFile:
    """One notebook, and how it stood to its source."""

    path: Path
    state: Literal["same", "different", "missing", "without a source"]

    def __str__(self) -> str:
        return f"{self.path}: {self.state}"


@dataclass(frozen=True)
class BuildReport:
    """What a build wrote, or, for a check, what it would have written."""

    files: tuple[DerivedFile, ...]
    checked_only: bool

    @property
    def differing(self) -> tuple[DerivedFile, ...]:
        """The notebooks that are not what their source says."""
        return tuple(file for file in self.files if file.state != "same")

    def __str__(self) -> str:
        if not self.differing:
            return f"The notebooks are as their sources say ({len(self.files)} looked at)."
        words: dict[str, str] = {"different": "differs from its source", "missing": "is missing"}
        if not self.checked_only:
            words = dict.fromkeys(words, "written")
        lines = [f"{file.path}: {words.get(file.state, file.state)}" for file in self.differing]
        if self.checked_only:
            lines.append("Write them again with `course build`, and commit them.")
        return "\n".join(lines)


def build_all(root: Path | None = None, lessons: Sequence[str] = (), *, check: bool = False) -> BuildReport:
    """Derive the notebooks of a checkout from their sources, and write those that changed.

    Args:
        root: the checkout; the one this package runs from by default.
        lessons: names, numbers or topic words; all lessons by default.
        check: write nothing, and leave the solved edition out: no repository holds it.

    Returns:
        The files, and which of them differed. A notebook without a source is named, and left as it is.

    Raises:
        CourseError: no checkout, an unknown lesson, or a mistake in a source. Nothing is written then.
    """
    root = checkout_root() if root is None else root
    if root is None:
        raise CourseError("Notebooks are built in a checkout of the course; this is an installed package.")
    notebooks = root / "notebooks"
    source = notebooks / "source"
    folders: dict[Edition, Path] = {"learner": notebooks}
    if not check:
        folders["solved"] = root / "build" / "solved"
    paths = [_source_of(lesson, source) for lesson in lessons] or _source_paths(source)
    repository = read_links(notebooks)
    hosted = notebooks / HOSTED_FOLDER
    texts: dict[Path, str] = {}
    for path in paths:
        lesson = read_source(path)
        for edition, folder in folders.items():
            notebook = derive(lesson, edition)
            if repository is not None and edition == "learner":
                texts[hosted / f"{lesson.name}.ipynb"] = notebook_text(hosted_edition(notebook, repository))
                add_launch_links(notebook, lesson.name, repository)
            texts[folder / f"{lesson.name}.ipynb"] = notebook_text(notebook)
    files = [DerivedFile(path, _state(path, text)) for path, text in texts.items()]
    if not lessons:
        files += [
            DerivedFile(path, "without a source")
            for path in sorted([*notebooks.glob("*.ipynb"), *hosted.glob("*.ipynb")])
            if path not in texts
        ]
    if not check:
        for file in files:
            if file.state in ("different", "missing"):
                file.path.parent.mkdir(parents=True, exist_ok=True)
                file.path.write_bytes(texts[file.path].encode("utf-8"))
    return BuildReport(tuple(files), check)


def source_names(root: Path) -> tuple[str, ...]:
    """The names of a checkout's lessons in their order, whether they are built or not."""
    return tuple(path.stem for path in _source_paths(root / "notebooks" / "source"))


def _state(path: Path, text: str) -> Literal["same", "different", "missing"]:
    if not path.is_file():
        return "missing"
    return "same" if path.read_bytes() == text.encode("utf-8") else "different"


def _source_paths(folder: Path) -> list[Path]:
    """The sources in the order of their numbers. Raises CourseError where a number or a word comes twice."""
    paths = sorted(folder.glob("*.py"))
    if not paths:
        raise CourseError(f"There are no lesson sources (NN_topic.py) in {folder}.")
    seen: dict[int | str, str] = {}
    for path in paths:
        for key in split_name(path.stem):
            if key in seen:
                raise CourseError(f"{seen[key]} and {path.name} share {key!r}; a lesson has its own.")
            seen[key] = path.name
    return paths


def _source_of(lesson: str, folder: Path | None) -> Path:
    folder = source_dir() if folder is None else folder
    return folder / f"{match_name(lesson, [path.stem for path in _source_paths(folder)])}.py"


def _text(cell: SourceCell, edition: Edition, language: str) -> str:
    if cell.kind == "markdown":
        return cell.translations.get(language, cell.text)
    return solutions.unsolved(cell.text) if edition == "learner" else solutions.solved(cell.text)


def _cell_id(cell: SourceCell, occurrence: int) -> str:
    """An id of 16 hexadecimal digits; of 100 cells, two agree by chance once in 4 * 10**15 lessons."""
    return hashlib.sha256(f"{cell.kind} {occurrence}\n{cell.text}".encode()).hexdigest()[:16]
