"""What did NCCL itself report: a card used twice, a network, shared memory or a driver that failed?"""

import re
from typing import Any

from course_lib.diagnose.faults.lost_peer import secondary
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding

_PAIR = re.compile(
    r"Duplicate\s+GPU\s+detected\s*:\s*rank\s+(\d{1,6})\s+and\s+rank\s+(\d{1,6})\s+both\s+on\s+CUDA"
    r"\s+device\s+"
    r"([0-9a-fA-F]{1,16})\b"
)


_VERSION = re.compile(r"NCCL\s+version\s+(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)", re.IGNORECASE)


_ERROR = re.compile(
    r"\bnccl(?:UnhandledCuda|System|Internal|Remote)Error\b|\bnccl"
    r"(?:InvalidUsage|InvalidArgument|InProgress)\b"
)


_LAST_ERROR = re.compile(r"Last\s+error\s*:[ \t]*\n?[ \t]*(?P<text>[^\n]{0,300})", re.IGNORECASE)


_PEER = re.compile(r"(?:from|to)\s+(?:\S{1,60}\s)?(?P<peer>\[?[\w.:]{3,45}\]?<\d{1,6}>)")


_PEER_GONE = (
    "failed : Broken pipe",
    "failed: Broken pipe",
    "failed : Connection reset by peer",
    "failed: Connection reset by peer",
    "Connection closed by remote peer",
)
"""Words of a connection that was there and broke."""


def _nccl_figures(around: Around) -> dict[str, Any]:
    text = around.paste.body
    last, name, version, peer = (
        _LAST_ERROR.search(text),
        _ERROR.search(text),
        _VERSION.search(text),
        _PEER.search(text),
    )
    return {
        "nccl_version": version[1] if version else None,
        "error": name[0] if name else None,
        "last_error": (last["text"].strip() or None) if last else None,
        "peer": peer["peer"] if peer else None,
    }


def _duplicate(around: Around) -> Told:
    found = list(dict.fromkeys(_PAIR.findall(around.paste.body)))[:200]
    figures = {
        **_nccl_figures(around),
        "pairs": [[int(a), int(b)] for a, b, _ in found],
        "pci_bus": found[0][2] if found else None,
    }
    ranks = sorted({rank for pair in figures["pairs"] for rank in pair})
    who = f"Ranks {', '.join(map(str, ranks))} are" if ranks else "Several ranks are"
    where = ""
    if found:
        where = f' "{found[0][2]}" is the address of the card on the PCI bus, in hexadecimal, not its number.'
    return Told(
        fault(
            "ddp.duplicate_device",
            "Several ranks are on one card",
            f"{who} on the same card, and NCCL needs one card for each rank. The device is not set from "
            f"LOCAL_RANK, or there are more processes than visible GPUs.{where}",
            (
                'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) first; nproc_per_node at most the '
                "number of visible GPUs.",
                "Look for a device that is written into the script or a config (cuda:0), and for "
                "CUDA_VISIBLE_DEVICES set to one card in each process.",
            ),
            ("Reinstalling NCCL.", "Reading the hexadecimal address as a CUDA index."),
            evidence=evidence_of(figures),
        ),
        figures,
    )


def peer_is_gone(around: Around) -> bool:
    """Whether a connection was there and broke."""
    return around.says(*_PEER_GONE)


def peer_gone(around: Around) -> Told:
    """The finding for a rank whose peer has ended."""
    figures = _nccl_figures(around)
    peer = figures["peer"]
    whose = "This rank" if around.rank is None else f"Rank {around.rank}"
    return Told(secondary(f"{whose} lost the connection to {peer or 'another rank'}", figures, peer), figures)


