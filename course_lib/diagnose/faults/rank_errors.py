"""One rank raised an ordinary exception and took the others along: which, and where should one look?

Nobody lists all exceptions that a training can raise. This finding names whatever a rank raised of its own,
when the rest of the text only tells of ranks that waited, lost a connection or were ended.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.diagnose.faults.root_cause import is_consequence
from course_lib.diagnose.faults.traceback_reader import Raised
from course_lib.diagnose.faults.tracebacks import own
from course_lib.diagnose.faults.wording import evidence_of, fault
from course_lib.diagnose.finding import Finding, Reading
from course_lib.diagnose.paste import Paste

KIND = "error message"
ID = "torchrun.rank_raised_an_error"
_BLOCK = re.compile(
    r"rank\s*:?\s*(?P<rank>\d{1,6})\s*\(local[_ ]?rank:\s*(?P<local_rank>\d{1,5})\)\s*exit\s?code\s*:\s*"
    r"(?P<code>-?\d{1,10})\s*\(pid:\s*"
    r"(?P<pid>\d{1,10})\)",
    re.IGNORECASE,
)
_LOG_LINE = re.compile(
    r"failed\s*\(exitcode:\s*(?P<code>-?\d{1,10})\)\s*local_rank:\s*(?P<local_rank>\d{1,5})\s*\(pid:\s*"
    r"(?P<pid>\d{1,10})\)"
)
_COMPARED = 80  # characters of two messages
_ENDED_BY_TORCHRUN = (-15, -9)  # the others: by SIGTERM, and by SIGKILL if they do not follow
_WHAT_TO_CHECK = {
    "PermissionError": "Look who owns that path and may write there; write checkpoints on rank 0 alone, and "
    "in a folder that is yours.",
    "FileExistsError": "Several ranks make the same file or folder: do it on rank 0 alone, or with "
    "exist_ok=True.",
    "FileNotFoundError": "Look whether that path exists on the machine of that rank, and whether another "
    "rank was to make it first: then a barrier belongs between.",
    "ModuleNotFoundError": "The Python of that rank lacks the package: compare the environments of the "
    "machines.",
    "ImportError": "The Python of that rank has another version: compare the environments of the machines.",
    "IndexError": "Print the index and the length at that line, on that rank.",
    "KeyError": "Print the keys that are there at that line, on that rank.",
    "StopIteration": "Its data ended early: give all ranks the same number of batches.",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed process in torchrun's report; None is what its line does not say."""

    exitcode: int
    rank: int | None
    local_rank: int
    pid: int


def first_failure(text: str) -> Failure | None:
    """What torchrun calls the root cause: the process that it saw fail first."""
    cause = max(text.find("Root Cause"), text.find("RootCause"))
    block = _BLOCK.search(text, max(cause, 0)) or _BLOCK.search(text)
    match = block or _LOG_LINE.search(text)
    return _failure(match) if match else None


def failures(text: str) -> list[Failure]:
    """All failed processes in torchrun's reports."""
    return [_failure(match) for match in _BLOCK.finditer(text)]


def _failure(match: re.Match[str]) -> Failure:
    rank = match.groupdict().get("rank")
    return Failure(
        int(match["code"]), None if rank is None else int(rank), int(match["local_rank"]), int(match["pid"])
    )


def own_errors(paste: Paste) -> list[Raised]:
    """What ranks raised of their own, that of the rank which torchrun saw fail first on top."""
    first = first_failure(paste.text)
    return own(paste, first.rank if first else None, first.local_rank if first else None)


def unknown_errors(paste: Paste, readings: Sequence[Reading]) -> list[Raised]:
    """What ranks raised of their own and none of ``readings`` has told, the likeliest cause first."""
    lines = [
        (r.first_line, r.last_line)
        for r in readings
        # What a launcher says of an exit code tells nothing of the exception that stands there.
        if r.kind == KIND and not any(f.id.startswith("torchrun.") for f in r.findings)
    ]
    told: list[Raised] = []
    others: list[Raised] = []
    for error in own_errors(paste):
        known = any(first <= error.line <= last for first, last in lines)
        (told if known else others).append(error)
    # A reading has one place; other ranks say the same, with other numbers.
    return [error for error in others if not any(_alike(error, known) for known in told)]


def _alike(one: Raised, two: Raised) -> bool:
    return one.name == two.name and _without_numbers(one.text) == _without_numbers(two.text)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)[:_COMPARED]


def read(paste: Paste, readings: Sequence[Reading]) -> list[Reading]:
    """The exception of a rank, where something else in the text tells of several ranks, or its label does."""
    problems = [f.id for r in readings for f in r.findings if f.severity == "problem"]
    if not all(map(is_consequence, problems)):
        return []  # that error is known, and says more than its class and its line
    errors = unknown_errors(paste, readings)
    if not errors or not (problems or any(error.who for error in errors)):
        return []
    cause = errors[0]
    same = [error for error in errors if (error.name, error.text) == (cause.name, cause.text)]
    who = _who(paste, same)
    figures = {
        "raised": str(cause),
        "rank": cause.rank if cause.rank is not None else _only_failed(paste),
        "where": cause.where or None,
    }
    finding = _finding(cause, who, [e for e in errors if e not in same], len(same))
    return [Reading(KIND, figures, cause.line, cause.line, (finding,), source=cause)]


def _who(paste: Paste, errors: list[Raised]) -> str:
    names = list(dict.fromkeys(error.who for error in errors if error.who))
    if len(names) > 1 and all(name.startswith("Rank ") for name in names):
        numbers = sorted(int(name.removeprefix("Rank ")) for name in names)
        return f"Ranks {', '.join(map(str, numbers[:20]))}"
    if names:
        return names[0]
    rank = _only_failed(paste)
    return "One process" if rank is None else f"Rank {rank}"


def _only_failed(paste: Paste) -> int | None:
    """The rank that failed by itself, where torchrun's report knows of one alone."""
    ranks = {f.rank for f in failures(paste.text) if f.exitcode not in _ENDED_BY_TORCHRUN}
    return ranks.pop() if len(ranks) == 1 else None


def _finding(cause: Raised, who: str, others: list[Raised], count: int) -> Finding:
    place = f" at {cause.where}" if cause.where else ""
    short = str(cause)
    short = short if len(short) <= 120 else f"{short[:116]} ..."
    kind = cause.name.rpartition(".")[2]
    later = ""
    if others:
        later = f" {others[0].who or 'Another process'} raised another one: {str(others[0])[:120]}."
    check = f" {_WHAT_TO_CHECK[kind]}" if kind in _WHAT_TO_CHECK else ""
    alone = (
        "Run the script as one process (torchrun --nproc_per_node=1): the same error then stands alone. If "
        "it does not come there, look at what only that rank has: its part of the data, its files, a branch."
    )
    if count > 1:
        alone = "Run the script as one process (torchrun --nproc_per_node=1): the same error stands alone."
    whose = f"of {who[0].lower()}{who[1:]}"
    return fault(
        ID,
        f"{who} raised an error of its own{place}: {short}",
        f"That error stands in the text: {cause}. When one process ends, the others lose their connection "
        "to it, or wait until a time limit; then torchrun ends them (SIGTERM). These later messages are not "
        f"the cause.{later}",
        (f"Mend {kind} {whose}{place}: that is the last line of its own in the traceback.{check}", alone)
        if place
        else (f"Mend {kind} {whose}: read its traceback from the last line up.{check}", alone),
        ("Looking for the fault in torchrun's traceback, or in the ranks that lost it.", "NCCL settings."),
        certainty="likely",
        evidence=evidence_of({"raised": short, "where": cause.where or None}),
    )
