"""How does a notebook start a training on several processes? `launch` drives torchrun's own elastic agent.

    run = launch("course_lib.train.ranks.data_parallel:train_digits", 2, arguments={"steps": 20})
    run.values  # what each rank returned

The agent and its ranks are child processes: a free port is found, what they print appears with the rank's
number, and at the end, after a failure, a time limit, an interrupt or the end of the notebook's kernel too,
none of them is left, nor what they started. What is launched is imported by each rank: a module, never a
notebook cell.
"""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from course_lib.errors import CourseError
from course_lib.train.child import read_answer
from course_lib.train.ranks.launch_family import kill_family
from course_lib.train.ranks.launch_result import LaunchError, LaunchRun, Outcome, sort_errors
from course_lib.train.ranks.launch_target import (
    CALL_IN_TURN,
    LAUNCHES,
    check_settings,
    check_target,
    modules_of,
    within,
)
from course_lib.units import format_seconds

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])
_GRACE_S = 3.0  # for ranks that are told to end, before they are killed
_LOGGED = re.compile(r"[WE]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S*torch.distributed.elastic")
_LOOPBACK = {"linux": "lo", "darwin": "lo0"}

OnLine = Callable[[int | None, str], None]


def print_line(rank: int | None, line: str) -> None:
    """Print a line with its rank's number, as it comes; the agent's own lines are left out."""
    if rank is not None:
        print(f"[rank {rank}] {line}")


