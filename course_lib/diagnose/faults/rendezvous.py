"""Why do the ranks not find each other: a missing variable, an address, a rank that never came?"""

import re
from typing import Any

from course_lib.diagnose.faults.ports import ERRNO, SYSTEM_ERROR
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding


def _missing_variable(around: Around) -> Told:
    match = re.search(
        r"environment\s+variable\s+(\w{2,40})\s+expected|KeyError:\s*['\"](\w{2,40})['\"]",
        around.paste.body[max(around.offset - 200, 0) :],
    )
    figures = {"variable": (match[1] or match[2]) if match else None}
    name = figures["variable"] or "A variable of the launcher"
    return Told(
        fault(
            "ddp.missing_environment_variable",
            f"{name} is not set: the script was started without the launcher",
            "MASTER_ADDR, MASTER_PORT, RANK, LOCAL_RANK and WORLD_SIZE are set by torchrun for each "
            "process. Started by python train.py, or from a notebook, they are not there.",
            (
                "Start it by torchrun --standalone --nproc_per_node=N train.py.",
                "To run one process without it, set RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 "
                "MASTER_PORT=29500, or skip init_process_group when RANK is not set.",
            ),
            "Setting only the one that the message names: the next one is missing then.",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _key_error(around: Around) -> Told | None:
    return _missing_variable(around) if around.says("KeyError:") else None


_NO_IPV6 = 97
_WITHOUT_IPV6 = fault(
    "ddp.no_ipv6_warning_benign",
    "Harmless: the address was tried by IPv6 first, which this machine does not have",
    "The next try is by IPv4. Only if the job ends there is it the fault.",
    "Ignore it; or give MASTER_ADDR as a number, such as 127.0.0.1.",
    "Another port, or a longer timeout.",
    severity="note",
)
_CONNECT = re.compile(
    r"(?:connect\s+to|any\s+network\s+address\s+of|network\s+addresses\s+of|each\s+other\s+at)\s+(?:"
    r"\[(?P<bracketed>[\w.:%-]{1,80})\]:(?P<port_a>\d{1,5})"
    r"|\((?P<named>[\w.:%-]{1,80}),\s*(?P<port_b>\d{1,5})"
    r"|(?P<plain>[\w.%-]{1,80}):(?P<port_c>\d{1,5}))\b"
)


def _unreachable(around: Around) -> Told | None:
    if around.says("keep-alive heartbeat", "failed to shutdown the rendezvous"):
        return None  # the connection was there, and broke: lost_peer.py
    text = around.paste.body
    match, errno = _CONNECT.search(around.following) or _CONNECT.search(text), ERRNO.search(around.following)
    limit = re.search(r"timed\s+out\s+after\s+(\d{1,9})\s?(ms|s)\b", around.following)
    figures: dict[str, Any] = {
        "host": (match["bracketed"] or match["named"] or match["plain"]) if match else None,
        "port": int(match["port_a"] or match["port_b"] or match["port_c"]) if match else None,
        "errno": int(errno["errno"] or errno["python"]) if errno else None,
        "timeout_s": (int(limit[1]) / (1000 if limit[2] == "ms" else 1)) if limit else None,
    }
    if figures["errno"] == _NO_IPV6:
        return Told(_WITHOUT_IPV6, figures)
    host = figures["host"] or "the address"
    if (
        SYSTEM_ERROR.search(around.following)
        and around.says("10049")
        and around.says("docker.internal", "localhost", "lan]")
    ):
        return Told(_windows_name(figures), figures)
    numeric = re.search(r"any\s+network\s+address\s+of\s+\((\d{1,12}),", text)
    if numeric or (match and re.fullmatch(r"(?:::ffff:)?0\.\d{1,3}\.\d{1,3}\.\d{1,3}", host)):
        return Told(_number_as_name(figures, numeric[1] if numeric else None), figures)
    reason = {
        111: "Nobody listens there (connection refused): rank 0 has not started, has ended, or listens on "
        "another port.",
        61: "Nobody listens there (connection refused): rank 0 has not started, has ended, or listens on "
        "another port.",
        110: "Nothing answered: a firewall, or the wrong address.",
        113: "There is no route to that machine: the wrong address or interface.",
    }.get(figures["errno"] or 0, "Nothing answered there in time.")
    return Told(
        fault(
            "ddp.store_unreachable",
            f"This rank cannot reach rank 0 at {host}"
            + (f", port {figures['port']}" if figures["port"] else ""),
            f"{reason} All ranks meet at MASTER_ADDR:MASTER_PORT, where rank 0 keeps the list.",
            (
                "Look at rank 0 first: did it start, and did it print an earlier error? Then check that "
                "MASTER_ADDR and MASTER_PORT are the same on all nodes and that nc -vz MASTER_ADDR "
                "MASTER_PORT gets through from each.",
                "On several nodes MASTER_ADDR is the first node's address, never localhost; open the port "
                "in the firewall.",
            ),
            (
                "A longer timeout, before rank 0 was looked at.",
                "Changing NCCL settings: NCCL has not started yet.",
            ),
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _windows_name(figures: dict[str, Any]) -> Finding:
    return fault(
        "ddp.windows_hostname_warning_benign",
        "Windows could not reach itself by that name, tried another one, and went on",
        "The warning appears where Docker or a router gives the computer a name that does not lead back to "
        "it. Only if the job ends there is it the fault.",
        "Ignore it if training goes on; else set MASTER_ADDR=127.0.0.1 and USE_LIBUV=0, with backend gloo.",
        "Reinstalling Docker or PyTorch.",
        severity="note",
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _number_as_name(figures: dict[str, Any], name: str | None) -> Finding:
    return fault(
        "ddp.hostname_is_a_number",
        "The name of this machine is a number, and was taken for an address",
        f"{name or 'The host name'} consists of digits, so it is read as an IP address ({figures['host']}) "
        "at which nobody is.",
        "Give the address yourself: torchrun --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:29500 (or "
        "--master_addr 127.0.0.1), in place of --standalone; or rename the machine.",
        "A longer timeout.",
        certainty="likely",
        evidence=evidence_of(figures),
    )


_UNKNOWN_NAME = fault(
    "ddp.master_addr_unknown",
    "The name in MASTER_ADDR is not known to this machine",
    "It could not be turned into an address. On some clusters only the short, or only the full, name works.",
    "Use the IP address of the first node as MASTER_ADDR, or check the name with getent hosts NAME on "
    "every node.",
    "Another port, or a longer timeout.",
)


def _clients(around: Around) -> Told:
    match = re.search(
        r"(\d{1,6})\s*/\s*(\d{1,6})\s+clients\s+joined|Only\s+(\d{1,6})\s+of\s+(\d{1,6})\s+ranks\s+came",
        around.paste.body,
    )
    barrier = re.search(
        r"world_size\s*=\s*(\d{1,6}),\s*(?:worker_count|num_workers_joined)\s*=\s*(\d{1,6})",
        around.paste.body,
    )
    joined = int(match[1] or match[3]) if match else int(barrier[2]) if barrier else None
    expected = int(match[2] or match[4]) if match else int(barrier[1]) if barrier else None
    limit = re.search(r"Timed\s+out\s+after\s+(\d{1,8})\s+seconds", around.paste.body)
    figures = {"joined": joined, "world_size": expected, "timeout_s": int(limit[1]) if limit else None}
    if joined is not None and expected is not None and joined > expected:
        return Told(
            fault(
                "ddp.two_jobs_in_one_store",
                f"{joined} processes joined a group of {expected}: more were started than it knows of",
                "An earlier run that did not end, or a second job, uses the same MASTER_ADDR and "
                "MASTER_PORT; or one launcher starts another (srun -n N with mp.spawn or torchrun in each).",
                "End the old processes of yours, give each job a port of its own (torchrun --standalone), "
                "and let one launcher alone start the ranks.",
                "A longer timeout.",
                certainty="likely",
                evidence=evidence_of(figures),
            ),
            figures,
        )
    count = (
        f"{joined} of {expected} ranks came"
        if joined is not None and expected is not None
        else "Not all ranks came"
    )
    return Told(
        fault(
            "ddp.rank_missing_at_start",
            f"{count} to the meeting point in time",
            "The group waits for exactly WORLD_SIZE processes. Fewer were started than WORLD_SIZE says, "
            "one of them failed before it joined, or one cannot reach MASTER_ADDR.",
            (
                "Check that nnodes x nproc_per_node is the WORLD_SIZE, that the command runs on every node "
                "with its own node_rank, and read the log of the rank that is missing: it failed first.",
            ),
            ("A longer timeout as the cure, unless a node really starts that late.",),
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _silent_store(around: Around) -> Told | None:
    name = (around.exception or "").rpartition(".")[2]
    at_the_store = name in ("RuntimeError", "DistStoreError", "DistNetworkError", "DistBackendError")
    at_the_store = at_the_store or around.says("init_process_group", "ProcessGroupGloo(")
    return _clients(around) if at_the_store else None


_LIBUV = fault(
    "ddp.windows_libuv",
    "This build of PyTorch has no libuv, and the meeting point asked for it",
    "Since 2.4 the store uses libuv unless told otherwise; PyTorch's builds for Windows are without it.",
    'Set USE_LIBUV=0 before the start (or init_method="env://?use_libuv=0"); with torchrun on Windows too.',
    ("Another port.", "Building libuv yourself."),
)
_TWICE = fault(
    "ddp.group_initialised_twice",
    "init_process_group is called a second time in one process",
    "A cell that is run twice, a library (Lightning, accelerate) that does it too, or a group that was not "
    "destroyed.",
    "Call it once: guard it with `if not dist.is_initialized()`, and end with dist.destroy_process_group().",
    "Another port.",
)
_NOT_INITIALISED = fault(
    "ddp.group_not_initialised",
    "A collective, or DDP, is used before init_process_group",
    "The call needs the process group. It was not made in this process, or only in the parent of this "
    "process.",
    "Call dist.init_process_group(...) first thing in each rank; in code that also runs alone, ask "
    "dist.is_initialized() first.",
    "Setting RANK and WORLD_SIZE alone.",
)
_RANK_OUT_OF_RANGE = fault(
    "ddp.rank_outside_world_size",
    "A rank is not below the world size",
    "Ranks count from 0 to WORLD_SIZE - 1 over all nodes. A rank set by hand, a node_rank from 1, or a "
    "WORLD_SIZE that counts nodes and not processes gives this.",
    "Let torchrun set RANK and WORLD_SIZE (nnodes x nproc_per_node), with --node_rank from 0.",
    "Another port, or a longer timeout.",
)


WORDINGS = (
    wording("expected, but not set", _missing_variable),
    wording(
        (
            "KeyError: 'LOCAL_RANK'",
            "KeyError: 'RANK'",
            "KeyError: 'WORLD_SIZE'",
            "KeyError: 'MASTER_ADDR'",
            "KeyError: 'MASTER_PORT'",
            "KeyError: 'LOCAL_WORLD_SIZE'",
        ),
        _key_error,
    ),
    wording(("use_libuv was requested", "without libuv support"), _LIBUV),
    wording(
        ("gai error", "Name or service not known", "nodename nor servname provided", "getaddrinfo failed"),
        _UNKNOWN_NAME,
    ),
    wording(("Socket Timeout", "Wait timeout"), _silent_store),
    wording(
        (
            "clients joined",
            "ranks came within",
            "in store based barrier",
            "store based barrier on rank",
            "RendezvousTimeoutError",
            "wait timeout after",
            "Timed out waiting for clients",
        ),
        _clients,
    ),
    wording(
        (
            "client socket has failed to connect",
            "The ranks did not find each other at",
            "client socket has timed out",
            "client socket cannot be initialized to connect",
            "RendezvousConnectionError: The connection to the C10d store has failed",
        ),
        _unreachable,
    ),
    wording("initialize the default process group twice", _TWICE),
    wording(
        ("Default process group has not been initialized", "Default process group is not initialized"),
        _NOT_INITIALISED,
    ),
    wording(
        ("rank should be less than world_size", "rank must be less than world_size"),
        _RANK_OUT_OF_RANGE,
    ),
)
