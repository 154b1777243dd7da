"""Which rank makes the others wait? Real processes that train together, each with a clock around its parts.

    together, late = time_ranks((0.0, 0.0), (0.0, 0.05))
    late.busy_s, late.all_reduce_s

``time_ranks`` starts one process a rank on this computer (gloo, no GPU needed), lets ranks be late by so many
seconds a step, and gathers the times. The ranks' own code is ``straggler_rank``.
"""

import html
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import CourseError
from course_lib.units import format_seconds

PARTS = ("data", "compute", "waiting", "exchange", "update")
"""Of a step: getting the batch; forward and backward; waiting for the other ranks; the all-reduce itself;
changing the weights."""

MOST_RANKS = 8
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])

Times = NDArray[np.float64]


@dataclass(frozen=True)
class RankTimes:
    """Seconds of each part of each measured step of each rank: ``seconds[step][rank][part]``, as in PARTS.

    ``weights`` is the sum of each rank's weights at the end: the same on all ranks, if they trained together.
    ``late_s`` is the delay that was put into each rank's step.
    """

    seconds: tuple[tuple[tuple[float, ...], ...], ...]
    weights: tuple[float, ...]
    late_s: tuple[float, ...]
    parameters: int
    warmup: int

    def part_s(self, part: str) -> Times:
        """Seconds of one of PARTS, [step, rank]. Raises CourseError for another name."""
        if part not in PARTS:
            raise CourseError(f"A step has the parts {', '.join(PARTS)}, not {part!r}.")
        return np.array(self.seconds)[:, :, PARTS.index(part)]

    @property
    def busy_s(self) -> Times:
        """Seconds from the start of a step until the rank is ready for the all-reduce, [step, rank]."""
        return self.part_s("data") + self.part_s("compute")

    @property
    def all_reduce_s(self) -> Times:
        """Seconds in the all-reduce as a profiler shows it, the waiting for others included, [step, rank]."""
        return self.part_s("waiting") + self.part_s("exchange")

    @property
    def step_s(self) -> float:
        """Median seconds of a step, of the mean over the ranks."""
        return float(np.median(np.array(self.seconds).sum(axis=2).mean(axis=1)))

    def communication_share(self, *, waiting: bool) -> float:
        """Communication in the time of all ranks, 0 to 1; with or without the waiting for a slower rank."""
        counted = self.all_reduce_s if waiting else self.part_s("exchange")
        return float(counted.sum() / np.array(self.seconds).sum())

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self))

    def _rows(self) -> list[tuple[str, ...]]:
        medians = np.median(np.array(self.seconds), axis=0)
        return [
            (f"rank {rank}", *(format_seconds(float(s)) for s in parts)) for rank, parts in enumerate(medians)
        ]

    @property
    def _title(self) -> str:
        return (
            f"{len(self.late_s)} ranks, {format_seconds(self.step_s)} a step, "
            f"measured over {len(self.seconds)} steps"
        )

    def __str__(self) -> str:
        lines = [self._title, f"{'':8}" + "".join(f"{part:>10}" for part in PARTS)]
        lines += [f"{row[0]:8}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in self._rows()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{part}</th>" for part in PARTS)
        rows = "".join(
            f"<tr><th scope='row' style='text-align:left'>{row[0]}</th>"
            f"{''.join(f'<td>{html.escape(cell)}</td>' for cell in row[1:])}</tr>"
            for row in self._rows()
        )
        return (
            f"<table><caption>{html.escape(self._title)} (medians)</caption>"
            f"<thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )


def time_ranks(
    *late_s: Sequence[float],
    steps: int = 20,
    warmup: int = 3,
    batch_size: int = 64,
    time_limit_s: float = 120.0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RankTimes, ...]:
    """Train a small network on several processes of this computer together, and time each part of each step.

    Args:
        late_s: one run for each; a run's delays are, for each rank, the seconds by which its batch comes late
            in every step. All runs take the same processes, one run after the other.
        steps: measured steps a run, after ``warmup`` without delay that are dropped.
        batch_size: images a rank and step.
        time_limit_s: after so long, all ranks are ended; so they are when this process ends.
        progress: hears (steps done, steps in all) now and then.

    Raises:
        CourseError: a setting that cannot be used, a rank that failed, or the time limit.
    """
    runs = [tuple(float(seconds) for seconds in late) for late in late_s]
    ranks = len(runs[0]) if runs else 0
    if not 2 <= ranks <= MOST_RANKS or not all(
        len(late) == ranks and all(0 <= seconds <= 1 for seconds in late) for late in runs
    ):
        raise CourseError(
            f"Give each run a delay of 0 to 1 second for each of 2 to {MOST_RANKS} ranks, not {list(late_s)}."
        )
    if steps < 1 or warmup < 0 or batch_size < 1 or not time_limit_s > 0:
        raise CourseError(
            "At least one step, a batch of one image and a positive time limit are needed, and a warm-up of "
            "0 steps or more."
        )
    with tempfile.TemporaryDirectory(prefix="course_ranks_", ignore_cleanup_errors=True) as folder:
        order: dict[str, object] = {
            "world_size": ranks,
            "steps": steps,
            "warmup": warmup,
            "batch_size": batch_size,
        }
        order |= {"store": str(Path(folder) / "store"), "time_limit_s": time_limit_s}
        orders = [order | {"rank": rank, "late_s": [late[rank] for late in runs]} for rank in range(ranks)]
        started = _Ranks(orders, Path(folder))
        try:
            told = started.wait(time_limit_s, len(runs) * (warmup + steps), progress)
        finally:
            started.end()
    return tuple(
        RankTimes(
            seconds=tuple(
                tuple(tuple(parts) for parts in step)
                for step in zip(*(one["runs"][number]["seconds"] for one in told), strict=True)
            ),
            weights=tuple(one["runs"][number]["weights"] for one in told),
            late_s=late,
            parameters=told[0]["parameters"],
            warmup=warmup,
        )
        for number, late in enumerate(runs)
    )


class _Ranks:
    """The running processes. Their standard input stays open: when it closes, they end themselves."""

    def __init__(self, orders: Sequence[Mapping[str, object]], folder: Path) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [_PACKAGE_ROOT, environment.get("PYTHONPATH")])
        )
        environment["OMP_NUM_THREADS"] = "1"  # the ranks share the cores
        self.done = 0
        self.answers = [folder / f"rank{rank}.json" for rank in range(len(orders))]
        self.errors = [folder / f"rank{rank}.txt" for rank in range(len(orders))]
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for order, answer, errors in zip(orders, self.answers, self.errors, strict=True):
                with errors.open("wb") as stderr:
                    process = subprocess.Popen(
                        [sys.executable, "-m", "course_lib.train.ranks.straggler_rank"],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=stderr,
                        env=environment,
                        cwd=folder,
                    )
                self.processes.append(process)
                assert process.stdin
                process.stdin.write(json.dumps({**order, "answer": str(answer)}).encode() + b"\n")
                process.stdin.flush()
        except BaseException:
            self.end()
            raise
        threading.Thread(target=self._listen, args=(self.processes[0].stdout,), daemon=True).start()

    def _listen(self, lines: IO[bytes]) -> None:
        with suppress(ValueError):  # closed by end()
            for _ in lines:  # rank 0 writes a line a step
                self.done += 1

    def wait(self, time_limit_s: float, of: int, progress: Callable[[int, int], None] | None) -> list[Any]:
        """What each rank answered."""
        deadline = time.monotonic() + time_limit_s
        while not all(answer.exists() for answer in self.answers):
            for rank, process in enumerate(self.processes):
                if process.poll() is not None and not self.answers[rank].exists():
                    raise CourseError(f"Rank {rank} failed: {self._last_words(rank)}.")
            if time.monotonic() > deadline:
                raise CourseError(
                    f"The {len(self.processes)} ranks were not done after {format_seconds(time_limit_s)} and "
                    "were ended: take fewer steps, or allow more time."
                )
            if progress:
                progress(min(self.done, of), of)
            time.sleep(0.05)
        if progress:
            progress(of, of)
        return [json.loads(answer.read_text(encoding="utf-8")) for answer in self.answers]

    def _last_words(self, rank: int) -> str:
        said = self.errors[rank].read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return said[-1].rstrip(".") if said else f"exit status {self.processes[rank].returncode}"

    def end(self) -> None:
        """Let no rank outlive this."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    with suppress(OSError):
                        stream.close()
