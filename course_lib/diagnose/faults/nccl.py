"""What does NCCL report: a rank that never came, a card used twice, a network or a driver that failed?"""

import re
from dataclasses import dataclass
from typing import Any

from course_lib.diagnose.faults.surroundings import settings
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding

_TIMEOUT = re.compile(
    r"(?:\[Rank(?P<rank>\d{1,6})\])?Watchdogcaughtcollectiveoperationtimeout:WorkNCCL\((?:SeqNum=(?P<seq>"
    r"\d{1,12}),)?"
    r"OpType=(?P<op>[A-Za-z_]{1,40})(?:,NumelIn=(?P<numel>\d{1,15}),NumelOut=\d{1,15})?(?:,TensorShape=\[["
    r"\d,]*\])?"
    r",Timeout\(ms\)=(?P<timeout_ms>\d{1,12})\)(?:ranfor(?P<ran_ms>\d{1,12})milliseconds)?",
    re.IGNORECASE,
)
_PROGRESS = re.compile(
    r"\[[^\[\]]{0,60}Rank(?P<rank>\d{1,6})\][^\[\]]{0,100}?work:(?P<seq>\d{1,12}),lastenqueued(?:NCCL)?work:"
    r"(?P<enqueued>\d{1,12}),lastcompleted(?:NCCL)?work:(?P<completed>\d{1,12})",
    re.IGNORECASE,
)
_RAISED_LIMIT_MS = 1_800_000  # the default of old versions; since torch 2.1 it is 600,000 for NCCL
_FIRST_COLLECTIVES = 5


@dataclass(frozen=True, slots=True)
class Waiting:
    """Collectives that ran into the time limit, from the watchdog's lines."""

    op: str
    timeout_ms: int
    ran_ms: int | None
    numel: int | None
    seq_by_rank: dict[int, set[int]]
    seqs: list[int]
    enqueued: dict[str, int]
    completed: dict[str, int]
    ops: set[str]

    @property
    def desynchronised(self) -> bool:
        """Whether ranks wait in different collectives."""
        by_rank = list(self.seq_by_rank.values())
        apart = any(not (a & b) and (max(a) < min(b) or max(b) < min(a)) for a in by_rank for b in by_rank)
        return apart or len(self.ops) > 1

    @property
    def who(self) -> str:
        """What the progress of the ranks says about which one is missing; empty where it says nothing."""
        waits_at = max(self.seqs, default=None)
        if waits_at is None:
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
        return {
            "format": "nccl_watchdog_v1" if self.numel is None else "nccl_watchdog_v2",
            "op": self.op,
            "seq": self.seqs[0] if self.seqs else None,
            "numel": self.numel,
            "timeout_ms": self.timeout_ms,
            "ran_ms": self.ran_ms,
            "ranks": {str(rank): min(seqs) for rank, seqs in sorted(self.seq_by_rank.items())},
            "last_enqueued": self.enqueued,
            "last_completed": self.completed,
        }


def waiting(around: Around) -> Waiting | None:
    """The watchdog's figures; None where its words stand without them."""
    text = around.paste.squeezed
    matches = list(_TIMEOUT.finditer(text))[:500]
    if not matches:
        return None
    by_rank: dict[int, set[int]] = {}
    for match in matches:
        if match["rank"] and match["seq"]:
            by_rank.setdefault(int(match["rank"]), set()).add(int(match["seq"]))
    progress = list(_PROGRESS.finditer(text))[:500]
    first = matches[0]
    return Waiting(
        op=first["op"],
        timeout_ms=int(first["timeout_ms"]),
        ran_ms=int(first["ran_ms"]) if first["ran_ms"] else None,
        numel=int(first["numel"]) if first["numel"] else None,
        seq_by_rank=by_rank,
        seqs=[int(m["seq"]) for m in matches if m["seq"]],
        enqueued={m["rank"]: int(m["enqueued"]) for m in progress},
        completed={m["rank"]: int(m["completed"]) for m in progress},
        ops={m["op"] for m in matches},
    )


