"""Which exceptions stand in a paste, on which rank, and which did a rank raise of its own?

Ranks print at the same time, so their tracebacks are interleaved. Each line is given to its printer by what
stands before it ("[rank1]:", "[default1]:", "1:" of srun, "(worker pid=7)" of ray); then each printer's
tracebacks are read on their own. Exceptions that were raised while another was handled are one chain: what
counts is the first of it that the learner's own code raised.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from course_lib.diagnose.faults.lost_peer import says_lost, says_waited
from course_lib.diagnose.paste import Paste

_LONGEST_LINE = 4_000
_HEADER = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
# Outside of tracebacks no other line matters; most of a long log is skipped.
_MATTERS = re.compile(
    r"Traceback|Error|Exception|Interrupt|Exit|Timeout|Iteration|above exception|failed: |rank\s*:"
    r"|traceback :|-- Process"
)
_NOT_THE_END = ("Exception ignored in", "Exception in thread")  # no rank ends by these
_CLOSE = 3  # lines from such words to the traceback that they speak of
_FRAME = re.compile(r'\s*File "(?P<path>[^"\n]{1,400})", line (?P<line>\d{1,7})(?:, in (?P<name>\S{1,120}))?')
_ENDS_A_NAME = r"(?:Error|Exception|Interrupt|Exit|Timeout|Iteration)"
_RAISED = re.compile(
    r"(?P<name>[A-Za-z_][\w.<>]{0,120}?)\s*(?::\s?(?P<text>.{0,2000}))?$",
)
_ALONE = re.compile(
    rf"^(?P<lead>[^\n]{{0,60}}?)\b(?P<name>[A-Za-z_][\w.]{{0,80}}{_ENDS_A_NAME})\s*:\s?(?P<text>.{{0,2000}})$"
)
_ITS_RANK = re.compile(r"^(?P<label>.{0,80}?\[rank(?P<rank>\d{1,6})\]:)")
_LABELS = (
    (re.compile(r"\[rank ?(\d{1,6})\]"), "Rank"),
    (re.compile(r"\[default(\d{1,6})\]"), "Local rank"),
    (re.compile(r"(?:^|\s)(\d{1,5}):$"), "Task"),
    (re.compile(r"\[\d{1,5},(\d{1,6})\]<std"), "Task"),
    (re.compile(r"\bpid=(\d{1,10})"), "Process"),
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")
_REPORTED_RANK = re.compile(r"^\s*rank\s*:\s*(?P<rank>\d{1,6})\s*\(local_rank")
_SPAWNED_RANK = re.compile(r"-- Process (?P<rank>\d{1,6}) terminated with the following error")
# What the course's own launch says of a rank, in its error or its table.
_LAUNCHED = re.compile(
    r"\bRank (?P<rank>\d{1,6}) failed: (?P<name>[A-Za-z_][\w.]{0,120})(?:: (?P<text>.{0,2000}?))?"
    r"(?: \((?P<where>[^()\n]{1,200}, line \d{1,7}(?:, in [^()\n]{1,120})?)\))?"
    r"(?:\.(?: Ranks? [\d, ]{1,200} ended as a consequence\.)?)?$"
)
_WRAPPED = re.compile(r"Caught [\w.]{2,80} in (?:DataLoader worker process|replica|pin memory thread)")
LAUNCHERS = (
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
    "LaunchError",
)
"""Exceptions of launchers: they only pass on that a process has failed."""
_ENDED_BY_OTHERS = ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "Empty", "Full")
_OF_CONNECTIONS = (
    "ConnectionResetError",
    "ConnectionAbortedError",
    "ConnectionRefusedError",
    "BrokenPipeError",
    "EOFError",
)
_MAY_TELL_OF_OTHERS = ("RuntimeError", "TimeoutError", "OSError", "Exception", "ValueError")


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a paste.

    ``who`` names its printer as a person would ("Rank 1", "Task 1"), "" where nothing does; ``where`` is the
    innermost line of its traceback that is not a library's ("train.py, line 8, in load"), "" without one.
    ``secondary`` exceptions only say that another process is gone ("lost") or did not come ("waited").
    """

    name: str
    text: str
    who: str
    rank: int | None
    where: str
    line: int
    time: str
    secondary: str = ""

    def __str__(self) -> str:
        short = self.name.rpartition("__main__.")[2]
        return f"{short}: {self.text}"[:300] if self.text else short


_READ: WeakKeyDictionary[Paste, tuple[Raised, ...]] = WeakKeyDictionary()


def raised(paste: Paste) -> tuple[Raised, ...]:
    """The exceptions that may have ended a rank, launchers' left out, in the order of the text."""
    if paste not in _READ:  # several findings ask
        found = [error for chain in _chains(paste) if (error := _counts(chain)) is not None]
        _READ[paste] = tuple(sorted(found, key=lambda error: error.line))
    return _READ[paste]


def own(paste: Paste, first: int | None = None, first_local: int | None = None) -> list[Raised]:
    """What ranks raised of their own, the likeliest cause first: of the rank named, else the earliest."""
    errors = [error for error in raised(paste) if not error.secondary]
    timed = all(error.time for error in errors)
    names = (f"Rank {first}", f"Local rank {first_local}")
    return sorted(errors, key=lambda e: (e.who not in names, e.time if timed else "", e.line))


