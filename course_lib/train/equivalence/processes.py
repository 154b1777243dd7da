"""How does code from a file run for a proof? In processes of its own, one a rank, that are ended in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from course_lib.errors import CourseError
from course_lib.train.equivalence.catalogue import fault
from course_lib.train.equivalence.proof import Proof
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.reference import Reference
from course_lib.train.equivalence.watching import why_stopped
from course_lib.units import format_seconds

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])
_ALONE_S = 3.0
"""When one rank is done, the others get at least so long, and half of what all took so far: they may wait for
it in vain."""

_LOOPBACK = {"linux": "lo", "darwin": "lo0"}
_CUT_OFF = ("gloo", "Connection", "timed out")  # what a rank says when another one is gone


def prove_elsewhere(
    step: Callable[..., Any] | str | Path, reference: Reference | None, *, time_limit_s: float
) -> Proof:
    """The proof of a step that is imported by processes of its own. See `prove`."""
    if not time_limit_s > 0:
        raise CourseError(f"The time limit must be more than 0 s, not {time_limit_s}.")
    module, function, folder = _target(step)
    ranks = reference.world_size if reference is not None else 1
    with tempfile.TemporaryDirectory(prefix="course_proof_", ignore_cleanup_errors=True) as scratch:
        order: dict[str, Any] = {
            "module": module,
            "function": function,
            "path": [*folder, *(str(Path(entry).resolve()) for entry in sys.path)],
            "reference": None if reference is None else reference.to_plain(),
            "time_limit_s": time_limit_s,
            "folder": scratch,
        }
        processes = _Processes([order | {"rank": rank} for rank in range(ranks)], Path(scratch))
        try:
            return processes.wait(time_limit_s)
        finally:
            processes.end()


class _Processes:
    """The running ranks. Their standard input stays open: when it closes, they end themselves."""

    def __init__(self, orders: list[dict[str, Any]], folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
        if sys.platform in _LOOPBACK:  # the ranks are on this computer: no firewall or host name matters
            environment.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK[sys.platform])
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [_PACKAGE_ROOT, os.environ.get("PYTHONPATH")])
        )
        try:
            for order in orders:
                with (folder / f"printed{order['rank']}.txt").open("wb") as printed:
                    process = subprocess.Popen(
                        [sys.executable, "-m", "course_lib.train.equivalence.child"],
                        stdin=subprocess.PIPE,
                        stdout=printed,
                        stderr=subprocess.STDOUT,
                        env=environment,
                        cwd=folder,
                        start_new_session=os.name == "posix",  # a group of its own, ended as a whole
                    )
                self.running.append(process)
                assert process.stdin is not None
                with suppress(OSError):  # where it is gone already, its exit status says more
                    process.stdin.write(json.dumps(order).encode() + b"\n")
                    process.stdin.flush()
        except BaseException:
            self.end()
            raise

    def wait(self, time_limit_s: float) -> Proof:
        """The proof of rank 0; or what can be said where it never comes."""
        begin = time.monotonic()
        deadline = begin + time_limit_s
        one_done = False
        while not (self.folder / "proof.json").exists():
            for rank, process in enumerate(self.running):
                told = self.folder / f"error{rank}.json"
                if told.exists():
                    raise CourseError(json.loads(told.read_text(encoding="utf-8")))
                if process.poll() is not None and not told.exists():
                    raise CourseError(
                        "The process of the step ended before the proof was done: "
                        f"{self._last_words(rank)}. Does the step, or the file, end Python itself?"
                    )
            if not one_done and len(self.running) > 1 and self._done():
                one_done, now = True, time.monotonic()
                deadline = min(deadline, now + max(_ALONE_S, (now - begin) / 2))
            if time.monotonic() > deadline:
                return self._given_up(time_limit_s)
            time.sleep(0.02)
        return Proof.from_json((self.folder / "proof.json").read_text(encoding="utf-8"))

    def _done(self) -> dict[int, Path]:
        """The records that are there, by rank."""
        paths = {rank: self.folder / f"record{rank}.npz" for rank in range(len(self.running))}
        return {rank: path for rank, path in paths.items() if path.exists()}

    def _given_up(self, time_limit_s: float) -> Proof:
        """Ranks of which some are done and others wait are out of step; else the step is too slow."""
        done = {rank: Record.load(path) for rank, path in self._done().items()}
        for record in done.values():
            if record.error and not any(word in record.error for word in _CUT_OFF):
                raise CourseError(why_stopped(record))
        if not done or len(self.running) == 1:
            raise CourseError(
                f"The step was not done after {format_seconds(time_limit_s)} and was ended: does it wait for "
                "something? Otherwise give it more time."
            )
        told = "; ".join(f"rank {rank} made {len(record.updates)} updates" for rank, record in done.items())
        waiting = ", ".join(str(rank) for rank in range(len(self.running)) if rank not in done)
        found = fault("ranks_out_of_step", f"{told} and was done; rank {waiting} still waits for it")
        return Proof((found,), (), (), None, None, max(len(r.updates) for r in done.values()), 0, (), (), ())

    def _last_words(self, rank: int) -> str:
        printed = (self.folder / f"printed{rank}.txt").read_text(encoding="utf-8", errors="replace")
        lines = [line for line in printed.strip().splitlines() if line.strip()]
        return lines[-1].rstrip(".") if lines else f"exit status {self.running[rank].returncode}"

    def end(self) -> None:
        """Let no process outlive this."""
        for process in self.running:
            if hasattr(os, "killpg"):
                with suppress(ProcessLookupError, PermissionError):  # nobody is left in its group
                    os.killpg(process.pid, signal.SIGKILL)
            else:
                with suppress(psutil.NoSuchProcess):
                    for child in psutil.Process(process.pid).children(recursive=True):
                        with suppress(psutil.NoSuchProcess):
                            child.kill()
            process.kill()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
            process.wait()


def _target(step: Callable[..., Any] | str | Path) -> tuple[str, str, list[str]]:
    """A step as the module to import, the function in it ("" for the only one), and its folder."""
    if callable(step):
        module, name = getattr(step, "__module__", ""), getattr(step, "__qualname__", "")
        if module in ("", "__main__") or not name.isidentifier():
            raise CourseError(
                f"The step {name or step!r} is in a notebook or in another function, where other processes "
                "cannot import it: write it into a .py file and name that, as in 'my_step.py'."
            )
        return module, name, []
    text = str(step)
    path, colon, name = text.rpartition(":")
    if not colon or (len(path) == 1 and path.isalpha()):  # "C:" begins a path on Windows
        path, name = text, ""
    if name and not name.isidentifier():
        raise CourseError(f"{name!r} is no name of a function: write my_step.py:train.")
    if not path.endswith(".py"):
        if not all(part.isidentifier() for part in path.split(".")) or not name:
            raise CourseError(f"{text!r} is no step: write my_step.py, my_step.py:train or my_module:train.")
        return path, name, []
    file = Path(path).resolve()
    if file.is_dir():
        raise CourseError(f"{path} is a folder: name the file in it that holds the step.")
    if not file.is_file():
        raise CourseError(f"There is no file {path}: check its name and its folder.")
    if not file.stem.isidentifier():
        raise CourseError(f"{file.name} cannot be imported: give it a name of letters, digits and _.")
    return file.stem, name, [str(file.parent)]
