"""How does one run of a step become a record, whatever the step does?"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from course_lib.errors import CourseError
from course_lib.train.equivalence.calling import run_step
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.recorder import Recorder
from course_lib.train.equivalence.reference import Task, seeded


def record_step(step: Callable[..., Any], task: Task, *, rank: int = 0) -> Record:
    """Run the step on the task of one rank, and note what it does.

    With several ranks the default process group must be there; the step gets the model wrapped in
    DistributedDataParallel. An error in the step is part of the record. Raises CourseError for a step that
    asks for something unknown.
    """
    model = task.model()
    recorder = Recorder(task, model, rank)
    with ExitStack() as stack:
        stack.enter_context(seeded(task.reference.seed))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # about a scheduler before its optimizer, or a card that is not here
        stack.enter_context(recorder.watching(step))
        given: Any = model
        if task.reference.ranks:
            given = DistributedDataParallel(model)
            recorder.watch_exchange(given, stack)
        try:
            run_step(step, recorder, given)
        except CourseError:
            raise
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            recorder.record.error = f"{type(error).__name__}: {first}".rstrip(": ")
            recorder.record.own_line = _line_of(error, step)
    return recorder.record


def why_stopped(record: Record) -> str:
    """One sentence on an error in the step that is no fault of accumulation."""
    where = f" in the line `{record.own_line}`" if record.own_line else ""
    hint = ""
    if "dtype" in record.error or "Double" in record.error:
        hint = " The proof runs in float64: leave .float() and .half() out, or use the dtype of the model."
    elif "CUDA" in record.error:
        hint = " The proof runs on the CPU: take `device` as a parameter, and write .to(device)."
    return f"The step stopped with {record.error}{where}: let it run alone first.{hint}"


def _line_of(error: BaseException, step: Callable[..., Any]) -> str:
    """The line of the step's own file in which it stopped."""
    own = getattr(getattr(step, "__code__", None), "co_filename", None)
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    return (lines[-1] or "").strip() if lines else ""
