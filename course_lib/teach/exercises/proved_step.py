"""How is a training step checked that the learner wrote? It is put to the proof, and hears what was seen.

A checker for exercises whose answer is a whole step: `prove` compares it with the large batch in float64. The
message tells the fault and its evidence, never the remedy.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

from course_lib.errors import CourseError
from course_lib.teach.exercises.cases import STILL_DOTS, holds_dots, sentence
from course_lib.teach.exercises.exercise import Assessment
from course_lib.teach.exercises.first_step import import_what_a_first_step_imports
from course_lib.teach.exercises.guard import why_not_callable
from course_lib.teach.exercises.result import Outcome
from course_lib.teach.exercises.time_limit import TimeUp, call_within
from course_lib.train.equivalence import Proof, Reference, prove

_LIMIT_S = 20.0  # a proof takes well under a second


@dataclass(frozen=True)
class ProvedStep:
    """The learner's step must have no fault under each of these references.

    `parameters` are the names that it must take. A step that never updates is taken as not yet begun.
    """

    parameters: tuple[str, ...]
    references: tuple[Reference, ...] = (Reference(),)
    name: str = "train_epoch"

    def __call__(self, answer: object) -> Assessment:
        """What to say of this step."""
        if holds_dots(answer):
            return Assessment(Outcome.NOT_ATTEMPTED, STILL_DOTS)
        why_not = why_not_callable(answer, self.name, self.parameters)
        if why_not or not callable(answer):
            return Assessment(Outcome.NOT_YET, why_not)
        import_what_a_first_step_imports()
        printed = io.StringIO()
        try:
            for reference in self.references:
                with contextlib.redirect_stdout(printed):
                    proof = call_within(_LIMIT_S, lambda reference=reference: prove(answer, reference))  # type: ignore[misc]
                if proof.faults:
                    return _of_faults(proof, reference, printed.getvalue()[:2000])
        except CourseError as error:
            return Assessment(Outcome.NOT_YET, sentence(_in_code(str(error))), printed.getvalue()[:2000])
        except TimeUp:
            return Assessment(
                Outcome.NOT_YET,
                f"Your step was not done after {_LIMIT_S:g} seconds: is there a loop without end?",
            )
        return Assessment(Outcome.CORRECT, printed=printed.getvalue()[:2000])


def _of_faults(proof: Proof, reference: Reference, printed: str) -> Assessment:
    first = proof.faults[0]
    if first.id == "no_update":
        return Assessment(Outcome.NOT_ATTEMPTED, "Your step makes no update yet.", printed)
    what = "texts of unequal length" if reference.weight_by == "tokens" else "batches of images"
    more = f" (and {len(proof.faults) - 1} more)" if len(proof.faults) > 1 else ""
    text = f"On {what}: {first.title}{more}. Seen: {first.evidence}"
    return Assessment(Outcome.NOT_YET, sentence(_in_code(text)), printed)


def _in_code(text: str) -> str:
    """Line breaks have no place in a message."""
    return " ".join(text.split())
