"""Which lessons are there, and which one does the learner mean by "4", "loading" or "04_loading.ipynb"?"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.files import notebooks_dir

LESSON_NAME = re.compile(r"(?P<number>\d\d)_(?P<topic>[a-z][a-z0-9]*)")
"""A lesson is called by its number and its topic word: ``04_loading``."""


@dataclass(frozen=True)
class Lesson:
    """One lesson as a learner opens it."""

    name: str  # 04_loading
    number: int  # 4
    topic: str  # loading: the word that names its exercises, claims, lab and tests
    title: str  # the first heading of the notebook
    path: Path  # the notebook the course ships

    def __str__(self) -> str:
        return f"{self.name}: {self.title}"


def split_name(name: str) -> tuple[int, str]:
    """Number and topic word of a lesson's name. Raises CourseError for a name of another form."""
    parts = LESSON_NAME.fullmatch(name)
    if parts is None:
        raise CourseError(
            f"{name!r} is not the name of a lesson; it is two digits, an underscore and one word in small "
            'letters, as in "04_loading".'
        )
    return int(parts["number"]), parts["topic"]


def lessons(folder: Path | None = None) -> tuple[Lesson, ...]:
    """All lessons in the order of their numbers.

    Args:
        folder: where the notebooks are; the course's own by default.

    Raises:
        CourseError: a notebook there cannot be read, or has no heading.
    """
    folder = notebooks_dir() if folder is None else folder
    paths = sorted(path for path in folder.glob("*.ipynb") if LESSON_NAME.fullmatch(path.stem))
    return tuple(Lesson(path.stem, *split_name(path.stem), _title(path), path) for path in paths)


def find_lesson(word: str, folder: Path | None = None) -> Lesson:
    """The lesson meant by its number, its topic word, its name, or its file name.

    Raises:
        CourseError: no lesson is called that; the sentence names those that come near, or all.
    """
    known = {lesson.name: lesson for lesson in lessons(folder)}
    return known[match_name(word, known)]


def match_name(word: str, names: Iterable[str]) -> str:
    """The name among ``names`` that ``word`` means: ``"4"``, ``"loading"`` and ``"04_loading.py"`` alike.

    Raises:
        CourseError: it means none of them; the sentence names those that come near, or all.
    """
    names = list(names)
    wanted = word.strip().lower().removesuffix(".ipynb").removesuffix(".py")
    meanings: dict[str, str] = {}  # what may be typed -> the lesson it means
    for name in names:
        number, topic = split_name(name)
        if wanted in (name, topic) or (re.fullmatch("[0-9]+", wanted) and int(wanted) == number):
            return name
        meanings |= {name: name, topic: name}
    near = sorted({meanings[match] for match in difflib.get_close_matches(wanted, meanings, n=3)})
    if near:
        raise CourseError(f"There is no lesson {word!r}. Did you mean {' or '.join(near)}?")
    raise CourseError(f"There is no lesson {word!r}; the lessons are {', '.join(names) or 'not built yet'}.")


def heading(markdown: str) -> str | None:
    """The text of the level-1 heading with which a markdown cell begins, or None."""
    first = markdown.lstrip().partition("\n")[0]
    return first[2:].strip() or None if first.startswith("# ") else None


def cell_source(cell: dict[str, Any]) -> str:
    """The text of a notebook cell as read by ``json``: notebooks hold it as a text or as a list of lines."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _title(path: Path) -> str:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        titles = (heading(cell_source(cell)) for cell in cells if cell["cell_type"] == "markdown")
        return next(title for title in titles if title)
    except StopIteration:
        raise CourseError(f"{path.name} has no heading; a lesson begins with a cell '# Title'.") from None
    except (ValueError, KeyError, TypeError):
        raise CourseError(f"{path} is not a notebook that can be read; install the course again.") from None