@dataclass
class _Printer:
    """What has been read of one printer: the open traceback, and the chain that it may belong to."""

    label: str
    chain: list[Raised] = field(default_factory=list)
    joins: bool = False  # the next traceback belongs to the chain
    open: bool = False
    indent: int = 0
    where: str = ""
    mixed: bool = False
    after_code: bool = False
    tentative: bool = False  # the last exception may have been somebody else's line
    ignored: bool = False
    ignored_from: int = -_CLOSE
    rank: int | None = None
    rank_of_traceback: int | None = None

    def feed(self, number: int, text: str, time: str) -> list[Raised]:
        """Read one line; the chain that it shows to be over, if any."""
        if _HEADER in text:
            return self._opened(number, text)
        stripped = text.strip()
        if not stripped:
            return []
        deeper = len(text) - len(text.lstrip()) > self.indent
        if self.tentative and ((deeper and number == self.chain[-1].line + 1) or _FRAME.match(text)):
            self.chain.pop()  # the traceback goes on
            self.open, self.tentative = True, False
        after_code, self.after_code = self.after_code, deeper
        if not self.open:
            return self._outside(number, text, time)
        if frame := _FRAME.match(text):
            if _is_own(frame["path"]):
                name = f", in {frame['name']}" if frame["name"] and frame["name"] != "<module>" else ""
                file = frame["path"].replace("\\", "/").rpartition("/")[2]
                self.where = f"{file}, line {frame['line']}{name}"
        elif not deeper:  # else it is a line of code, or the marks below it
            self._closed(number, stripped, time, after_code)
        return []

    def _opened(self, number: int, text: str) -> list[Raised]:
        over: list[Raised] = []
        if self.chain and not self.joins and not _WRAPPED.search(self.chain[-1].text):
            over, self.chain = self.chain, []
        self.mixed = self.open  # two printers without names: whose lines follow is not known
        self.open, self.joins, self.tentative, self.where = True, False, False, ""
        self.indent = len(text) - len(text.lstrip())
        self.ignored = number - self.ignored_from <= _CLOSE
        self.rank_of_traceback, self.rank = self.rank, None
        return over

    def _outside(self, number: int, text: str, time: str) -> list[Raised]:
        over: list[Raised] = []
        if any(words in text for words in _CHAINED):
            self.joins = bool(self.chain)
        elif any(words in text for words in _NOT_THE_END):
            self.ignored_from = number
        elif text.lstrip().startswith("traceback :"):
            self.rank = None  # the report of that rank has none
        elif match := _REPORTED_RANK.match(text) or _SPAWNED_RANK.search(text):
            self.rank = int(match["rank"])
        elif match := _LAUNCHED.search(text.rstrip()):
            over, self.tentative = self.chain, False
            self.chain = [_launched(match, number, time)]
        elif (match := _ALONE.match(text)) and _is_raised(match):
            over, self.rank_of_traceback, self.tentative = self.chain, None, False
            self.chain = [_made(self, match, number, time, "")]
        return over

    def _closed(self, number: int, stripped: str, time: str, after_code: bool) -> None:
        match = _RAISED.match(stripped)
        last = match["name"].rpartition(".")[2] if match else ""
        known = re.search(_ENDS_A_NAME + "$", last)
        if match is None or not (known or (after_code and last[:1].isupper())):
            return  # somebody else's line in between
        self.open = False
        if not self.ignored:
            self.tentative = not known
            self.chain.append(_made(self, match, number, time, "" if self.mixed else self.where))


def _chains(paste: Paste) -> Iterator[list[Raised]]:
    printers: dict[str, _Printer] = {}
    unfinished: set[str] = set()
    for number, (margin, whole_line) in enumerate(paste.labelled_lines, start=1):
        line = whole_line[:_LONGEST_LINE]
        if not unfinished and not _MATTERS.search(line):
            continue
        its = _ITS_RANK.match(line)  # after the name of a host, which no launcher's pattern knows
        label = margin + its["label"] if its else margin
        text = line[its.end() :].removeprefix(" ") if its else line
        time = _TIME.search(label)
        key = _TIME.sub("", label).strip()
        printer = printers.setdefault(key, _Printer(key))
        if over := printer.feed(number, text, time[0] if time else ""):
            yield over
        (unfinished.add if printer.open or printer.tentative else unfinished.discard)(key)
    yield from (printer.chain for printer in printers.values() if printer.chain)


def _is_raised(match: re.Match[str]) -> bool:
    """Whether a line outside of tracebacks tells of an exception: no code, and no name of NCCL's own."""
    code = "except " in match["lead"] or "raise " in match["lead"]
    return not code and bool(match["text"].strip()) and not match["name"].startswith("nccl")


def _made(printer: _Printer, match: re.Match[str], number: int, time: str, where: str) -> Raised:
    who, rank = "", printer.rank_of_traceback
    for pattern, title in _LABELS:
        if found := pattern.findall(printer.label):
            who = f"{title} {found[-1]}"
            rank = int(found[-1]) if title == "Rank" else None
            break
    else:
        who = "" if rank is None else f"Rank {rank}"
    text = (match["text"] or "").strip()
    if told := _LAUNCHED.match(text):
        return _launched(told, number, time)
    return Raised(match["name"], text, who, rank, where, number, time)


def _launched(match: re.Match[str], number: int, time: str) -> Raised:
    rank = int(match["rank"])
    where, text = match["where"] or "", (match["text"] or "").strip()
    return Raised(match["name"], text, f"Rank {rank}", rank, where, number, time)


def _is_own(path: str) -> bool:
    plain = path.replace("\\", "/")
    return not (
        re.search(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|/Python3\d+/Lib/", plain, re.IGNORECASE)
        or plain.startswith("<")
        or plain.endswith(("/bin/torchrun", "/bin/accelerate", "train/ranks/launch_rank.py"))
    )


def _counts(chain: list[Raised]) -> Raised | None:
    """The one of a chain that tells the cause; None where a launcher, or a signal, ended it."""
    chain = [error for error in chain if not _WRAPPED.search(error.text)] or chain
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
