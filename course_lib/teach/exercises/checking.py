"""How does a lesson check an answer, give a hint, show the solution?

    check("start.throughput", samples_per_second)
    hint("start.throughput")
    solution("start.throughput")

None of them raises for anything a learner hands in, so that the cells below still run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.teach.exercises.exercise import Assessment, Exercise
from course_lib.teach.exercises.panel import ADVICE, Panel, Shown
from course_lib.teach.exercises.progress import Progress, Record, update_progress
from course_lib.teach.exercises.registry import exercise
from course_lib.teach.exercises.result import Outcome, Result

_PRINTED_CHARACTERS = 300
_PRINTED_LINES = 5


@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """What ``hint`` and ``solution`` return."""

    id: str
    heading: str
    text: str
    code: str = ""
    notes: tuple[str, ...] = ()

    @property
    def panel(self) -> Panel:
        """The hint, or the code of the solution."""
        return Panel(ADVICE, self.heading, self.text, self.code, self.notes)

    def __repr__(self) -> str:
        return f"<{self.id}: {self.heading}>"


def check(exercise_id: str, answer: object) -> Result:
    """Check an answer, show what came of it, and keep it in the learner's progress.

    Args:
        exercise_id: as "start.throughput".
        answer: the learner's function or value itself; nothing is looked up in the notebook. ``...`` and
            a function that returns it are not attempted.

    Returns:
        The result, already shown. An unknown exercise and any wrong answer are results too.
    """
    try:
        asked = exercise(exercise_id)
    except CourseError as error:
        return Result(str(exercise_id), Outcome.NO_SUCH_EXERCISE, str(error)).show()
    assessment = asked.checker(answer)
    progress = _keep(asked, lambda record: record.with_answer(assessment.outcome))
    return Result(
        asked.id,
        assessment.outcome,
        assessment.message,
        title=asked.title,
        notes=_notes(asked, assessment, progress),
    ).show()


def hint(exercise_id: str) -> Advice:
    """Show the next hint; after the last one, the last one again.

    Args:
        exercise_id: as "start.throughput".
    """
    try:
        asked = exercise(exercise_id)
    except CourseError as error:
        return Advice(str(exercise_id), "No such exercise", str(error)).show()
    most = len(asked.hints)
    progress = _keep(asked, lambda record: record.with_hint(most))
    number = progress.of(asked.id).hints
    left = most - number
    more = (
        f'{left} more: `hint("{asked.id}")` again.'
        if left
        else f'That is the last one. `solution("{asked.id}")` shows one way to write it.'
    )
    heading = f"Hint {number} of {most}: {asked.title}"
    return Advice(asked.id, heading, asked.hints[number - 1], notes=_with(more, progress.note)).show()


def solution(exercise_id: str) -> Advice:
    """Show the code of the solution, from the source of the lesson. That it was seen is kept.

    Args:
        exercise_id: as "start.throughput".
    """
    from course_lib.teach.build import solution_of

    try:
        asked = exercise(exercise_id)
        code = solution_of(asked.id)
    except CourseError as error:
        return Advice(str(exercise_id), "No solution to show", str(error)).show()
    progress = _keep(asked, Record.with_solution)
    text = "One way to write it. Any other that gives the same is as good."
    return Advice(asked.id, f"Solution: {asked.title}", text, code, _with(progress.note)).show()


def _keep(asked: Exercise, change: Callable[[Record], Record]) -> Progress:
    from course_lib.teach.workspace import learner_folder

    try:
        folder = learner_folder()
    except OSError:  # the current folder was deleted
        folder = Path()
    return update_progress(folder, asked.id, change)


def _notes(asked: Exercise, assessment: Assessment, progress: Progress) -> tuple[str, ...]:
    shown = progress.of(asked.id).hints
    help_ = f'`hint("{asked.id}")` gives a hint.' if shown < len(asked.hints) else ""
    return _with(
        f"Your function printed: {_shortened(assessment.printed)}" if assessment.printed.strip() else "",
        help_ if assessment.outcome is Outcome.NOT_YET else "",
        progress.note,
    )


def _shortened(printed: str) -> str:
    """The first lines and characters of what was printed."""
    lines = printed.strip().splitlines()
    text = "\n".join(lines[:_PRINTED_LINES])
    cut = len(lines) > _PRINTED_LINES or len(text) > _PRINTED_CHARACTERS
    return text[:_PRINTED_CHARACTERS] + (" ..." if cut else "")


def _with(*notes: str) -> tuple[str, ...]:
    return tuple(note for note in notes if note)
