"""Where are the learner's own copies of the lessons, and are they up to date?

A learner works in a folder of their own, on copies. A copy is known by a hash of its cells when it was made,
kept in ``.course/copies.json``: so a later start can tell an untouched copy, which it may bring up to date,
from one in which the learner wrote, which it never overwrites.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

from course_lib.errors import CourseError
from course_lib.files import checkout_root, notebooks_dir
from course_lib.teach.lessons import Lesson, cell_source, find_lesson, lessons

STATE_FOLDER = ".course"
CHECKOUT_FOLDER = "work"  # where the lessons go in a checkout, on Binder too
FOLDER_VARIABLE = "COURSE_FOLDER"
KERNEL_DEFAULTS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Environment variables of every kernel, where the learner has not set them.

A thread of torch that waits for the others spins by default and keeps its core busy. When a browser, loader
workers or another kernel want that core, a small step can become ten times as slow. PASSIVE lets it sleep.
"""
_COPIES = "copies.json"

State = Literal["new", "same", "updated", "yours", "older", "unknown", "unreadable"]
_WORDS: dict[State, str] = {
    "new": "copied",
    "same": "up to date",
    "updated": "brought up to date",
    "yours": "with your changes",
    "older": "with your changes; the course has a newer edition",
    "unknown": "not the course's edition; left as it is",
    "unreadable": "not a notebook that can be read; left as it is",
}


@dataclass(frozen=True)
class LessonCopy:
    """What a start found, or did, for one lesson."""

    name: str
    state: State
    kept_as: str | None = None  # where the copy before this one is now, relative to the folder

    def __str__(self) -> str:
        sentence = f"{self.name}: {_WORDS[self.state]}"
        if self.kept_as:
            sentence += f" (the one before is {self.kept_as})"
        return sentence


@dataclass(frozen=True)
class Workspace:
    """The learner's folder after a start."""

    folder: Path
    copies: tuple[LessonCopy, ...]
    note: str | None = None  # one sentence about a damaged list of copies

    @property
    def news(self) -> tuple[str, ...]:
        """What the learner should hear: what changed, and what a newer edition waits for."""
        told = [self._told(copy) for copy in self.copies if copy.state not in ("same", "yours", "new")]
        told += [self._told(copy) for copy in self.copies if copy.state == "new" and copy.kept_as]
        return (*([self.note] if self.note else []), *told)

    def _told(self, copy: LessonCopy) -> str:
        """What was done for one lesson, and how to get a new copy where the learner's was left as it is."""
        if copy.state not in ("older", "unknown", "unreadable"):
            return str(copy)
        command = f"course lab --fresh {copy.name.partition('_')[0]}"
        if self.folder != default_folder().absolute():
            command += f' --dir "{self.folder}"'
        return f"{copy}. For a new copy beside it: {command}"

    def __str__(self) -> str:
        count = f"{len(self.copies)} lessons" if len(self.copies) != 1 else "1 lesson"
        new = sum(copy.state == "new" for copy in self.copies)
        head = f"{self.folder}: {count}" + (f", {new} of them new" if 0 < new < len(self.copies) else "")
        return "\n".join([head, *(f"  {line}" for line in self.news)])

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{escape(self._told(copy))}</li>" for copy in self.copies)
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<p><code>{escape(str(self.folder))}</code></p>{note}<ul>{rows}</ul>"

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "folder": str(self.folder),
            "note": self.note,
            "copies": [asdict(copy) for copy in self.copies],
        }


def learner_folder() -> Path:
    """The learner's folder for whoever runs in it: a notebook, a terminal of JupyterLab, a command.

    ``course lab`` names it in COURSE_FOLDER. Elsewhere it is the nearest folder upwards that holds
    ``.course/``, or else the current one.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    return _nearest(Path.cwd()) or Path.cwd()


def default_folder() -> Path:
    """Where the lessons go when nobody names a folder.

    The learner's folder in which one stands already; else ``work/`` of the checkout, or
    ``efficient-training-course/`` in the current folder where the course is installed as a package.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    here = Path(named) if named else _nearest(Path.cwd())
    if here is not None:
        return here
    root = checkout_root()
    return root / CHECKOUT_FOLDER if root else Path.cwd() / "efficient-training-course"


