"""Is this step the same as training from one large batch, and if not, why not?

    proof = prove(train_one_epoch)
    proof.verdict, proof.faults

`prove` runs the learner's own step on a small task in float64, where rounding hides nothing, watches it, and
takes each update apart: how much of each micro-batch is in it. It then says which fault it has, if any.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.train.equivalence.calling import wants
from course_lib.train.equivalence.judging import judge_records
from course_lib.train.equivalence.processes import prove_elsewhere
from course_lib.train.equivalence.proof import Fault, Proof
from course_lib.train.equivalence.reference import Reference, Task
from course_lib.train.equivalence.stopped import fault_behind
from course_lib.train.equivalence.watching import record_step, why_stopped

__all__ = ["Fault", "Proof", "Reference", "prove"]


def prove(
    step: Callable[..., Any] | str | Path, reference: Reference | None = None, *, time_limit_s: float = 60.0
) -> Proof:
    """Compare a step with training from the large batch, and name what is wrong with it.

    The `step` is a function that asks by name for what it needs: `model`, `loader` (or `batches`),
    `optimizer`, and where it uses them `criterion` (or `loss_fn`), `scheduler`, `scaler`,
    `accumulation_steps`, `max_norm`. It is called once an epoch; with a parameter `window` in place of
    `loader` once a window, with a list of micro-batches.

    Or it is a text: "my_step.py", "my_step.py:train", "my_module:train". Then it runs in a process of its
    own, which is ended after `time_limit_s`; with `reference.ranks` in several that train together. With
    ranks, a function must stand at the top of a module. A file may hold its own `reference = Reference(...)`
    (for one rank), which counts where none is given.

    Raises CourseError for a reference that is none, for a step that cannot be called so, for the time limit,
    and for an error in the step that no known fault explains.
    """
    if reference is not None and not isinstance(reference, Reference):
        raise CourseError(
            f"{reference!r} is no Reference: write Reference(accumulation_steps=4), or leave it out."
        )
    if not callable(step) or (reference is not None and reference.ranks):
        return prove_elsewhere(step, reference, time_limit_s=time_limit_s)
    task = Task(reference or Reference())
    record = record_step(step, task)
    if record.error and fault_behind(record) is None:
        raise CourseError(why_stopped(record))
    return judge_records([record], task, wants_schedule=wants(step, "scheduler"))
