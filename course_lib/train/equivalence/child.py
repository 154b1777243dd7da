"""One process of a proof: it imports the step, runs it on its rank's batches, and leaves a record.

Its order comes as one line of JSON on standard input, which then stays open: when it closes, the parent is
gone, and the process ends. Rank 0 also waits for the records of the others, and writes the proof.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course_lib.errors import CourseError
from course_lib.train.child import take_order, write_whole
from course_lib.train.equivalence.calling import MEANING, wants
from course_lib.train.equivalence.judging import judge_records
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.reference import Reference, Task
from course_lib.train.equivalence.stopped import fault_behind
from course_lib.train.equivalence.watching import record_step, why_stopped


def run(order: dict[str, Any]) -> None:
    """Carry out the order of one rank."""
    torch.set_num_threads(1)
    folder, rank = Path(order["folder"]), int(order["rank"])
    sys.path[:0] = [entry for entry in order["path"] if entry not in sys.path]
    module = _import(order["module"])
    step = _step_in(module, order["function"])
    reference = _reference(order, module)
    task = Task(reference)
    if reference.ranks:
        store = dist.FileStore(str(folder / "store"), reference.world_size)  # type: ignore[attr-defined]
        limit = timedelta(seconds=order["time_limit_s"])
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=reference.world_size, timeout=limit
        )
    record = record_step(step, task, rank=rank)
    record.save(folder / f"record{rank}.npz")
    if rank == 0:
        records = [record, *(_wait_for(folder / f"record{r}.npz") for r in range(1, reference.world_size))]
        for one in records:
            if one.error and fault_behind(one) is None:
                raise CourseError(why_stopped(one))
        proof = judge_records(records, task, wants_schedule=wants(step, "scheduler"))
        write_whole(folder / "proof.json", proof.to_json())
    threading.Event().wait(order["time_limit_s"])  # the parent ends all ranks when it has the proof


def _wait_for(path: Path) -> Record:
    while not path.exists():
        time.sleep(0.02)
    return Record.load(path)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise CourseError(
            f"{name} cannot be imported ({type(error).__name__}: {first}): let it run alone first. What a "
            'script does at once belongs under `if __name__ == "__main__":`.'
        ) from None


def _step_in(module: Any, name: str) -> Callable[..., Any]:
    """The function of that name; without a name, the only one that takes a model and an optimizer."""
    if name:
        found = getattr(module, name, None)
        if not callable(found):
            raise CourseError(f"There is no function {name!r} in {module.__name__}: check its spelling.")
        return found  # type: ignore[no-any-return]
    own = [
        function
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and {"model", "optimizer"} <= {MEANING.get(p) for p in inspect.signature(function).parameters}
    ]
    if len(own) != 1:
        names = ", ".join(function.__name__ for function in own) or "none"
        raise CourseError(
            f"A step takes a model and an optimizer; in {module.__name__} these functions do: {names}. Say "
            "which one, as in my_step.py:train."
        )
    return own[0]


def _reference(order: dict[str, Any], module: Any) -> Reference:
    """The order's reference; where it has none, the one that stands in the step's own module."""
    if order["reference"] is not None:
        return Reference.from_plain(order["reference"])
    own = getattr(module, "reference", None)
    if not isinstance(own, Reference):
        return Reference()
    if own.ranks:
        raise CourseError(
            "The reference in the file has ranks, but one process was started: say them with --ranks, or as "
            "prove(..., Reference(ranks=(7, 5)))."
        )
    return own


if __name__ == "__main__":
    given = take_order()
    try:
        run(given)
    except CourseError as error:
        write_whole(Path(given["folder"]) / f"error{given['rank']}.json", json.dumps(str(error)))
    except BaseException:
        traceback.print_exc()
        raise
