"""What does NCCL report: a rank that never came, a card used twice, a network or a driver that failed?"""

import re
from typing import Any

from course_lib.diagnose.faults.nccl_watchdog import Waiting, waiting
from course_lib.diagnose.faults.surroundings import settings
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding

_RAISED_LIMIT_MS = 1_800_000  # the default of old versions; since torch 2.1 it is 600,000 for NCCL
_FIRST_COLLECTIVES = 5


def _timeout(around: Around) -> Told:
    found = waiting(around.paste)
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
    if found.timeout_ms is not None and found.timeout_ms > _RAISED_LIMIT_MS:
        return Told(_deadlock(found.timeout_ms, set_here, figures), figures, derived)
    size = ""
    if found.numel is not None:
        size = (
            f" {found.numel:,} {'number' if found.numel == 1 else 'numbers'}: a barrier or a metric."
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
        if found.timeout_ms is not None:
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
    if found.ran_ms is not None and found.timeout_ms is not None and found.ran_ms > 2 * found.timeout_ms:
        over = (
            f" It hung for {found.ran_ms / 3.6e6:.1f} hours, although the limit is "
            f"{found.timeout_ms / 60000:.0f} minutes."
        )
    return fault(
        "nccl.desync",
        "The ranks wait in different collectives",
        f"{listed or ', '.join(found.ops)}: they have run different numbers of collectives. A "
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


def _deadlock(limit_ms: int, set_here: dict[str, str], figures: dict[str, Any]) -> Finding:
    against = ""
    if set_here.get("NCCL_P2P_DISABLE") == "1" and "NCCL_P2P_LEVEL" in set_here:
        against = " NCCL_P2P_DISABLE=1 and NCCL_P2P_LEVEL contradict each other."
    if "NCCL_SOCKET_IFNAME" in set_here:
        against += " A wrong NCCL_SOCKET_IFNAME can itself cause the hang."
    return fault(
        "nccl.deadlock_not_slow",
        f"A deadlock: the ranks waited the whole raised limit of {limit_ms / 3.6e6:.1f} hours",
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


def _lagging(around: Around) -> Told:
    """The report of TORCH_NCCL_DESYNC_DEBUG, which names who is behind."""
    text = around.paste.body
    never = re.findall(r"\[([\d,\s]{1,400})\]\s+are\s+the\s+lagging\s+ranks", text)
    missed = re.findall(
        r"\[([\d,\s]{1,400})\]\s+(?:finished\s+collective\s+#\d{1,12},\s*but\s+didn't\s+join|joined\s+but"
        r"\s+didn't\s+finish)\s+collective\s+#(\d{1,12})",
        text,
    )
    ranks = sorted({int(n) for part in [*never, *(m[0] for m in missed)] for n in re.findall(r"\d+", part)})
    figures = {"lagging_ranks": ranks[:200] or None, "collective": int(missed[0][1]) if missed else None}
    who = f"Rank {', '.join(map(str, ranks[:20]))}" if ranks else "A rank"
    return Told(
        fault(
            "nccl.desync",
            f"{who} lags behind: the ranks wait in different collectives",
            "The report of NCCL's watchdog names the ranks that did not come, or did not finish. A branch "
            "that depends on the rank, uneven data, an error, or a slow phase on those ranks alone.",
            f"Look at the output of {who[0].lower() + who[1:]} and at where it stands (py-spy dump --pid): "
            "an error, a branch, an uneven loader, a collective under `if rank == 0`.",
            ("To raise the timeout.", "Debugging the ranks that waited."),
            certainty="likely",
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
    "Linux, install the CUDA build of torch.",
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
            "timed out in blocking wait",
        ),
        _some_failed,
    ),
    wording(("lagging ranks that caused this timeout", "ranks that caused the desync are"), _lagging),
    wording(
        ("Heartbeat monitor timed out", "ProcessGroupNCCL watchdog hang", "watchdog got stuck for"),
        _HEARTBEAT,
    ),
    wording(
        ("Distributed package doesn't have NCCL", "ProcessGroupNCCL is only supported with GPUs"), _NO_NCCL
    ),
)
