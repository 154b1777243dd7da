"""Why can rank 0 not listen: a port in use, a port of the system, an address of another machine?"""

import re
from typing import Any

from course_lib.diagnose.faults.surroundings import operating_system
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding

_LISTEN_PORT = re.compile(
    r"failedto(?:bindto|listenon(?!any))[^(,]{0,60}?:(?P<bound>\d{1,5})(?!\d)|port(?::|`)(?P<named>\d{1,5})(?!\d)"
    r"|port(?P<used>\d{1,5})isinuse"
)


ERRNO = re.compile(r"\(errno:\s*(?P<errno>\d{1,5})|\[Errno\s+(?P<python>\d{1,5})\]")


_CODE = re.compile(r"\bcode:\s*(?P<code>-?\d{1,5})\b")


_NAME = re.compile(r"\bname:\s*(?P<name>E[A-Z]{3,20})\b")


SYSTEM_ERROR = re.compile(r"system\s+error:\s*(?P<code>\d{1,6})")


_IN_USE = {98: "Linux (98)", 48: "macOS (48)", 10048: "Windows (10048)"}


_NOT_ALLOWED = {13, 10013}


_NO_SUCH_ADDRESS = {99, 49, 10049}


_DEFAULT_PORT = 29500


def _listen(around: Around) -> Told | None:
    text = around.paste.line_before(around.offset) + around.following
    errno, code = ERRNO.search(text), _CODE.search(text)
    system, name = SYSTEM_ERROR.search(text), _NAME.search(text)
    port = _LISTEN_PORT.search(around.paste.lowered)
    numbers = [abs(int(m[1] or m[2] if m.re is ERRNO else m[1])) for m in (errno, code, system) if m]
    figures: dict[str, Any] = {
        "port": int(port["bound"] or port["named"] or port["used"]) if port else None,
        "errno": int(errno["errno"] or errno["python"]) if errno else None,
        "code": int(code["code"]) if code else None,
        "name": name["name"] if name else None,
        "os_hint": next((_IN_USE[n] for n in numbers if n in _IN_USE), None),
    }
    words = " ".join(text.lower().split())
    if _NOT_ALLOWED & set(numbers) or "permission denied" in words or "eacces" in words:
        return Told(_not_allowed(figures), figures)
    if (_NO_SUCH_ADDRESS & set(numbers) and 10048 not in numbers) or "eaddrnotavail" in words:
        return Told(_not_local(figures), figures)
    if figures["port"] is not None and 0 < figures["port"] < 1024:
        return Told(_system_port(figures), figures)
    return Told(_in_use(figures, around), figures)


def _in_use(figures: dict[str, Any], around: Around) -> Finding:
    port = figures["port"]
    which = (
        f"Port {port}" if port else f"The port (torchrun's default is {_DEFAULT_PORT}; the text prints none)"
    )
    mac = ""
    if figures["os_hint"] == _IN_USE[48] or operating_system(around.paste) == "macos":
        mac = " On a Mac also check that the backend is gloo."
    return fault(
        "ddp.port_in_use",
        "The port for the ranks to meet is in use",
        f"{which} is held by another program: a second job on this machine, or an earlier run of yours "
        "that did not end. The system's number for that differs (98 on Linux, 48 on macOS, 10048 on "
        "Windows).",
        (
            "Choose another port (--master_port, or torchrun --standalone, which finds a free one for a "
            f"job on one machine).{mac}",
            "See who holds it: lsof -i :PORT (Linux, macOS), netstat -ano (Windows); end it only if it is "
            "an old run of yours.",
        ),
        ("Ending whatever holds the port without looking at it.", "Restarting the machine."),
        evidence=evidence_of(figures),
    )


def _system_port(figures: dict[str, Any]) -> Finding:
    port = figures["port"]
    service = {22: ": ssh", 80: ": the web", 443: ": the web"}.get(port, "")
    return fault(
        "ddp.port_is_a_system_service",
        f"Port {port} belongs to a service of the system{service}",
        f"PORT or MASTER_PORT in the environment is {port}. Ports below 1024 are the system's own; this "
        "one will never be free.",
        "unset PORT, or set MASTER_PORT to a number above 1024.",
        (
            "Stopping the program on that port: it is a service of the system.",
            "Running the training as root.",
        ),
        evidence=evidence_of(figures),
    )


def _not_allowed(figures: dict[str, Any]) -> Finding:
    return fault(
        "ddp.port_not_allowed",
        "The system does not allow this port",
        "Ports below 1024 need the rights of an administrator; on Windows some higher ranges are reserved "
        "too.",
        "Set MASTER_PORT to a number between 20000 and 65000 (on Windows outside the ranges of netsh int "
        "ipv4 show excludedportrange tcp).",
        "Running the training as an administrator.",
        evidence=evidence_of(figures),
    )


def _not_local(figures: dict[str, Any]) -> Finding:
    return fault(
        "ddp.master_addr_not_local",
        "Rank 0 was told to listen on an address that is not its machine's",
        "MASTER_ADDR must be an address of the node that has rank 0. A rank 0 on another node, or an old "
        "address, gives this.",
        "Set MASTER_ADDR to the address of the node with node_rank 0 (hostname -I there); for one machine "
        "use 127.0.0.1.",
        "Another port.",
        evidence=evidence_of(figures),
    )


WORDINGS = (
    wording(
        (
            "EADDRINUSE",
            "Address already in use",
            "failed to listen on any local network address",
            "system error: 10048",
            "Only one usage of each socket address",
            "server socket has failed to bind",
            "EADDRNOTAVAIL",
            "but another process is utilizing it",
            "is in use by another program, perhaps another training",
        ),
        _listen,
    ),
)