def launch(
    target: str,
    nproc: int = 2,
    *,
    arguments: Mapping[str, Any] | None = None,
    args: Sequence[str] = (),
    time_limit_s: float = 300.0,
    max_restarts: int = 0,
    environment: Mapping[str, str] | None = None,
    on_line: OnLine | None = print_line,
    check: bool = True,
) -> LaunchRun:
    """Run a module, or a function of it, as `nproc` ranks of one distributed job on this computer.

    Args:
        target: "module", run as `torchrun -m module` does with `args`, or "module:function", called with
            `arguments`; both these and what it returns are plain data (JSON).
        nproc: how many ranks, 1 to `most_ranks()`.
        time_limit_s: after so many seconds all ranks are ended, and the run is "timed out".
        max_restarts: how often the agent may start all ranks anew after one failed.
        environment: variables for the ranks, beside those of this process. OMP_NUM_THREADS is 1, since
            ranks share the cores.
        on_line: hears (rank, line) for each line that a rank prints, live. None: nobody does.
        check: whether a run that did not end well raises LaunchError; without, it is returned.

    Raises:
        CourseError: a target or setting that cannot be used.
        LaunchError: `check`, and a rank failed or the time is over. Its sentence is the first rank's own
        error.
    """
    check_target(target, arguments, args)
    check_settings(nproc, time_limit_s, max_restarts)
    run_id = uuid.uuid4().hex
    launches = within(run_id, modules_of(target, arguments))
    with tempfile.TemporaryDirectory(prefix="course_launch_", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "order.json"
        order = {
            "target": target,
            "nproc": nproc,
            "arguments": dict(arguments or {}),
            "args": list(args),
            "max_restarts": max_restarts,
            "run_id": run_id,
            "launched_by": os.getpid(),
            "path": [str(Path(entry).resolve()) for entry in sys.path],
        }
        try:
            path.write_text(json.dumps(order), encoding="utf-8")
        except (TypeError, ValueError):
            raise CourseError(
                "The arguments must be plain data: numbers, texts, lists and dictionaries."
            ) from None
        begin = time.monotonic()
        agent = _Agent(path, run_id, {LAUNCHES: launches, **(environment or {})}, on_line)
        try:
            in_time = agent.wait(begin + time_limit_s)
        finally:
            agent.end()
        agent.pass_on(0)
        run = _read_run(
            path.parent, order, agent, time.monotonic() - begin, None if in_time else time_limit_s
        )
    if check and run.outcome != "done":
        raise LaunchError(run)
    return run


def launch_in_turn(
    calls: Sequence[tuple[str, Mapping[str, Any]]], nproc: int = 2, **settings: Any
) -> list[list[Any]]:
    """Call several functions one after the other in one launch, which saves the start of new ranks for each.

    Each call is ("module:function", arguments). All share one group of ranks on the CPU: a `process_group`
    within it is the same one. `settings` are those of `launch`.

    Returns:
        For each call, what each rank returned.
    """
    for target, its in calls:
        check_target(target, its, ())
    arguments = {"calls": [(target, dict(its)) for target, its in calls]}
    run = launch(CALL_IN_TURN, nproc, arguments=arguments, **settings)
    return [list(values) for values in zip(*run.values, strict=True)]


class _Agent:
    """The running agent, its lines, and the end of its whole family."""

    def __init__(
        self, order: Path, run_id: str, environment: Mapping[str, str], on_line: OnLine | None
    ) -> None:
        self._run_id = run_id
        self.lines: list[tuple[int | None, str]] = []
        self._on_line = on_line
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        flags: dict[str, Any] = {}
        if sys.platform == "win32":  # so that the agent's Ctrl-C for its ranks does not reach the notebook
            flags["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        else:
            flags["start_new_session"] = True
        self.process = subprocess.Popen(
            [sys.executable, "-m", "course_lib.train.ranks.launch_agent", str(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(environment),
            **flags,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        with suppress(ValueError):  # closed by end()
            for line in stream:
                self._waiting.put(line.decode("utf-8", errors="replace").rstrip("\r\n"))

    def wait(self, deadline: float) -> bool:
        """Pass lines on until the agent ends; False when the deadline came first."""
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                return False
            self.pass_on(0.05)
        return True

    def pass_on(self, timeout_s: float) -> None:
        """Hand over the lines that have come, until none comes for so long."""
        with suppress(queue.Empty):
            while True:
                line = self._waiting.get(timeout=timeout_s)
                rank, text = split_line(line)
                self.lines.append((rank, text))
                if self._on_line is not None:
                    self._on_line(rank, text)

    def end(self) -> None:
        """Let no process of the launch outlive this: ask, close their input, kill."""
        if self.process.poll() is None:
            children = _children(self.process)
            with suppress(OSError):
                self.process.terminate()
            psutil.wait_procs(children, timeout=_GRACE_S)
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        for process in _children(self.process):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.kill()
        self.process.wait()
        kill_family(self._run_id, _GRACE_S)
        self._reader.join(_GRACE_S)
        if self.process.stdout:
            self.process.stdout.close()


def split_line(line: str) -> tuple[int | None, str]:
    """The rank that printed a line of the agent's output, None for the agent itself, and the line.

    Where a rank's last line has no end, what the agent then logs stands behind it, and is left out.
    """
    if line.startswith("[rank "):
        number, _, text = line[6:].partition("] ")
        if number.isdigit():
            return int(number), _LOGGED.split(text)[0]
    return None, line


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    environment = dict(os.environ)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)  # of a job that this process is a rank of
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGE_ROOT, os.environ.get("PYTHONPATH")])),
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5",
        # A store for each start of the ranks: in a shared one they may read where those before them listened.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    if sys.platform == "win32":
        environment["USE_LIBUV"] = "0"
    if sys.platform in _LOOPBACK:  # the ranks are on one computer, whatever its name resolves to
        environment.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK[sys.platform])
    return environment | {name: str(value) for name, value in more.items()}


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return [*psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _read_run(
    folder: Path, order: Mapping[str, Any], agent: _Agent, seconds: float, limit_s: float | None
) -> LaunchRun:
    """Put together what the ranks and the agent wrote; `limit_s` where the time was over."""
    nproc, status = order["nproc"], agent.process.returncode or 0
    attempt = max((int(p.stem.rpartition("attempt")[2]) for p in folder.glob("rank*.json")), default=0)
    reports, stacks = _read_attempt(folder, nproc, attempt)
    earlier = tuple(sort_errors(*_read_attempt(folder, nproc, past)) for past in range(attempt))
    told = read_answer(folder / "agent.json")
    statuses = {int(rank): code for rank, code in told.get("statuses", {}).items()}
    if told and not told.get("stopped"):  # all have ended, and those that are not named with 0
        statuses = dict.fromkeys(range(nproc), 0) | statuses
    told_all = ":" not in order["target"] or all(report["state"] == "done" for report in reports)
    if limit_s is None and status == 0 and told_all:
        values = tuple(report.get("value") for report in reports)
        return LaunchRun(order["target"], nproc, "done", seconds, values, (), earlier, tuple(agent.lines))
    outcome: Outcome = "failed" if limit_s is None else "timed out"
    late = "" if limit_s is None else f"not done after {format_seconds(limit_s)}"
    killed = limit_s is None and status < 0
    errors = () if killed else sort_errors(reports, stacks, statuses, late)
    if not errors:
        said = next((line for _, line in reversed(agent.lines) if line.strip()), f"exit status {status}")
        if killed:
            said = f"ended by {signal.Signals(-status).name}"
        raise CourseError(f"torchrun's agent could not run the ranks: {said.rstrip('.')}.")
    return LaunchRun(order["target"], nproc, outcome, seconds, (), errors, earlier, tuple(agent.lines))


def _read_attempt(folder: Path, nproc: int, attempt: int) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """What each rank wrote in an attempt, and the stacks of those that were told to end."""
    reports, stacks = [], {}
    for rank in range(nproc):
        name = f"rank{rank}.attempt{attempt}"
        reports.append(read_answer(folder / f"{name}.json") or {"state": "absent"})
        with suppress(OSError):
            stack = (folder / f"{name}.stack").read_text(encoding="utf-8", errors="replace")
            if stack.strip():
                stacks[rank] = stack
    return reports, stacks
