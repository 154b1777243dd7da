"""What does gloo report: a rank that did not come, or tensors of different sizes?"""

import re

from course_lib.diagnose.faults.lost_peer import never_connected
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording


def _gloo_sizes(around: Around) -> Told:
    match = re.search(
        r"op\.preamble\.length\s*<=\s*op\.nbytes\.\s*(\d{1,15})\s*vs\.?\s*(\d{1,15})", around.paste.body
    )
    figures = {
        "bytes_sent": int(match[1]) if match else None,
        "bytes_expected": int(match[2]) if match else None,
    }
    return Told(
        fault(
            "ddp.collective_mismatch",
            "Two ranks meet in one collective with tensors of different sizes",
            "Gloo received more bytes than this rank made room for. The ranks call different collectives, "
            "or the same one with another shape or dtype: a last batch of another size, a branch by rank.",
            "Print shape and dtype before the call on every rank and make them the same (pad, "
            "drop_last=True, all_gather_object); TORCH_DISTRIBUTED_DEBUG=DETAIL names the collective.",
            ("A longer timeout.", "Changing the backend: NCCL would hang, or compute nonsense, in silence."),
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _gloo_timeout(around: Around) -> Told:
    match = re.search(r"Timed\s+out\s+waiting\s+(\d{1,12})\s?ms", around.paste.body)
    figures = {"timeout_ms": int(match[1]) if match else None}
    return Told(
        fault(
            "gloo.one_rank_missing_or_slow",
            "A rank did not come to a collective in time",
            "This rank waited. Another one has ended, hangs, or is in a slow phase that the others do not "
            "share.",
            "Find the rank that printed something earlier, or nothing at all: look at its output and at "
            "where it stands (py-spy dump --pid); check branches that depend on the rank.",
            ("A longer timeout as the cure.", "Debugging the rank that waited."),
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _monitored(around: Around) -> Told:
    match = re.search(r"Ranks?\s+([\d, ]{1,200}?)\s+failed\s+to\s+pass\s+monitoredBarrier", around.paste.body)
    ranks = [int(n) for n in re.findall(r"\d+", match[1])] if match else None
    figures = {"missing_ranks": ranks}
    who = f"Rank {', '.join(map(str, ranks))}" if ranks else "A rank"
    return Told(
        fault(
            "gloo.one_rank_missing_or_slow",
            f"{who} did not come to the barrier",
            "The monitored barrier names who is missing: that rank has ended, hangs, or is in another "
            "branch.",
            f"Look at the output of {who.lower()} and at where it stands (py-spy dump --pid).",
            "Debugging rank 0, which only reports it.",
            evidence=evidence_of(figures),
        ),
        figures,
    )


_NO_INTERFACE = fault(
    "gloo.no_network_interface",
    "Gloo found no network interface, or not the one that was named",
    "It looks up an address for the host's own name, or for GLOO_SOCKET_IFNAME. A name that leads nowhere, "
    "a VPN, or an interface that is not on this machine gives this.",
    "Unset GLOO_SOCKET_IFNAME, or set it to an interface that ip addr lists (lo for one machine); on "
    "Windows and macOS put MASTER_ADDR=127.0.0.1.",
    ("Another port.", "A longer timeout."),
    certainty="likely",
)


# For the text without blanks, in lower case.
_REFUSED = re.compile(
    r"tcp/pair\.cc:\d{1,5}\]connect\[(?P<host>[\w.:]{3,45})\]:(?P<port>\d{1,5}):connectionrefused"
)
_NOT_ALL_CONNECTED = fault(
    "gloo.ranks_cannot_connect",
    "The ranks could not all connect to each other by gloo",
    "Each rank gives the others an address and waits. A rank that failed at its start does not answer; "
    "else the address is of an interface (docker, VPN, loopback) by which the others cannot reach it.",
    "Look at the other ranks first: did one print an earlier error, or end? If all live, set "
    "GLOO_SOCKET_IFNAME to the interface by which the machines reach each other (lo on one machine), and "
    "open the ports between them.",
    (
        "A longer timeout, before the other ranks were looked at.",
        "Another MASTER_PORT: they have met already.",
    ),
    certainty="likely",
)


def _full_mesh(around: Around) -> Told | None:
    """A connection that was never made; one that was and broke is read in lost_peer.py."""
    return Told(_NOT_ALL_CONNECTED) if never_connected(around) else None


def _pair(around: Around) -> Told | None:
    match = _REFUSED.search(around.paste.lowered)
    if match is None:
        return None
    figures = {"peer": match["host"], "port": int(match["port"])}
    return Told(_NOT_ALL_CONNECTED, figures)


WORDINGS = (
    wording("Gloo connectFullMesh failed", _full_mesh),
    wording("gloo/transport/tcp/", _pair),
    wording(
        (
            "makeDeviceForHostname",
            "makeDeviceForInterface",
            "Unable to find address for",
            "Unable to find interface for",
        ),
        _NO_INTERFACE,
    ),
    wording(("op.preamble.length", "invalid tensor size at index"), _gloo_sizes),
    wording(("failed to pass monitoredBarrier", "while waiting for send/recv from rank"), _monitored),
    wording(("ms for recv operation to complete", "ms for send operation to complete"), _gloo_timeout),
)