def _timeout(around: Around) -> Told:
    found = waiting(around)
    set_here = settings(around.paste)
    if found is None:
        figures: dict[str, Any] = {"op": None, "timeout_ms": None, "env": set_here}
        return Told(_missing_rank("", figures, None), figures)
    figures = {**found.figures(), "env": set_here}
    derived: dict[str, float] = {}
    if found.numel is not None:
        derived = {
            f"size_mib_if_{name}": round(found.numel * size / 2**20, 1)
            for name, size in (("bf16", 2), ("fp32", 4))
        }
    if found.desynchronised:
        return Told(_desync(found, figures), figures, derived)
    if found.timeout_ms > _RAISED_LIMIT_MS:
        return Told(_deadlock(found, set_here, figures), figures, derived)
    size = ""
    if found.numel is not None:
        size = (
            f" {found.numel:,} numbers: a barrier or a metric."
            if found.numel <= 16
            else f" {found.numel:,} numbers: {derived['size_mib_if_bf16']:,.0f} MiB in bf16."
        )
    return Told(_missing_rank(size, figures, found), figures, derived)


def _some_failed(around: Around) -> Told | None:
    if around.says("Watchdog caught collective", "ncclRemoteError", "remote process exited"):
        return None  # that line says more
    return _timeout(around)


