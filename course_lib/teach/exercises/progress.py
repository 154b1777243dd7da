"""What has this learner done so far? One small JSON file, ``.course/progress.json`` in the learner's folder.

It is written to a temporary name and renamed, under a lock, so that neither a crash nor two notebooks that
write at the same time lose a record. A damaged file is set aside. Where nothing can be written (a read-only
folder, a full disk), the exercises still work: ``Progress.note`` says so, and this process remembers.
"""

from __future__ import annotations

import html
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from course_lib.teach.exercises.result import Outcome

_LOCK_TIMEOUT_S = 5.0
_FILE = Path(".course", "progress.json")


@dataclass(frozen=True)
class Record:
    """What happened with one exercise."""

    outcome: Outcome = Outcome.NOT_ATTEMPTED  # once correct, it stays correct
    attempts: int = 0  # answers checked up to the first correct one; dots do not count
    hints: int = 0  # hints shown
    solution_seen: bool = False
    passed_at: str | None = None  # time of the first correct answer, UTC, ISO 8601

    def __post_init__(self) -> None:
        counts = (self.attempts, self.hints)
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("attempts and hints are counts")
        if type(self.solution_seen) is not bool or not isinstance(self.passed_at, str | None):
            raise ValueError("solution_seen is true or false, passed_at a text or null")

    def with_answer(self, outcome: Outcome) -> Record:
        """The record after an answer with this outcome."""
        if self.outcome is Outcome.CORRECT or outcome not in (Outcome.CORRECT, Outcome.NOT_YET):
            return self
        passed_at = datetime.now(UTC).isoformat(timespec="seconds") if outcome is Outcome.CORRECT else None
        return Record(outcome, self.attempts + 1, self.hints, self.solution_seen, passed_at)

    def with_hint(self, most: int) -> Record:
        """The record after one more hint of ``most``."""
        return Record(
            self.outcome, self.attempts, min(self.hints + 1, most), self.solution_seen, self.passed_at
        )

    def with_solution(self) -> Record:
        """The record after the solution was shown."""
        return Record(self.outcome, self.attempts, self.hints, True, self.passed_at)


@dataclass(frozen=True)
class Progress:
    """The records of one learner's folder."""

    folder: Path
    exercises: Mapping[str, Record] = field(default_factory=dict)  # by exercise id; only those touched
    note: str = ""  # what to tell the learner about the file itself

    def of(self, exercise_id: str) -> Record:
        """The record of one exercise; an empty one where nothing happened yet."""
        return self.exercises.get(exercise_id, Record())

    @property
    def passed(self) -> tuple[str, ...]:
        """The ids of the exercises that were solved."""
        return tuple(name for name, record in self.exercises.items() if record.outcome is Outcome.CORRECT)

    def to_json(self) -> dict[str, Any]:
        """As in the file, with the folder and the note."""
        exercises = {name: asdict(record) for name, record in self.exercises.items()}
        return {"folder": str(self.folder), "exercises": exercises, "note": self.note}

    def __str__(self) -> str:
        rows = [_COLUMNS, *(_row(name, record) for name, record in self.exercises.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines = lines if self.exercises else ["No exercise was tried yet."]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        def cells(tag: str, row: tuple[str, ...]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

        rows = "".join(cells("td", _row(name, record)) for name, record in self.exercises.items())
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<table><thead>{cells('th', _COLUMNS)}</thead><tbody>{rows}</tbody></table>{note}"


_COLUMNS = ("exercise", "outcome", "attempts", "hints", "solution", "passed at (UTC)")


def _row(name: str, record: Record) -> tuple[str, ...]:
    seen = "seen" if record.solution_seen else "-"
    passed = record.passed_at.removesuffix("+00:00") if record.passed_at else "-"
    return name, str(record.outcome), str(record.attempts), str(record.hints), seen, passed


def load_progress(folder: Path) -> Progress:
    """What is kept in the learner's folder; empty where there is no file yet.

    A file that cannot be understood is renamed to ``progress.damaged-N.json``, and ``note`` says so.
    """
    path = folder / _FILE
    try:
        return Progress(folder, _read(path))
    except _DamagedError:
        try:
            with _locked(path):
                records, note = _read_or_set_aside(path)
            return Progress(folder, records, note)
        except (OSError, NotImplementedError) as error:
            return Progress(folder, {}, f"The file of your progress, {path}, is damaged ({_reason(error)}).")
    except OSError as error:
        return Progress(folder, {}, f"Your progress could not be read: {_reason(error)}.")


def update_progress(folder: Path, exercise_id: str, change: Callable[[Record], Record]) -> Progress:
    """Change the record of one exercise. Where that cannot be written, the progress's ``note`` says so."""
    path = folder / _FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            records, note = _read_or_set_aside(path)
            changed = dict(
                sorted({**records, exercise_id: change(records.get(exercise_id, Record()))}.items())
            )
            if changed != records:
                _write(path, changed)
        return Progress(folder, changed, note)
    except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
        records = _not_kept.setdefault(folder, {})
        records[exercise_id] = change(records.get(exercise_id, Record()))
        return Progress(folder, dict(records), f"Your progress could not be kept: {_reason(error)}.")


_not_kept: dict[Path, dict[str, Record]] = {}
"""What could not be written, so that the next hint is still the next one until the kernel restarts."""


class _DamagedError(Exception):
    pass


def _locked(path: Path) -> FileLock:
    return FileLock(path.with_suffix(".lock"), timeout=_LOCK_TIMEOUT_S)


def _read(path: Path) -> dict[str, Record]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise _DamagedError from None
    try:
        return {
            str(name): Record(**{**record, "outcome": Outcome(record["outcome"])})
            for name, record in json.loads(text)["exercises"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _DamagedError from None


def _read_or_set_aside(path: Path) -> tuple[dict[str, Record], str]:
    """The records and a note for the learner. The lock is held: nobody writes a good file in between."""
    try:
        return _read(path), ""
    except _DamagedError:
        number = 1
        while (aside := path.with_name(f"progress.damaged-{number}.json")).exists():
            number += 1
        path.rename(aside)
        return {}, f"The file of your progress was damaged. It is kept as {aside}, and a new one was begun."


def _write(path: Path, records: Mapping[str, Record]) -> None:
    text = json.dumps({"exercises": {name: asdict(record) for name, record in records.items()}}, indent=1)
    handle, temporary = tempfile.mkstemp(prefix="progress-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        _replace(Path(temporary), path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _replace(temporary: Path, path: Path) -> None:
    for wait_s in (0.02, 0.1, 0.5):
        try:
            temporary.replace(path)
            return
        except PermissionError:  # on Windows, while another process has the file open for reading
            time.sleep(wait_s)
    temporary.replace(path)


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    where = getattr(error, "filename", None)
    return f"{text} ({where})" if where else text
