"""Which errors only say that another process is gone?"""

import re
from typing import Any

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding

_LOST = re.compile(
    r"connection (?:was )?(?:closed|reset) by (?:remote )?peer|broken pipe|connection refused"
    r"|(?:recv|send)(?:Value|Vector|Bytes)? failed|failed to recv|ncclRemoteError|remote process exited"
    r"|communicator was aborted|application timeout caused pair closure|connectFullMesh failed|Read error \["
    r"|writev \[|socket closed|store->get\(|DataLoader worker \(pid|could not do what all wait for"
    r"|NCCL error",
    re.IGNORECASE,
)
_WAITED = re.compile(
    r"timed out waiting|timed out after \d|timed out initiali[sz]ing process group"
    r"|watchdog caught|wait timeout|socket timeout|monitoredBarrier"
    r"|NCCL operations have failed|Timeout at NCCL|blocking wait|while waiting for send/recv|clients joined"
    r"|it did not come to the exchange",
    re.IGNORECASE,
)


def says_lost(text: str) -> bool:
    """Whether the text of an exception says that another process is gone."""
    return _LOST.search(text) is not None


def says_waited(text: str) -> bool:
    """Whether the text of an exception says that another process did not come in time."""
    return _WAITED.search(text) is not None


def secondary(what: str, figures: dict[str, Any], peer: str | None = None) -> Finding:
    """The finding for a rank that only suffers from the end of another one."""
    first = f", starting with that peer ({peer.partition('<')[0]})" if peer else ""
    return fault(
        "ddp.secondary_failure",
        f"{what}: it is the victim, not the culprit",
        "Another process ended first, and closed its connections by that. The first failure is there: an "
        "exception, an out-of-memory kill, a fault of the node. Or it came to its end without an error, "
        "because it had fewer batches than this one.",
        (
            f"Read the earliest error in time over all ranks and nodes{first}: the log of that rank, "
            "dmesg, the scheduler's report.",
            "Start with torchrun --log-dir logs --tee 3, so that each rank's output is kept.",
        ),
        ("Debugging the rank that printed this.", "NCCL timeouts and other NCCL settings."),
        evidence=evidence_of(figures),
    )


def peer_ended_well(figures: dict[str, Any]) -> Finding:
    """The finding for a rank that lost its peer although no rank failed by itself."""
    rank = figures["rank"]
    return fault(
        "ddp.peer_ended_without_error",
        f"Rank {rank} still waited when another rank had ended without an error: fewer batches there?",
        "No rank is known to have failed by itself: only ranks that lost their connection. So the other one "
        "came to its end, with exit code 0, while the rest still had steps to do. Uneven "
        "data do that, or a branch that leaves the loop on one rank (early stopping, return, sys.exit(0)).",
        (
            "Print len(loader) on every rank and make them equal (DistributedSampler, drop_last=True), or "
            "train inside `with model.join():`; let all ranks decide together when to stop (all-reduce the "
            "decision).",
            "With several machines, look at the report of each: a rank of another one may have failed.",
        ),
        ("A longer timeout.", "Debugging the rank that lost the connection."),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def never_connected(around: Around) -> bool:
    """Whether the words that follow say that a connection was never made (else it was, and broke)."""
    said = around.following[:400].lower()
    return any(word in said for word in ("timeout", "timed out", "refused", "no route", "unreachable"))


def _mesh_broke(around: Around) -> Told | None:
    return None if never_connected(around) else _closed(around)  # gloo.py reads what was never made


def _closed(around: Around) -> Told | None:
    if around.says("ncclRemoteError"):
        return None
    peer = re.search(r"(?:peer|Read error|writev|recv)\s*\[?\[?([\w.:]{3,45})\]", around.following)
    figures = {"peer": peer[1] if peer else None}
    whose = "This process" if around.rank is None else f"Rank {around.rank}"
    return Told(secondary(f"{whose} lost the connection to another rank", figures, figures["peer"]), figures)


_FROM_THE_STORE = ("RuntimeError", "DistNetworkError", "DistStoreError", "DistBackendError", "DistError")


def _broken_store(around: Around) -> Told | None:
    """Words of the system that mean this only where torch's own store or group raised them."""
    name = (around.exception or "").rpartition(".")[2]
    return Told(_DEAD_STORE) if name in _FROM_THE_STORE else None


_DEAD_STORE = fault(
    "ddp.secondary_failure",
    "The meeting point is gone: the process that kept it has ended",
    "Rank 0 (or the launcher) holds the store. When it ends first, every other rank sees broken connections.",
    "Read the earliest error in time over all ranks and nodes, starting with rank 0 and the launcher.",
    ("Debugging the rank that printed this.", "NCCL timeouts."),
    certainty="likely",
)


WORDINGS = (
    wording(
        (
            "Connection closed by peer",
            "Application timeout caused pair closure",
            "NCCL communicator was aborted",
        ),
        _closed,
    ),
    wording("Gloo connectFullMesh failed", _mesh_broke),
    wording("Read error [", _closed),
    wording(
        (
            "but store->get(",
            'Failed to check the "should dump" flag',
            "Failed to recv, got 0 bytes",
            "sendBytes failed on SocketImpl",
            "recvValue failed on SocketImpl",
            "recvVector failed on SocketImpl",
            "failed to send a keep-alive heartbeat",
            "dump signal from another rank",
            "Received a dump signal due to a collective timeout",
            "RendezvousClosedError",
            "failed to shutdown the rendezvous",
            "Stop_waiting response is expected",
        ),
        _DEAD_STORE,
    ),
    wording(("Broken pipe", "Connection reset by peer"), _broken_store),
)
