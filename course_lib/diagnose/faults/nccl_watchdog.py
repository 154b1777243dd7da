"""What does NCCL's watchdog print: which collective, how long it waited, how far each rank had come?"""

import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from course_lib.diagnose.paste import Paste

_TIMEOUT = re.compile(
    r"(?:\[Rank(?P<rank>\d{1,6})\])?(?:Watchdogcaughtcollectiveoperationtimeout:)?WorkNCCL\((?:SeqNum=(?P<seq>"
    r"\d{1,12}),)?"
    r"OpType=(?P<op>[A-Za-z_]{1,40})(?:,NumelIn=(?P<numel>\d{1,15}),NumelOut=\d{1,15})?(?:,TensorShape=\[["
    r"\d,]*\])?"
    r",Timeout\(ms\)=(?P<timeout_ms>\d{1,12})\)(?:ranfor(?P<ran_ms>\d{1,12})milliseconds|timedoutinblockingwait)",
    re.IGNORECASE,
)
# "at work: 77, last ..." until torch 2.6, "at work sequence id: 77 PG status: last ..." since then
_PROGRESS = re.compile(
    r"\[(?P<group>[^\[\]]{0,60}?)Rank(?P<rank>\d{1,6})\][^\[\]]{0,100}?work(?:sequenceid)?:(?P<seq>\d{1,12})"
    r"(?:,|PGstatus:)lastenqueued(?:NCCL)?work:"
    r"(?P<enqueued>\d{1,12}),lastcompleted(?:NCCL)?work:(?P<completed>\d{1,12})",
    re.IGNORECASE,
)
_MOST_LINES = 500


@dataclass(frozen=True, slots=True)
class Waiting:
    """Collectives that ran into the time limit, from the watchdog's lines; None is what they do not say."""

    op: str | None
    timeout_ms: int | None
    ran_ms: int | None
    numel: int | None
    seq_by_rank: dict[int, set[int]]
    ops_by_rank: dict[int, set[str]]
    seqs: list[int]
    enqueued: dict[str, int]
    completed: dict[str, int]
    groups: int

    @property
    def desynchronised(self) -> bool:
        """Whether ranks wait in different collectives. Each process group counts its own: with several, the
        numbers say nothing.
        """
        if self.groups > 1:
            return False
        by_rank = combinations(self.seq_by_rank.values(), 2)
        if any(max(a) < min(b) or max(b) < min(a) for a, b in by_rank):
            return True
        return any(not a & b for a, b in combinations(self.ops_by_rank.values(), 2))

    @property
    def ops(self) -> list[str]:
        """The kinds of collectives, sorted."""
        return sorted(set().union(*self.ops_by_rank.values()))

    @property
    def who(self) -> str:
        """What the progress of the ranks says about which one is missing; empty where it says nothing."""
        waits_at = max(self.seqs, default=None)
        if waits_at is None or self.groups > 1:
            return ""
        behind = [rank for rank, enqueued in self.enqueued.items() if enqueued < waits_at]
        if behind:
            return f" Rank {', '.join(sorted(behind, key=int))} has not come to collective {waits_at}."
        named = sorted({*map(str, self.seq_by_rank), *self.enqueued}, key=int)
        if len(named) < 2:
            return ""
        return f" Ranks {', '.join(named)} agree (they wait at {waits_at}): the missing one is elsewhere."

    def figures(self) -> dict[str, Any]:
        """As JSON data."""
        newer = self.numel is not None or self.op is None
        return {
            "format": "nccl_watchdog_v2" if newer else "nccl_watchdog_v1",
            "op": self.op,
            "seq": self.seqs[0] if self.seqs else None,
            "numel": self.numel,
            "timeout_ms": self.timeout_ms,
            "ran_ms": self.ran_ms,
            "ranks": {str(rank): min(seqs) for rank, seqs in sorted(self.seq_by_rank.items())},
            "last_enqueued": self.enqueued,
            "last_completed": self.completed,
        }


def waiting(paste: Paste) -> Waiting | None:
    """The watchdog's figures; None where there are none."""
    text = paste.squeezed
    timeouts = list(_TIMEOUT.finditer(text))[:_MOST_LINES]
    progress = list(_PROGRESS.finditer(text))[:_MOST_LINES]
    if not timeouts and not progress:
        return None
    seqs: dict[int, set[int]] = {}
    ops: dict[int, set[str]] = {}
    for match in timeouts:
        if match["rank"]:
            ops.setdefault(int(match["rank"]), set()).add(match["op"].upper())
    for match in timeouts or progress:
        if match["rank"] and match["seq"]:
            seqs.setdefault(int(match["rank"]), set()).add(int(match["seq"]))
    first = timeouts[0].groupdict() if timeouts else {}
    timeout_ms, ran_ms, numel = (
        int(first[name]) if first.get(name) else None for name in ("timeout_ms", "ran_ms", "numel")
    )
    return Waiting(
        op=first.get("op"),
        timeout_ms=timeout_ms,
        ran_ms=ran_ms,
        numel=numel,
        seq_by_rank=seqs,
        ops_by_rank=ops,
        seqs=[int(m["seq"]) for m in timeouts or progress if m["seq"]],
        enqueued={m["rank"]: int(m["enqueued"]) for m in progress},
        completed={m["rank"]: int(m["completed"]) for m in progress},
        groups=len({m["group"].lower() for m in progress if m["group"]}),
    )
