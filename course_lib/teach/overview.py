"""How far is this learner, and which exercise comes next? The progress file laid over all lessons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from course_lib.teach.exercises.exercise import Exercise
from course_lib.teach.exercises.progress import Progress, Record, load_progress
from course_lib.teach.exercises.registry import exercises_of
from course_lib.teach.exercises.result import Outcome
from course_lib.teach.lessons import Lesson, lessons
from course_lib.teach.road import USUAL_ROAD


@dataclass(frozen=True)
class LessonProgress:
    """One lesson with its exercises, each with what happened to it."""

    name: str
    title: str
    exercises: tuple[tuple[str, str, Record], ...]  # id, title, record; in the order of the lesson

    @property
    def passed(self) -> int:
        """How many of the exercises are solved."""
        return sum(record.outcome is Outcome.CORRECT for _, _, record in self.exercises)

    @property
    def attempts(self) -> int:
        """Answers checked, up to the first correct one of each exercise."""
        return sum(record.attempts for _, _, record in self.exercises)

    @property
    def hints(self) -> int:
        """Hints shown."""
        return sum(record.hints for _, _, record in self.exercises)


@dataclass(frozen=True)
class Overview:
    """All lessons of this edition, and what the learner did in them."""

    folder: Path
    lessons: tuple[LessonProgress, ...]
    next_exercise: str | None  # the id of the first one not solved on the usual road; None when all are
    note: str

    @property
    def passed(self) -> int:
        """How many exercises are solved."""
        return sum(lesson.passed for lesson in self.lessons)

    @property
    def count(self) -> int:
        """How many exercises there are."""
        return sum(len(lesson.exercises) for lesson in self.lessons)

    @property
    def next_step(self) -> str:
        """What to do next, in one sentence."""
        for lesson in self.lessons:
            for exercise_id, title, _ in lesson.exercises:
                if exercise_id == self.next_exercise:
                    return f"Next: {title} ({exercise_id}), in {lesson.name}.ipynb."
        return "All exercises are solved." if self.count else "The lessons hold no exercises yet."

    def __str__(self) -> str:
        rows = [("lesson", "solved", "attempts", "hints"), *map(_row, self.lessons)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.passed} of {self.count} exercises solved. {self.next_step}", ""]
        for name, *numbers in rows:
            right = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
            lines.append("  ".join([name.ljust(widths[0]), *right]))
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head = f"<p>{self.passed} of {self.count} exercises solved. {escape(self.next_step)}</p>"
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _row(lesson)) + "</tr>"
            for lesson in self.lessons
        )
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        names = "<tr><th>lesson</th><th>solved</th><th>attempts</th><th>hints</th></tr>"
        return f"{head}<table><thead>{names}</thead><tbody>{rows}</tbody></table>{note}"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data, each exercise with its record."""
        return {
            "folder": str(self.folder),
            "passed": self.passed,
            "exercises": self.count,
            "next_exercise": self.next_exercise,
            "note": self.note,
            "lessons": [
                {
                    "name": lesson.name,
                    "title": lesson.title,
                    "passed": lesson.passed,
                    "exercises": [
                        {"id": exercise_id, "title": title, **asdict(record)}
                        for exercise_id, title, record in lesson.exercises
                    ],
                }
                for lesson in self.lessons
            ],
        }


def overview(folder: Path) -> Overview:
    """What the learner whose folder this is did in the lessons of this edition.

    A folder without a progress file gives an overview in which nothing was tried.
    """
    with_exercises = [(lesson, exercises_of(lesson.topic)) for lesson in lessons()]
    return lay_over(load_progress(folder), with_exercises)


def lay_over(progress: Progress, with_exercises: Iterable[tuple[Lesson, tuple[Exercise, ...]]]) -> Overview:
    """The overview of these lessons and this progress."""
    found = []
    open_exercises: dict[int, str] = {}  # lesson number -> its first exercise not solved
    for lesson, exercises in with_exercises:
        records = tuple((exercise.id, exercise.title, progress.of(exercise.id)) for exercise in exercises)
        found.append(LessonProgress(lesson.name, lesson.title, records))
        for exercise_id, _, record in records:
            if record.outcome is not Outcome.CORRECT:
                open_exercises.setdefault(lesson.number, exercise_id)
    on_the_road = (number for number in (*USUAL_ROAD, *open_exercises) if number in open_exercises)
    next_number = next(on_the_road, None)
    next_exercise = open_exercises[next_number] if next_number is not None else None
    return Overview(progress.folder, tuple(found), next_exercise, progress.note)


def _row(lesson: LessonProgress) -> tuple[str, str, str, str]:
    solved = f"{lesson.passed} of {len(lesson.exercises)}"
    return f"{lesson.name}: {lesson.title}", solved, str(lesson.attempts), str(lesson.hints)
