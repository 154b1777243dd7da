"""What happens to a function when memory is short? It runs in a child process that really has no more.

    target = "course_lib.train.limits.limited_training:train_some_steps"
    print(run_limited(target, memory="64 MiB", arguments={"batch_size": 512}))

The child imports torch first, which alone maps some 3 GiB of address space, and is limited afterwards: to
what it has in use then, and `memory` more. On Linux the limit is RLIMIT_DATA, on Windows a job object.
Where the system offers neither (macOS), tensors are counted against a budget, and the result is called
emulated. The failure is the child's; the notebook's kernel goes on.
"""

import html
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from course_lib.errors import CourseError
from course_lib.memory_errors import find_out_of_memory
from course_lib.train.child import read_answer
from course_lib.units import format_bytes, format_seconds, parse_bytes

Outcome = Literal["done", "out of memory", "failed", "timed out", "killed"]
SMALLEST = 2**20
_MOST_OUTPUT = 20_000  # characters of what the child printed: the end


@dataclass(frozen=True)
class LimitedRun:
    """How a function fared under a memory limit. Sizes in bytes, time in seconds, without the child's start.

    `value` is what the function returned, as plain data, when `outcome` is "done"; else `error` tells what
    went wrong, in the words of whoever noticed. `limited_by` is the means; `peak_bytes` is the most that
    was in use beyond the start, None where the child could not tell any more. `output` is the end of what
    it printed.
    """

    target: str
    memory_bytes: int
    limited_by: str
    outcome: Outcome
    value: Any
    error: str | None
    peak_bytes: int | None
    seconds: float
    output: str

    @property
    def emulated(self) -> bool:
        """Whether tensors were counted, and the process was not limited by the system."""
        return "emulated" in self.limited_by

    def completed(self) -> Any:
        """The value that the function returned. Raises CourseError where it did not come to its end."""
        if self.outcome != "done":
            raise CourseError(
                f"{self.target} ended as {self.outcome} within {format_bytes(self.memory_bytes)}: "
                f"{self.error}"
            )
        return self.value

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self) | {"emulated": self.emulated})

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("outcome", self.outcome),
            ("memory", f"{format_bytes(self.memory_bytes)}, limited by {self.limited_by}"),
        ]
        if self.peak_bytes is not None:
            rows.append(("most in use", format_bytes(self.peak_bytes)))
        rows.append(("time", format_seconds(self.seconds)))
        rows.append(("error", self.error) if self.error is not None else ("value", str(self.value)))
        return rows

    def __str__(self) -> str:
        return "\n".join([self.target, *(f"  {name + ':':<12} {value}" for name, value in self._rows())])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{name}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        return f"<table><caption>{html.escape(self.target)}</caption>{rows}</table>"