def prepare(
    folder: Path,
    *,
    fresh: Sequence[str] = (),
    shipped: Path | None = None,
    today: datetime.date | None = None,
) -> Workspace:
    """Bring the learner's folder up to date, and lose nothing of the learner's.

    A lesson that is not there is copied. An untouched copy of an older edition is replaced; if the learner
    ran it, the run copy moves to ``.course/old/``. A copy with the learner's changes stays. Outputs,
    execution counts and metadata, which Jupyter saves by itself, are no changes.

    Args:
        folder: made when it is not there.
        fresh: lessons (number, word or name) for which to make a new copy; the learner's is renamed.
        shipped: where the lessons come from; the course's own by default.
        today: the date in the name of a renamed copy; the current date by default.

    Raises:
        CourseError: the folder is a file, is the course's own, or cannot be written; no such lesson.
    """
    shipped = notebooks_dir() if shipped is None else shipped
    folder = _usable(folder, shipped)
    all_lessons = lessons(shipped)
    if not all_lessons:
        raise CourseError(f"There are no lessons in {shipped}; `course build` makes them from their sources.")
    renew = {find_lesson(word, shipped).name for word in fresh}
    today = datetime.datetime.now().date() if today is None else today
    try:
        state_folder = folder / STATE_FOLDER
        state_folder.mkdir(parents=True, exist_ok=True)
        made, note = _read_made(state_folder / _COPIES)
        copies = []
        for lesson in all_lessons:
            copies.append(_update(lesson, folder, made, lesson.name in renew, today))
            # Saved after each lesson: the start after an interrupted one must know the copies made so far.
            _write_atomically(
                state_folder / _COPIES, json.dumps({"made": made}, indent=1, sort_keys=True) + "\n"
            )
    except OSError as error:
        raise CourseError(
            f"The lessons cannot be written to {folder} ({error.strerror or error}); "
            "make room or give another folder with --dir."
        ) from None
    return Workspace(folder, tuple(copies), note)


def content_hash(notebook: bytes) -> str | None:
    """A hash of what a person can change in a notebook: kinds and texts of its cells, and their order.

    None when the bytes are no notebook.
    """
    content = _content(notebook)
    if content is None:
        return None
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()


def _update(
    lesson: Lesson, folder: Path, made: dict[str, str], renew: bool, today: datetime.date
) -> LessonCopy:
    """Treat one lesson; ``made`` (name -> hash of the copy when it was made) follows what was done."""
    target = folder / lesson.path.name
    edition = lesson.path.read_bytes()
    edition_hash = content_hash(edition)
    assert edition_hash is not None, f"{lesson.path} was read as a lesson before"
    kept_as: Path | None = None
    state: State = "new"
    if os.path.lexists(target) and renew:
        kept_as = _free_name(folder, f"{lesson.name}.mine-{today.isoformat()}", target.suffix)
        target.rename(kept_as)
    elif os.path.lexists(target):
        found = target.read_bytes() if target.is_file() else b""
        found_hash = content_hash(found)
        if found_hash == edition_hash:
            made[lesson.name] = edition_hash
            return LessonCopy(lesson.name, "same")
        if found_hash is None:
            return LessonCopy(lesson.name, "unreadable")
        made_hash = made.get(lesson.name)
        if made_hash is None:
            return LessonCopy(lesson.name, "unknown")
        if found_hash != made_hash:
            return LessonCopy(lesson.name, "yours" if made_hash == edition_hash else "older")
        state = "updated"
        if _was_run(found):
            old = folder / STATE_FOLDER / "old"
            old.mkdir(exist_ok=True)
            kept_as = _free_name(old, f"{lesson.name}-{today.isoformat()}", target.suffix)
            _write_atomically(kept_as, found)
    _write_atomically(target, edition)
    made[lesson.name] = edition_hash
    return LessonCopy(lesson.name, state, kept_as.relative_to(folder).as_posix() if kept_as else None)


def _usable(folder: Path, shipped: Path) -> Path:
    try:
        folder = folder.expanduser().absolute()
    except RuntimeError:
        raise CourseError(f"{folder} names a home folder that does not exist here; write it out.") from None
    if os.path.lexists(folder) and not folder.is_dir():
        raise CourseError(f"{folder} is a file; give a folder for your lessons with --dir.")
    if folder.resolve().is_relative_to(shipped.resolve()):
        raise CourseError(f"{folder} holds the course's own notebooks; give another folder with --dir.")
    return folder


def _nearest(start: Path) -> Path | None:
    return next((path for path in (start, *start.parents) if (path / STATE_FOLDER).is_dir()), None)


def _read_made(path: Path) -> tuple[dict[str, str], str | None]:
    """The hashes in the list of copies; a list that cannot be read is set aside and told of."""
    try:
        made = json.loads(path.read_text(encoding="utf-8"))["made"]
        if isinstance(made, dict) and all(isinstance(value, str) for value in made.values()):
            return made, None
    except FileNotFoundError:
        return {}, None
    except (ValueError, KeyError, TypeError):
        pass
    aside = _free_name(path.parent, f"{path.stem}.damaged", path.suffix)
    path.rename(aside)
    return {}, (
        f"The list of your copies was damaged and is now {STATE_FOLDER}/{aside.name}; "
        "lessons that differ from the course's are taken as changed by you."
    )


def _free_name(folder: Path, stem: str, suffix: str) -> Path:
    """A path in ``folder`` at which there is nothing yet."""
    path, number = folder / f"{stem}{suffix}", 2
    while os.path.lexists(path):
        path, number = folder / f"{stem}-{number}{suffix}", number + 1
    return path


def _content(notebook: bytes) -> list[list[str]] | None:
    try:
        cells = json.loads(notebook)["cells"]
        return [[cell["cell_type"], cell_source(cell)] for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _was_run(notebook: bytes) -> bool:
    return any(
        cell.get("outputs") or cell.get("execution_count") is not None
        for cell in json.loads(notebook)["cells"]
    )


def _write_atomically(path: Path, content: str | bytes) -> None:
    """Write so that a reader, or the next start after a crash, finds the old file or the new one, whole."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
