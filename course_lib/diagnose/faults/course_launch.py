"""What does the course's own launch say of a rank that did not end well: killed, hung, ended?

"Rank 1 failed: ..." is read with the tracebacks (tracebacks.py): it carries the exception itself.
"""

import re
from typing import Any

from course_lib.diagnose.faults.exit_signals import BY_SIGNAL
from course_lib.diagnose.faults.lost_peer import peer_ended_well
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_KILLED = re.compile(r"\bRank\s+(?P<rank>\d{1,6})\s+was\s+killed:\s+(?:SIG(?P<name>[A-Z]{2,6})\b)?")
_HUNG = re.compile(
    r"\bRank\s+(?P<rank>\d{1,6})\s+hung:\s+(?P<text>[^()\n]{1,200}?)"
    r"(?:\s+\((?P<where>[^()\n]{1,200}, line \d{1,7}(?:, in [^()\n]{1,120})?)\))?\s*[.\n]"
)
_ENDED = re.compile(r"\bRank\s+(?P<rank>\d{1,6})\s+ended:\s+exit\s+status\s+(?P<exitcode>\d{1,5})")
_NUMBERS = {"HUP": 1, "INT": 2, "ILL": 4, "ABRT": 6, "BUS": 7, "KILL": 9, "SEGV": 11, "TERM": 15}


def _killed(around: Around) -> Told | None:
    match = _KILLED.search(around.paste.body)
    if match is None:
        return None
    name = match["name"]
    figures: dict[str, Any] = {"rank": int(match["rank"]), "signal": f"SIG{name}" if name else None}
    make = BY_SIGNAL.get(_NUMBERS.get(name or "", 0))
    if make is not None:
        said = figures | {"epoch": None, "cpu_memory_mb": None, "gpu_memory_mb": None}
        return Told(make(around, said), figures)
    return _silent(figures)


def _ended(around: Around) -> Told | None:
    match = _ENDED.search(around.paste.body)
    if match is None:
        return None
    return _silent({"rank": int(match["rank"]), "exitcode": int(match["exitcode"])})


def _silent(figures: dict[str, Any]) -> Told:
    code = figures.get("exitcode")
    how = "without a word" if code is None else f"with exit status {code}, and raised no exception"
    return Told(
        fault(
            "torchrun.rank_ended_itself",
            f"Rank {figures['rank']} ended {how}",
            "Nothing of an exception is known. A call of os._exit or exit ends a process like that, in the "
            "script or in a library; so does the system, when memory is full.",
            f"Look at what rank {figures['rank']} printed last; search the script for sys.exit, exit( and "
            "os._exit; watch the computer's memory while it runs.",
            ("Debugging the ranks that ended as a consequence.",),
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _hung(around: Around) -> Told | None:
    match = _HUNG.search(f"{around.paste.body}\n")
    if match is None:
        return None
    where = match["where"]
    figures = {"rank": int(match["rank"]), "where": where}
    place = f" It stood at {where}." if where else ""
    return Told(
        fault(
            "launch.rank_hung",
            f"Rank {match['rank']} did not come to what the others waited for",
            "It was still busy, or stuck, when the others gave up or the time was over. No exception was "
            f"raised there.{place}",
            f"Look at {where or 'where rank ' + match['rank'] + ' stands (py-spy dump --pid)'}: an endless "
            "loop, a slow phase that the others do not share, or a branch that leaves out a collective.",
            ("A longer time limit, before that line was looked at.", "Debugging the ranks that waited."),
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _fewer_steps(around: Around) -> Told | None:
    match = re.search(r"\bRank\s+(\d{1,6})\s+failed:", around.paste.body)
    if match is None:
        return None
    figures = {"rank": int(match[1])}
    return Told(peer_ended_well(figures), figures)


WORDINGS = (
    wording("had come to its end: fewer steps than the others", _fewer_steps),
    wording("was killed:", _killed),
    wording(("hung: not done after", "hung: it did not come to"), _hung),
    wording("ended: exit status", _ended),
)