def run_limited(
    target: str | Callable[..., Any],
    *,
    memory: int | str,
    arguments: Mapping[str, Any] | None = None,
    time_limit_s: float = 120.0,
    threads: int = 1,
    emulate: bool = False,
) -> LimitedRun:
    """Run a function in a child process that may take only so much more memory than it has at the start.

    `target` is "module:function", or a function that stands at the top of an importable module: a function
    from a notebook cell cannot be sent. `memory` is a size such as "64 MiB", or bytes. `arguments` and what
    the function returns are plain data (JSON). The child computes with `threads` threads, each of which
    takes memory of its own. With `emulate` tensors are counted even where a real limit is to be had.

    An error in the function, running out of memory included, is part of the result and is not raised.
    Raises CourseError for a target or arguments that cannot be sent.
    """
    name = _importable(target)
    size = parse_bytes(memory) if isinstance(memory, str) else int(memory)
    if size < SMALLEST:
        raise CourseError(f"A limit of {size} bytes is too little to run anything: give 1 MiB or more.")
    if threads < 1 or not time_limit_s > 0:
        raise CourseError(
            f"At least one thread and a positive time are needed, not {threads} and {time_limit_s} s."
        )
    with tempfile.TemporaryDirectory(prefix="course_limited_", ignore_cleanup_errors=True) as folder:
        answer = Path(folder) / "answer.json"
        order = {
            "target": name,
            "arguments": dict(arguments or {}),
            "memory": size,
            "threads": threads,
            "emulate": emulate,
            "path": [str(Path(entry).resolve()) for entry in sys.path],
            "answer": str(answer),
        }
        try:
            line = json.dumps(order) + "\n"
        except (TypeError, ValueError):
            raise CourseError(
                "The arguments must be plain data: numbers, texts, lists and dictionaries."
            ) from None
        begin = time.perf_counter()
        with (Path(folder) / "output.txt").open("w+b") as printed:
            status = _run_child(line.encode(), printed, time_limit_s)
            seconds = time.perf_counter() - begin
            printed.seek(0)
            output = printed.read().decode("utf-8", errors="replace")[-_MOST_OUTPUT:]
        answers = read_answer(answer)
    told = answers.get("limited_by", "nothing yet: the child had not come so far")
    if "outcome" in answers:
        return LimitedRun(
            name, size, told, answers["outcome"], answers["value"], answers["error"],
            answers["peak_bytes"], answers["seconds"], output,
        )  # fmt: skip
    outcome, error = _without_an_answer(status, output, time_limit_s)
    return LimitedRun(name, size, told, outcome, None, error, None, seconds, output)


def _importable(target: str | Callable[..., Any]) -> str:
    """The target as "module:function". Raises CourseError if a child could not import it."""
    if callable(target):
        module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", "")
        if module in (None, "__main__") or "." in name or "<" in name:
            raise CourseError(
                f"The function {name or target!r} lives in a notebook or in another function, where a child "
                "process cannot import it: write it into a .py file and import it from there."
            )
        return f"{module}:{name}"
    module, _, name = target.partition(":")
    if not module or not name.isidentifier():
        raise CourseError(f'{target!r} is no function to import: write "module:function".')
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise CourseError(
            f"The module {module!r} cannot be imported ({error}): check its name and its folder."
        ) from None
    if not callable(found):
        raise CourseError(f"There is no function {name!r} in {module}: check its spelling.")
    return target


def _run_child(order: bytes, printed: Any, time_limit_s: float) -> int | None:
    """Start the child, and wait for its end.

    Returns its exit status, None when the time ran out. Leaves no process behind.
    """
    root = str(Path(__file__).resolve().parents[3])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "PYTHONIOENCODING": "utf-8",
        "PYTHONUNBUFFERED": "1",
        # glibc keeps what is freed, up to 32 MiB a piece, unless these thresholds are fixed: then a freed
        # tensor is really free.
        "MALLOC_MMAP_THRESHOLD_": str(128 * 1024),
        "MALLOC_TRIM_THRESHOLD_": str(128 * 1024),
        # oneDNN keeps the kernels of 1024 shapes, some MiB for each new batch size: a search would pay for
        # all that it tried.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "course_lib.train.limits.limited_child"],
        stdin=subprocess.PIPE,
        stdout=printed,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=os.name == "posix",  # a group of its own, which can be ended as a whole
    )
    try:
        assert child.stdin is not None
        with suppress(OSError):  # where the child is gone already, its exit status says more
            child.stdin.write(order)
            child.stdin.flush()  # it stays open: its end tells the child that nobody waits any more
        return child.wait(time_limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child with all that it started, also where the child itself has ended already."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # nobody is left in its group
            os.killpg(child.pid, signal.SIGKILL)
    else:
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(child.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
    child.kill()
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()
    child.wait()


def _without_an_answer(status: int | None, output: str, time_limit_s: float) -> tuple[Outcome, str]:
    """What a child's silence means."""
    if status is None:
        return "timed out", f"not done after {format_seconds(time_limit_s)}"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    if find_out_of_memory(output) is not None:
        return "out of memory", last
    if status < 0:
        return "killed", f"ended by signal {-status}: {last}"
    return "killed", f"ended with exit status {status}: {last}"
