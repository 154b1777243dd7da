"""Which process ended first, and how: a signal from outside, a crash, or an error of its own?

The traceback that torchrun prints is the launcher's. It holds no cause, only who failed first and with which
exit code: minus the number of a signal, or what the program returned.
"""

import re
from dataclasses import dataclass
from typing import Any

from course_lib.diagnose.faults.exit_signals import BY_SIGNAL
from course_lib.diagnose.faults.lost_peer import peer_ended_well
from course_lib.diagnose.faults.rank_errors import failures, first_failure, own_errors
from course_lib.diagnose.faults.surroundings import last_epoch, last_step
from course_lib.diagnose.faults.tracebacks import raised
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding
from course_lib.diagnose.paste import Paste

# By number, also where the system that reads the paste has other signals.
_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}
_NUMBERS = {name: number for number, name in _NAMES.items()}
_CODE = re.compile(
    r"(?:exit\s?code|exit\s*status|return\s*code)\s*[:=]?\s*(?P<code>-?\d{1,10})\b", re.IGNORECASE
)
# Codes that no exception gives, and no shell: the program asked for them.
_CALLED_EXIT = frozenset(range(3, 120))
_ABORT_ON_WINDOWS = 3
# What Windows calls the crashes that elsewhere are signals.
_WINDOWS_CRASHES = {-1073741819: 11, 3221225477: 11, -1073741571: 11, -1073740791: 6, 3221226505: 6}
# bash sets the command apart by several blanks; zsh writes the word in lower case, after job and process.
_KILLED_LINE = re.compile(
    r"^(?:(?:[^\n]{0,100}:)?[ \t]*(?:\[\d{1,4}\][+-]?\s+)?(?:\d{1,10}\s+)?Killed(?:[ \t]{2,}\S[^\n]*|"
    r"[ \t]+\S*python[^\n]*)?"
    r"|[ \t]*\[\d{1,4}\]\s*[+-]?\s*\d{1,10}\s+killed\s[^\n]*"
    r"|[ \t]*zsh:\s+killed\s[^\n]*)[ \t]*$",
    re.MULTILINE,
)
_SIGNAL = re.compile(
    r"Signal\s*(?P<number>\d{1,3})\s*\((?P<name>SIG[A-Z]{2,6})\)(?:\s*received\s*by\s*PID\s*(?P<pid>"
    r"\d{1,10}))?",
    re.IGNORECASE,
)
_DIED = re.compile(r"<Signals\.(?P<name>SIG[A-Z]{2,6}):\s*(?P<number>\d{1,3})>")
_SPAWNED = re.compile(
    r"process\s*(?P<rank>\d{1,6})\s*terminated\s*with\s*(?:signal\s*(?P<name>SIG[A-Z]{2,6})|exit\s*code\s*"
    r"(?P<code>-?\d{1,5}))"
)
_BY = re.compile(
    r"terminated\s*by\s*signal\s*(?P<name>SIG[A-Z]{2,6})|exited\s*on\s*signal\s*(?P<number>\d{1,3})\s*\("
)
_CHILD = re.compile(  # Lightning's watcher
    r"(?:\[rank:\s*(?P<rank>\d{1,6})\]\s*)?Child\s*process\s*with\s*PID\s*(?P<pid>\d{1,10})\s*terminated\s*with"
    r"\s*code\s*(?P<code>-?\d{1,10})"
)
_GOT = re.compile(r"Process\s*(?P<pid>\d{1,10})\s*got\s*signal:\s*(?P<number>\d{1,3})")
_CPU_MEMORY = re.compile(r"CPU\s+memory\s+usage:\s*(\d{1,9}(?:\.\d{1,3})?)\s*MB", re.IGNORECASE)
_GPU_MEMORY = re.compile(r"GPU\s+memory\s+usage:\s*(\d{1,9}(?:\.\d{1,3})?)\s*MB", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ended:
    """How the first process to fail ended; None is what the text does not say."""

    exitcode: int | None
    signal: str | None
    rank: int | None
    local_rank: int | None
    pid: int | None

    @property
    def number(self) -> int | None:
        """The number of the signal; None for an exit by the program itself."""
        if self.signal is not None:
            return _NUMBERS.get(self.signal)
        code = self.exitcode
        if code in _WINDOWS_CRASHES:
            return _WINDOWS_CRASHES[code]
        if code is not None and code < 0:
            return -code
        return code - 128 if code is not None and code in (134, 135, 137, 139, 143) else None


def ended(paste: Paste) -> Ended:
    """Who failed first, from torchrun's block, its log line, or multiprocessing's exception."""
    found = _ended(paste.text)
    # Where a terminal broke a word or a number, only the text without blanks has it whole.
    return _ended(paste.squeezed) if found.exitcode is None and found.signal is None else found


def _ended(text: str) -> Ended:
    if first := first_failure(text):
        # Other processes of the report have other signals: only this one's code counts.
        return Ended(first.exitcode, _NAMES.get(-first.exitcode), first.rank, first.local_rank, first.pid)
    cause = max(text.find("Root Cause"), text.find("RootCause"))
    others = [pattern.search(text) for pattern in (_GOT, _DIED, _SPAWNED, _BY, _CHILD)]
    sent = _SIGNAL.search(text, max(cause, 0)) or _SIGNAL.search(text)
    code = _CODE.search(text)
    found: dict[str, str] = {}
    for match in (*others, sent, code):
        for name, value in (match.groupdict() if match else {}).items():
            if value is not None:
                found.setdefault(name, value)
    numbers = {name: int(value) for name, value in found.items() if name != "name"}
    exitcode = numbers.get("code")
    signal = found.get("name") or _NAMES.get(numbers.get("number", -(exitcode or 0)))
    return Ended(exitcode, signal.upper() if signal else None, numbers.get("rank"), None, numbers.get("pid"))


def _child(around: Around) -> Told:
    end = ended(around.paste)
    cpu, gpu = _CPU_MEMORY.findall(around.paste.body), _GPU_MEMORY.findall(around.paste.body)
    figures: dict[str, Any] = {
        "exitcode": end.exitcode,
        "signal": end.signal,
        "rank": end.rank,
        "local_rank": end.local_rank,
        "pid": end.pid,
        "step": last_step(around.paste, around.offset),
        "epoch": last_epoch(around.paste),
        "cpu_memory_mb": float(cpu[-1]) if cpu else None,
        "gpu_memory_mb": float(gpu[-1]) if gpu else None,
    }
    make = BY_SIGNAL.get(end.number or 0)
    if make is not None:
        return Told(make(around, figures), figures)
    own = own_errors(around.paste)
    figures["raised"] = str(own[0]) if own else None
    if not own and end.exitcode is not None and end.exitcode in _CALLED_EXIT:
        return Told(_ended_itself(figures), figures)
    lost = {error.rank for error in raised(around.paste) if error.secondary == "lost"} - {None}
    if not own and end.rank is not None and lost:
        if end.rank not in lost:
            return Told(_ended_itself(figures), figures)
        if all(f.rank in lost or f.exitcode == -_NUMBERS["SIGTERM"] for f in failures(around.paste.text)):
            return Told(peer_ended_well(figures), figures)
    return Told(_rank_failed(figures), figures)


def _who(figures: dict[str, Any]) -> str:
    if figures["rank"] is not None:
        return f"Rank {figures['rank']}"
    return "One process" if figures["local_rank"] is None else f"Local rank {figures['local_rank']}"


def _ended_itself(figures: dict[str, Any]) -> Finding:
    who, code = _who(figures), figures["exitcode"]
    why = ""
    if code in _CALLED_EXIT:
        why = f" An exception that nobody catches ends Python with code 1, so {code} was asked for."
    if code == _ABORT_ON_WINDOWS:
        why += " On Windows, abort() in compiled code gives that number too."
    return fault(
        "torchrun.rank_ended_itself",
        f"{who} ended with exit code {code}, and printed no exception",
        "The launcher saw that process fail first; those that lost the connection only followed. A "
        f"program that calls sys.exit({code}) or os._exit({code}), or a library that does, prints no "
        f"traceback.{why}",
        (
            f"Look at what {who[0].lower()}{who[1:]} printed last, and search the script for sys.exit, "
            "exit( and os._exit.",
            "Start with torchrun --log-dir logs --tee 3, so that each rank's output is kept.",
        ),
        ("Debugging the ranks that lost the connection.", "NCCL settings."),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _rank_failed(figures: dict[str, Any]) -> Finding:
    who = _who(figures)
    code = figures["exitcode"]
    usage = " Exit code 2 is most often a wrong argument on the command line." if code == 2 else ""
    return fault(
        "torchrun.rank_failed_error_above",
        f"{who} failed; its own error is not in this text",
        "torchrun reports that a process ended with exit code "
        f"{code if code is not None else '(not given)'}, and its traceback is the launcher's. The cause "
        f"was printed by the process itself, earlier.{usage}",
        (
            "Scroll up to the first Traceback of that rank, and paste it too; torchrun --log-dir logs "
            "--tee 3 keeps each rank's output, and @record "
            "(torch.distributed.elastic.multiprocessing.errors) puts the error into the report.",
        ),
        ("Looking for the fault in torchrun's traceback.",),
        certainty="possible",
        evidence=evidence_of(figures),
    )


def _killed_line(around: Around) -> Told | None:
    """The shell's own word, on a line of its own; the word inside a sentence means nothing."""
    return _told_killed(around) if _KILLED_LINE.search(around.paste.body) else None


def _told_killed(around: Around) -> Told:
    figures = {"signal": "SIGKILL", "exitcode": None, "epoch": last_epoch(around.paste)}
    figures |= {"cpu_memory_mb": None, "gpu_memory_mb": None}
    return Told(BY_SIGNAL[9](around, figures), figures)


def _segmentation_fault(around: Around) -> Told:
    figures = {"signal": "SIGSEGV"}
    return Told(BY_SIGNAL[11](around, figures), figures)


def _bus_error(around: Around) -> Told:
    figures = {"signal": "SIGBUS"}
    return Told(BY_SIGNAL[7](around, figures), figures)


WORDINGS = (
    wording("Bus error (core dumped)", _bus_error),
    wording(
        (
            "session crashed after using all available RAM",
            "tried to allocate more memory than is available. It has restarted",
            "Exceeded job memory limit",
        ),
        _told_killed,
    ),
    wording(
        ("Segmentation fault (core dumped)", "Fatal Python error: Segmentation fault"), _segmentation_fault
    ),
    wording("Killed", _killed_line),
    wording(
        (
            "ChildFailedError",
            "failed (exitcode:",
            "exitcode  :",
            "died with <Signals.",
            ") received by PID",
            "terminated with signal SIG",
            "terminated by signal SIG",
            "exited on signal",
            "terminated with the following error",
            "terminated with exit code",
            "terminated with code",
            "SignalException",
            "Root Cause (first observed failure)",
            "returned non-zero exit status",
            "ProcessExitedException",
            "exit code 137",
            "exit code -9",
            "exit status 137",
            "exitcode: -",
            "exits with return code",
            "(0xC0000005)",
            "(0xC0000409)",
        ),
        _child,
    ),
)
