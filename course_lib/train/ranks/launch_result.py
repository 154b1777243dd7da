"""How did a launch of several ranks end, and which rank's error came first?

When one rank fails, the others lose their connection to it and fail too, with louder messages. `sort_errors`
puts the first cause on top: a rank that was killed, that hung, or that raised an error of its own comes
before those that only lost it.
"""

import html
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from course_lib.errors import CourseError
from course_lib.units import format_seconds

Kind = Literal["exception", "killed", "hung", "exited", "ended"]
VERBS: Mapping[Kind, str] = {
    "exception": "failed",
    "killed": "was killed",
    "hung": "hung",
    "exited": "ended",
    "ended": "ended",
}
Outcome = Literal["done", "failed", "timed out"]

LOST_PEER = re.compile(
    r"connection (closed|reset) by peer|broken pipe|connection refused|recvValue failed|sendBytes failed"
    r"|recvBytes|failed to recv|ncclRemoteError|remote process exited|communicator was aborted"
    r"|application timeout caused pair closure|could not do what all wait for",
    re.IGNORECASE,
)
"""What gloo, NCCL, the TCPStore and `Ranks.once` say when another process is gone, or has failed."""

WAITED = re.compile(
    r"timed out waiting|timed out after|watchdog caught collective|wait timeout", re.IGNORECASE
)
"""What they say when another process did not come in time."""


@dataclass(frozen=True)
class RankError:
    """What became of one rank that did not end well.

    `kind` is "exception" (it raised one), "killed" (by a signal), "hung" (it was still busy when the others
    gave up, or the time was over), "exited" (with a status other than 0, and no exception) or "ended" (by
    the agent, since another rank had failed). `text` is one
    line, `where` the last line of the learner's or the course's code that it was in, "" if not known.
    `secondary` errors are consequences of another rank's.
    """

    rank: int
    kind: Kind
    text: str
    where: str
    secondary: bool = False
    trace: str = ""

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"Rank {self.rank} {VERBS[self.kind]}: {self.text.rstrip('.')}{where}"