def _missing_rank(size: str, figures: dict[str, Any], found: Waiting | None) -> Finding:
    limit, who = "", ""
    if found is not None:
        who = found.who
        limit = f" within {found.timeout_ms / 60000:.0f} minutes"
        if found.seqs and min(found.seqs) <= _FIRST_COLLECTIVES:
            size += (
                " It is one of the first collectives, so the ranks may never have reached each other: the "
                "network interface or direct copies between cards are as likely as the code."
            )
    return fault(
        "nccl.one_rank_missing_or_slow",
        "A collective was not joined by all ranks in time: one rank is missing or slow",
        f"The ranks that report it waited, and somebody did not come{limit}.{who} The one to look for is "
        "another: it raised an error, took another branch, ran out of data, or did something slow that "
        f"the others do not (saving, validation, tokenising, downloading).{size}",
        (
            "Find the rank whose last completed number differs or that printed something earlier; check a "
            "rank-dependent slow phase (tokenising, saving, validation).",
            "Where it is not in the log: TORCH_NCCL_TRACE_BUFFER_SIZE=2000 records the collectives of each "
            "rank, py-spy dump shows where each process stands.",
        ),
        (
            "A longer timeout as the cure: it only makes the same wait longer.",
            "Changing the rank that reports the timeout: it is the one that waited.",
        ),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _desync(found: Waiting, figures: dict[str, Any]) -> Finding:
    listed = "; ".join(
        f"rank {rank} at {min(seqs)}" + (f" to {max(seqs)}" if len(seqs) > 1 else "")
        for rank, seqs in sorted(found.seq_by_rank.items())
    )
    over = ""
    if found.ran_ms is not None and found.ran_ms > 2 * found.timeout_ms:
        over = (
            f" It hung for {found.ran_ms / 3.6e6:.1f} hours, although the limit is "
            f"{found.timeout_ms / 60000:.0f} minutes."
        )
    return fault(
        "nccl.desync",
        "The ranks wait in different collectives",
        f"{listed or ', '.join(sorted(found.ops))}: they have run different numbers of collectives. A "
        "branch that depends on the rank, uneven data, or work on rank 0 alone that calls a collective "
        f"(an all-reduce of a metric, saving, validation).{over}",
        (
            "Compare the sequence numbers per rank and find the rank-dependent code: a branch, an uneven "
            "loader, a collective under `if rank == 0`; TORCH_DISTRIBUTED_DEBUG=DETAIL names the "
            "collective.",
        ),
        ("To raise the timeout.", "Reading the last loss as the fault."),
        evidence=evidence_of(figures),
    )


def _deadlock(found: Waiting, set_here: dict[str, str], figures: dict[str, Any]) -> Finding:
    against = ""
    if set_here.get("NCCL_P2P_DISABLE") == "1" and "NCCL_P2P_LEVEL" in set_here:
        against = " NCCL_P2P_DISABLE=1 and NCCL_P2P_LEVEL contradict each other."
    if "NCCL_SOCKET_IFNAME" in set_here:
        against += " A wrong NCCL_SOCKET_IFNAME can itself cause the hang."
    return fault(
        "nccl.deadlock_not_slow",
        f"A deadlock: the ranks waited the whole raised limit of {found.timeout_ms / 3.6e6:.1f} hours",
        "Nothing that is merely slow takes that long. The ranks do not meet: a branch that differs by "
        f"rank, or a connection that was never made.{against}",
        (
            "Reset to defaults: unset all NCCL_* but NCCL_DEBUG=INFO, run a two-line all_reduce test, then "
            "check the branch each rank takes.",
        ),
        ("A still longer timeout.", "More NCCL variables."),
        evidence=evidence_of(figures),
    )


def _mismatch(around: Around) -> Told:
    kinds = list(dict.fromkeys(re.findall(r"OpType=([A-Z_]{3,40})", around.following)))[:4]
    figures = {"ops": kinds or None}
    return Told(
        fault(
            "ddp.collective_mismatch",
            "The ranks call different collectives, or the same one with different shapes",
            "Collectives pair up by their order. One rank has skipped or added one, or its tensor has "
            "another shape or dtype: a last batch of another size, a branch by rank, a metric on rank 0 "
            "alone.",
            "Compare the two calls that the message prints (kind, shape, dtype) and make every rank call "
            "the same ones in the same order; gather tensors of one shape (pad, or all_gather_object).",
            (
                "A longer timeout.",
                "TORCH_DISTRIBUTED_DEBUG=OFF: it hides the message, and the job hangs instead.",
            ),
            evidence=evidence_of(figures),
        ),
        figures,
    )


_HEARTBEAT = fault(
    "nccl.watchdog_stuck",
    "The watchdog itself was stuck: a CUDA call did not return, or Python held the lock for minutes",
    "NCCL's monitor saw no sign of life from the thread that watches the collectives. The cause is a hang "
    "in CUDA (a dead card or link), a deadlock of locks, or a very slow file system at a dump, not the "
    "collectives themselves.",
    (
        "Look at the cards first (nvidia-smi, dmesg for Xid) and at where the processes stand (py-spy dump "
        "--native).",
        "If all is well and only slow: TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800.",
    ),
    "A longer timeout in init_process_group: it is another clock.",
    certainty="possible",
)
_NO_NCCL = fault(
    "ddp.nccl_not_available",
    "This installation, or this machine, cannot use NCCL",
    "NCCL works on Linux with NVIDIA (or AMD) cards alone. Windows, macOS and CPU builds of PyTorch are "
    "without it.",
    'Use gloo: dist.init_process_group("gloo"), or choose it by torch.cuda.is_available(); with a card on '
    "Linux, install the "
    "CUDA build of torch.",
    "Installing NCCL by hand: PyTorch brings its own.",
)

WORDINGS = (
    wording("Detected mismatch between collectives on ranks", _mismatch),
    wording("Watchdog caught collective operation timeout", _timeout),
    wording(
        (
            "Some NCCL operations have failed or timed out",
            "Timeout at NCCL work",
            "detected by watchdog at work",
        ),
        _some_failed,
    ),
    wording("Heartbeat monitor timed out", _HEARTBEAT),
    wording(
        ("Distributed package doesn't have NCCL", "ProcessGroupNCCL is only supported with GPUs"), _NO_NCCL
    ),
)