def system_error(around: Around) -> Told | None:
    """The finding for a call to the system that failed inside NCCL; None where another wording says more."""
    figures = _nccl_figures(around)
    if around.says("shared memory segment", "/dev/shm/nccl", "No space left on device"):
        return Told(_shared_memory(figures), figures)
    if around.says("Duplicate GPU detected", "remote process exited"):
        return None
    if peer_is_gone(around):
        return peer_gone(around)
    if around.says(*_NO_INTERFACE):
        return Told(_no_interface(figures), figures)
    if around.says(
        "Connection refused", "Connection timed out", "No route to host", "Connect to", "connection closed"
    ):
        why = (
            "A connection between two nodes or ranks could not be made: a firewall, the wrong interface, "
            "or a peer that is gone."
        )
        first = (
            "Set NCCL_SOCKET_IFNAME to the interface by which the nodes reach each other, open the ports "
            "between them, and look whether the peer is alive; NCCL_DEBUG=INFO shows which address is used."
        )
        name = "nccl.network_unreachable"
    elif around.says("Too many open files"):
        return None
    else:
        why = (
            "A call to the system failed inside NCCL: a socket, shared memory, the driver. The text does "
            "not say which."
        )
        first = (
            "Run once with NCCL_DEBUG=INFO and read the first line with WARN; then check /dev/shm (docker "
            "run --shm-size=8g or --ipc=host) and the network interface (NCCL_SOCKET_IFNAME)."
        )
        name = "nccl.unhandled_system_error"
    return Told(
        fault(
            name,
            "NCCL could not use the network or the system",
            why,
            first,
            ("Reinstalling PyTorch before the warning was read.", "A smaller batch."),
            certainty="possible" if name.endswith("system_error") else "likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


_NO_INTERFACE = ("no socket interface found", "Bootstrap : no socket")
_NO_PEER_ACCESS = ("peer access is not supported", "peer mapping resources exhausted")


def _no_interface(figures: dict[str, Any]) -> Finding:
    return fault(
        "nccl.no_network_interface",
        "NCCL could not use the network or the system",
        "NCCL found no network interface that it may use.",
        "Unset NCCL_SOCKET_IFNAME, or set it to an interface that ip addr lists on every node (not docker0 "
        "or lo).",
        (
            "Reinstalling PyTorch.",
            "A smaller batch.",
            "NCCL_P2P_DISABLE=1: that is about copies between the cards of one machine.",
        ),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _no_peer_access(figures: dict[str, Any]) -> Finding:
    return fault(
        "nccl.no_peer_access",
        "Two cards cannot copy to each other directly, and NCCL tried it",
        "NCCL printed that peer access between the cards is not supported. Boards, virtual machines (IOMMU, "
        "ACS) and some consumer cards do not allow it, though the driver may first say that they do.",
        (
            "NCCL_P2P_DISABLE=1: the copies then go through host memory, which works and is slower; see "
            "nvidia-smi topo -p2p r for what the cards may do.",
        ),
        ("NCCL_SOCKET_IFNAME: that is about the network.", "Reinstalling PyTorch."),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _shared_memory(figures: dict[str, Any]) -> Finding:
    return fault(
        "nccl.shm_full",
        "NCCL found no room in shared memory",
        "Ranks on one machine exchange data through /dev/shm, and a container gets 64 MB of it unless told "
        "otherwise.",
        "df -h /dev/shm; start the container with docker run --shm-size=8g or --ipc=host.",
        ("GPU memory advice.", "NCCL_SHM_DISABLE=1 for good: it works, and is slower."),
        evidence=evidence_of(figures),
    )


def _cuda(around: Around) -> Told | None:
    figures = _nccl_figures(around)
    if around.says("Cuda failure 'out of memory'", "Cuda failure 2 'out of memory'", "Failed to CUDA calloc"):
        return None  # read as missing memory
    if around.says(*_NO_PEER_ACCESS):
        return Told(_no_peer_access(figures), figures)
    return Told(
        fault(
            "nccl.unhandled_cuda_error",
            "A CUDA call failed inside NCCL",
            "NCCL passes on an error of the CUDA driver. Usual causes: two ranks on one card, a driver too "
            "old for this NCCL, no memory left on the card, or an earlier kernel that failed (CUDA reports "
            "that late, here).",
            (
                "Run once with NCCL_DEBUG=WARN and read the line with 'Cuda failure'; check that each rank "
                "has its own card (torch.cuda.set_device(local_rank)) and, with nvidia-smi, that the card "
                "has memory left.",
                "CUDA_LAUNCH_BLOCKING=1 shows whether an earlier kernel was the one that failed.",
            ),
            "A longer timeout.",
            certainty="possible",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _usage(around: Around) -> Told | None:
    if around.says("Duplicate GPU detected"):
        return None
    figures = _nccl_figures(around)
    return Told(
        fault(
            "nccl.invalid_usage",
            "NCCL was called in a way that it does not allow, most often two ranks on one card",
            "Without NCCL_DEBUG=WARN many versions do not print which two ranks share a card. Other "
            "causes: ranks that disagree about their number, or tensors of different cards in one call.",
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) first thing in each rank, at most one '
            "process for each visible GPU; NCCL_DEBUG=WARN prints the reason.",
            "Reinstalling NCCL.",
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _internal(around: Around) -> Told | None:
    if around.says("Duplicate GPU detected"):
        return None
    if peer_is_gone(around):  # a lost peer, renamed on its way up through NCCL
        return peer_gone(around)
    figures = _nccl_figures(around)
    if around.says(*_NO_INTERFACE):
        return Told(_no_interface(figures), figures)
    if around.says(*_NO_PEER_ACCESS):
        return Told(_no_peer_access(figures), figures)
    return Told(
        fault(
            "nccl.internal_error",
            "A check inside NCCL failed",
            "Often the ranks run different NCCL versions, the topology of a container cannot be read, or "
            "direct copies between cards do not work on this board.",
            "Run once with NCCL_DEBUG=INFO and read the first WARN; check that all nodes have the same "
            "torch; as a test, NCCL_P2P_DISABLE=1.",
            "Keeping NCCL_P2P_DISABLE=1 without knowing why: it costs speed.",
            certainty="possible",
            evidence=evidence_of(figures),
        ),
        figures,
    )


WORDINGS = (
    wording("Duplicate GPU detected", _duplicate),
    wording(("remote process exited or there was a network error", "ncclRemoteError"), peer_gone),
    wording(("ncclSystemError", "unhandled system error", "Bootstrap : no socket interface"), system_error),
    wording(("ncclUnhandledCudaError", "unhandled cuda error", "NCCL WARN Cuda failure"), _cuda),
    wording(
        (
            "ncclInvalidUsage",
            "NCCL Error 5: invalid usage",
            "NCCL error: invalid usage",
            "invalid usage, NCCL version",
            "invalid usage (run with NCCL_DEBUG",
        ),
        _usage,
    ),
    wording(
        (
            "ncclInternalError",
            "NCCL Error 3: internal error",
            "internal error, NCCL version",
            "internal error (run with NCCL_DEBUG",
        ),
        _internal,
    ),
)