@dataclass(frozen=True)
class LaunchRun:
    """A launch that has ended. Time in seconds, with the start of the processes.

    `values[rank]` is what the target function returned there as plain data, when `outcome` is "done".
    `errors` holds each rank that did not end well, the first cause on top; `earlier` the same of each attempt
    after which the elastic agent started all ranks anew. `output` is what was printed: (rank, line), rank
    None for the agent.
    """

    target: str
    world_size: int
    outcome: Outcome
    seconds: float
    values: tuple[Any, ...]
    errors: tuple[RankError, ...]
    earlier: tuple[tuple[RankError, ...], ...]
    output: tuple[tuple[int | None, str], ...]

    @property
    def first_error(self) -> RankError | None:
        """The error that the others follow from; None when all went well."""
        return self.errors[0] if self.errors else None

    @property
    def restarts(self) -> int:
        """How often all ranks were started anew."""
        return len(self.earlier)

    def lines(self, rank: int) -> list[str]:
        """What one rank printed."""
        return [line for its_rank, line in self.output if its_rank == rank]

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self) | {"restarts": self.restarts})

    def _summary(self) -> list[str]:
        again = f", started anew {self.restarts} time{'s' if self.restarts != 1 else ''}" * bool(
            self.restarts
        )
        lines = [
            f"{self.target} on {self.world_size} rank{'s' * (self.world_size != 1)}: {self.outcome} after "
            f"{format_seconds(self.seconds)}{again}"
        ]
        lines += [
            f"  attempt {number}: {errors[0] if errors else 'no rank told why it ended'}"
            for number, errors in enumerate(self.earlier, start=1)
        ]
        for number, error in enumerate(self.errors):
            lead = "first" if number == 0 else "as a consequence" if error.secondary else "also"
            lines.append(f"  {lead}: {error}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self._summary())

    def _repr_html_(self) -> str:
        first, *others = (html.escape(line.strip()) for line in self._summary())
        listed = "".join(f"<li>{line}</li>" for line in others)
        return f"<p>{first}</p>" + (f"<ul>{listed}</ul>" if listed else "")


class LaunchError(CourseError):
    """A launch that did not end well; its sentence is the first rank's real error. `run` holds the rest."""

    def __init__(self, run: LaunchRun) -> None:
        self.run = run
        first = run.first_error
        told = str(first) if first else f"{run.target} {run.outcome}"
        lost = [str(error.rank) for error in run.errors if error.secondary]
        rest = f" Rank{'s' * (len(lost) > 1)} {', '.join(lost)} ended as a consequence." if lost else ""
        super().__init__(f"{told}.{rest}")


def sort_errors(
    reports: Sequence[Mapping[str, Any]],
    stacks: Mapping[int, str],
    statuses: Mapping[int, int] = MappingProxyType({}),
    late: str = "",
) -> tuple[RankError, ...]:
    """The ranks that did not end well, the first cause on top.

    Args:
        reports: of each rank, in order, what it wrote about itself: "state" is "absent", "running", "done"
            or "failed", the last with "text", "where", "trace" and "time" in seconds.
        statuses: exit status of the ranks, as far as the agent knows it; negative for a signal.
        stacks: where a rank was when it was told to end.
        late: what to say of a rank that was not done when the others gave up or the time was over.
    """
    found: list[tuple[tuple[int, float], RankError]] = []
    silent = os.name == "posix" and not late  # there, a rank that is asked to end leaves its stack
    waited = any(r["state"] == "failed" and WAITED.search(r["text"]) for r in reports)
    asked = _asked_to_end(reports, stacks, statuses, waited)
    for rank, report in enumerate(reports):
        status = statuses.get(rank)
        is_busy = report["state"] in ("running", "absent")
        if report["state"] == "failed":
            text = report["text"]
            secondary = _follows(report)
            order = (4 if WAITED.search(text) else 3 if secondary else 1, report["time"])
            error = RankError(rank, "exception", text, report["where"], secondary, report["trace"])
        elif rank not in asked and status is not None and status < 0:
            order, error = (0, 0.0), RankError(rank, "killed", _signal(status), "")
        elif rank not in asked and status is not None and (status > 0 or is_busy):
            text = f"exit status {status}" + ", and it did not say that it was done" * (status == 0)
            order, error = (1, 0.0), RankError(rank, "exited", text, "")
        elif rank not in asked and report["state"] == "running" and silent:
            order, error = (0, 0.0), RankError(rank, "killed", _signal(0), "")
        elif is_busy and (late or rank in asked):
            stack = stacks.get(rank, "")
            hung = (late or waited) and not in_a_collective(stack)
            text = late or (
                "it did not come to the exchange" if hung else "the agent ended it with the others"
            )
            order = (2 if hung else 5, 0.0)
            kind: Kind = "hung" if late or hung else "ended"
            error = RankError(rank, kind, text, place_in(stack), not hung)
        else:
            continue
        found.append((order, error))
    found.sort(key=lambda pair: pair[0])
    errors = [error for _, error in found]
    if errors and errors[0].secondary:  # nobody is known to be the cause: the first one is told as it is
        done = [str(rank) for rank, report in enumerate(reports) if report["state"] == "done"]
        why = f"; rank {', '.join(done)} had come to its end: fewer steps than the others?" if done else ""
        errors[0] = replace(errors[0], secondary=False, text=errors[0].text.rstrip(".") + why)
    return tuple(errors)


def _follows(report: Mapping[str, Any]) -> bool:
    """Whether a rank's exception is the consequence of another's end."""
    return bool(LOST_PEER.search(report["text"]) or WAITED.search(report["text"]))


def _asked_to_end(
    reports: Sequence[Mapping[str, Any]], stacks: Mapping[int, str], statuses: Mapping[int, int], waited: bool
) -> set[int]:
    """The ranks that the agent ended, since another failed: they left their stack, or could not yet.

    A rank that still starts leaves none, nor does one that handles SIGTERM itself. It was the agent's where
    another rank has an error of its own, or waited in vain for this one.
    """
    own = any(not _follows(report) for report in reports if report["state"] == "failed") or any(
        status not in (0, -signal.SIGTERM) and rank not in stacks and reports[rank]["state"] != "failed"
        for rank, status in statuses.items()
    )
    if not (own or waited):
        return set(stacks)
    return {*stacks, *(rank for rank, status in statuses.items() if status == -signal.SIGTERM)}


def place_in(stack: str) -> str:
    """The innermost line of a faulthandler stack that is neither torch's nor the standard library's."""
    for path, line, name in re.findall(r'File "(.+?)", line (\d+) in (.+)', stack):
        if is_own_code(path):
            return f"{path.replace(chr(92), '/').rpartition('/')[2]}, line {line}, in {name}"
    return ""


def is_own_code(path: str) -> bool:
    """Whether a source file is neither installed by pip, nor Python's own, nor the launcher's."""
    plain = path.replace("\\", "/")
    return not (
        "/site-packages/" in plain
        or re.search(r"/lib/python3[^/]*/", plain)
        or plain.startswith("<")
        or re.search(r"/train/ranks/launch(_\w+)?\.py$", plain)
    )


def in_a_collective(stack: str) -> bool:
    """Whether the innermost frames of a stack are torch.distributed's: the rank waits for another."""
    files = re.findall(r'File "(.+?)", line', stack)
    return any("torch/distributed" in path.replace("\\", "/") for path in files[:3])


def _signal(status: int) -> str:
    if status >= 0:
        return "the system or another program ended it, without a word"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    why = ", often for lack of memory" if name == "SIGKILL" else ""
    return f"{name}{why}"
