"""The child process of `run_limited`: import, limit, run, report.

Its order comes as one line of JSON on standard input, which then stays open: when it closes, the parent is
gone, and the child ends.
"""

import json
import mmap
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.memory_errors import is_out_of_memory
from course_lib.train.child import leave_answer, take_order
from course_lib.train.limits.counted_budget import CountedBudget
from course_lib.train.limits.windows_job import limit_own_memory
from course_lib.train.rescue.memory_meter import meter_for

RLIMIT, JOB, COUNTED = "RLIMIT_DATA", "a Windows job object", "a counted budget (emulated)"


@contextmanager
def memory_limit(budget: int, emulate: bool = False) -> Iterator[str]:
    """Within it, this process can take `budget` bytes more than it has in use now.

    Gives the means by which it is limited.
    """
    if not emulate and sys.platform == "linux":
        import resource

        before = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_data_in_use() + budget, before[1]))
        if _refuses(budget + 2**26):
            try:
                yield RLIMIT
            finally:
                resource.setrlimit(resource.RLIMIT_DATA, before)  # the report needs room again
            return
        resource.setrlimit(resource.RLIMIT_DATA, before)
    if not emulate and sys.platform == "win32" and limit_own_memory(budget):
        yield JOB
        return
    with CountedBudget(budget):
        yield COUNTED


def _data_in_use() -> int:
    """What RLIMIT_DATA counts: field 6 of /proc/self/statm, in pages (proc(5))."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * mmap.PAGESIZE


def _refuses(size: int) -> bool:
    """Whether so much private memory is refused: some sandboxes take the limit and do not hold it."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return True
    return False


def warm_up() -> None:
    """A tiny training step: threads, kernels and their buffers come into being before the limit counts."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        nn.functional.cross_entropy(
            model(torch.rand(8, 3, 32, 32)), torch.zeros(8, dtype=torch.int64)
        ).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def run(order: dict[str, Any]) -> None:
    """Carry out one order, and write the answer, twice: first only the means, in case the function is never
    heard of again.
    """
    sys.path.extend(entry for entry in order["path"] if entry not in sys.path)
    torch.set_num_threads(order["threads"])
    module, _, name = order["target"].partition(":")
    function = getattr(import_module(module), name)
    warm_up()
    value: Any = None
    answer: dict[str, Any] = {"outcome": "done", "error": None}
    with memory_limit(order["memory"], order["emulate"]) as limited_by:
        leave_answer(order["answer"], {"limited_by": limited_by})
        meter = meter_for("cpu")
        before = meter.begin()
        begin = time.perf_counter()
        try:
            value = function(**order["arguments"])
        except (Exception, SystemExit) as error:
            answer = {
                "outcome": "out of memory" if is_out_of_memory(error) else "failed",
                "error": str(error) if isinstance(error, CourseError) else f"{type(error).__name__}: {error}",
            }
            if answer["outcome"] == "failed":
                traceback.print_exc()
            traceback.clear_frames(error.__traceback__)
        seconds = time.perf_counter() - begin
        peak = meter.peak() - before
    if answer["outcome"] == "done":
        value = _plain(value)
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            answer = {
                "outcome": "failed",
                "error": f"{order['target']} returned a {type(value).__name__}: "
                "return plain data (JSON) or a dataclass of it",
            }
    value = value if answer["outcome"] == "done" else None
    leave_answer(
        order["answer"],
        answer | {"value": value, "limited_by": limited_by, "peak_bytes": max(0, peak), "seconds": seconds},
    )


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


if __name__ == "__main__":
    run(take_order())
