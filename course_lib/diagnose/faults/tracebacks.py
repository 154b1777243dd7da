"""Which exceptions stand in a paste, on which rank, and which did a rank raise of its own?

Exceptions that were raised while another was handled are one chain: what counts is the first of it that the
learner's own code raised. traceback_reader.py reads the lines.
"""

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from course_lib.diagnose.faults.lost_peer import says_lost, says_waited
from course_lib.diagnose.faults.traceback_reader import WRAPPED, Place, Printer, Raised, chains
from course_lib.diagnose.paste import Paste

_INTERRUPT = "KeyboardInterrupt"
LAUNCHERS = (
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
    "LaunchError",
)
"""Exceptions of launchers: they only pass on that a process has failed."""
_ENDED_BY_OTHERS = (
    _INTERRUPT,
    "SystemExit",
    "GeneratorExit",
    "Empty",
    "Full",
    "ExceptionGroup",  # its parts have tracebacks of their own
    "BaseExceptionGroup",
)
_OF_CONNECTIONS = (
    "ConnectionResetError",
    "ConnectionAbortedError",
    "ConnectionRefusedError",
    "BrokenPipeError",
    "EOFError",
)
_MAY_TELL_OF_OTHERS = ("RuntimeError", "TimeoutError", "OSError", "Exception", "ValueError")


@dataclass(frozen=True, slots=True)
class _Read:
    """All that was read of one paste."""

    errors: tuple[Raised, ...]
    cut_off: tuple[Place, ...]
    interrupted: tuple[Raised, ...]
    of_threads: tuple[Raised, ...]


_READ: WeakKeyDictionary[Paste, _Read] = WeakKeyDictionary()


def raised(paste: Paste) -> tuple[Raised, ...]:
    """The exceptions that may have ended a rank, launchers' left out, in the order of the text."""
    return _read(paste).errors


def cut_off(paste: Paste) -> tuple[Place, ...]:
    """Where the tracebacks stood whose last line, which names the error, is not in the text."""
    return _read(paste).cut_off


def interrupted(paste: Paste) -> tuple[Raised, ...]:
    """The KeyboardInterrupts that ended a traceback, in the order of the text."""
    return _read(paste).interrupted


def of_threads(paste: Paste) -> tuple[Raised, ...]:
    """The exceptions that ended a thread, and no process."""
    return _read(paste).of_threads


def _read(paste: Paste) -> _Read:
    if paste not in _READ:  # several findings ask
        printers: dict[str, Printer] = {}
        found_chains = list(chains(paste, printers))
        found = [error for chain in found_chains if (error := _counts(chain)) is not None]
        _READ[paste] = _Read(
            tuple(sorted(found, key=lambda error: error.line)),
            tuple(p.place for p in printers.values() if p.open and not p.ignored and p.place.inner),
            tuple(c[-1] for c in found_chains if c[-1].name == _INTERRUPT and not c[-1].in_a_sentence),
            tuple(error for p in printers.values() for error in p.of_threads),
        )
    return _READ[paste]


def own(paste: Paste, first: int | None = None, first_local: int | None = None) -> list[Raised]:
    """What ranks raised of their own, the likeliest cause first: of the rank named, else the earliest."""
    errors = [error for error in raised(paste) if not error.secondary]
    timed = all(error.time for error in errors)
    names = (f"Rank {first}", f"Local rank {first_local}")
    return sorted(errors, key=lambda e: (e.who not in names, e.time if timed else "", e.line))


def _counts(chain: list[Raised]) -> Raised | None:
    """The one of a chain that tells the cause; None where a launcher, or a signal, ended it."""
    chain = [error for error in chain if not WRAPPED.search(error.text)] or chain
    last = chain[-1].name.rpartition(".")[2]
    # All that there is of a name which a terminal broke is its end.
    launcher = any(name.endswith(last) for name in LAUNCHERS)
    if launcher and last == "CalledProcessError" and chain[-1].who and chain[-1].where:
        launcher = False  # a rank's own script called another program
    if launcher or last in _ENDED_BY_OTHERS:
        return None
    for error in chain:
        if kind := _secondary(error):
            own_before = [e for e in chain if e.line < error.line and e.where]
            return own_before[0] if own_before else replace(error, secondary=kind)
    return next((error for error in chain if error.where), chain[-1])


def _secondary(error: Raised) -> str:
    last = error.name.rpartition(".")[2]
    if last.startswith(("Dist", "Rendezvous")) or last in _OF_CONNECTIONS:
        return "waited" if says_waited(error.text) else "lost"
    if last in _MAY_TELL_OF_OTHERS:
        return "lost" if says_lost(error.text) else "waited" if says_waited(error.text) else ""
    return ""
