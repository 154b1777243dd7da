"""What does each printer of a paste raise? Its tracebacks, line by line, chained ones together.

Ranks print at the same time, so their tracebacks are interleaved. Each line is given to its printer by what
stands before it ("[rank1]:", "[default1]:", "1:" of srun, "(worker pid=7)" of ray); then each printer's
tracebacks are read on their own. Tracebacks without their first lines, or without their last one, are read as
far as they go.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from course_lib.diagnose.faults.traceback_styles import HEADER, plain_lines
from course_lib.diagnose.paste import Paste

_CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
# Outside of tracebacks no other line matters; most of a long log is skipped.
_MATTERS = re.compile(
    r"Traceback|Error|Exception|Interrupt|Exit|Timeout|Iteration|above exception|failed: |rank\s*:"
    r"|traceback :|-- Process|File \""
)
_IN_A_THREAD = "Exception in thread"
_NOT_THE_END = ("Exception ignored in", _IN_A_THREAD)  # no rank ends by these
_CLOSE = 3  # lines from such words to the traceback that they speak of
_FRAME = re.compile(r'\s*File "(?P<path>[^"\n]{1,400})", line (?P<line>\d{1,7})(?:, in (?P<name>\S{1,120}))?')
_ENDS_A_NAME = r"(?:Error|Exception|Interrupt|Exit|Timeout|Iteration)"
_RAISED = re.compile(
    r"(?P<name>[A-Za-z_][\w.<>]{0,120}?)\s*(?::\s?(?P<text>.{0,2000}))?$",
)
_ALONE = re.compile(
    rf"^(?P<lead>[^\n]{{0,60}}?)\b(?P<name>[A-Za-z_][\w.]{{0,80}}{_ENDS_A_NAME})\s*:\s?(?P<text>.{{0,2000}})$"
)
_LOG_LEAD = re.compile(r"^\s*$|ERROR|CRITICAL|FATAL|\d\d:\d\d:\d\d")
_ITS_RANK = re.compile(r"^(?P<label>.{0,80}?\[rank(?P<rank>\d{1,6})\]:)")
_LABELS = (
    (re.compile(r"\[rank ?(\d{1,6})\]"), "Rank"),
    (re.compile(r"\[default(\d{1,6})\]"), "Local rank"),
    (re.compile(r"(?:^|\s)(\d{1,5}):$"), "Task"),
    (re.compile(r"\[\d{1,5},(\d{1,6})\]<std"), "Task"),
    (re.compile(r"\bpid=(\d{1,10})"), "Process"),
)
_LIBRARY = re.compile(
    r"(?:^|/)(?:site|dist)-packages/|/lib/python3[^/]*/|/Python3\d+/Lib/|/frameworks/python\.framework/"
    # conda on Windows keeps Python's own modules in "lib" itself
    r"|/lib/(?:multiprocessing|concurrent|asyncio|importlib|(?:runpy|threading|queue|selectors|subprocess)\.py)"
    r"|/torch/(?:nn|cuda|utils|distributed|autograd|optim|serialization|multiprocessing|_\w{1,40})[/.]"
    r"|/(?:bin|scripts)/(?:torchrun|accelerate|deepspeed)(?:[-.]|$)",
    re.IGNORECASE,
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
WRAPPED = re.compile(r"Caught [\w.]{2,80} in (?:DataLoader worker process|replica|pin memory thread)")
"""A worker's error that is raised again: its own traceback stands in the text of this one."""


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a paste.

    ``who`` names its printer as a person would ("Rank 1", "Task 1"), "" where nothing does; ``where`` is the
    innermost line of its traceback that is not a library's ("train.py, line 8, in load"), "" without one.
    ``secondary`` exceptions only say that another process is gone ("lost") or did not come ("waited").
    ``in_a_sentence``: no traceback stands before it, and other words do on its line.
    """

    name: str
    text: str
    who: str
    rank: int | None
    where: str
    line: int
    time: str
    secondary: str = ""
    in_a_sentence: bool = False

    def __str__(self) -> str:
        short = self.name.rpartition("__main__.")[2]
        return f"{short}: {self.text}"[:300] if self.text else short


@dataclass(frozen=True, slots=True)
class Place:
    """Where a traceback stood: ``where`` as in Raised, ``inner`` the innermost function of all."""

    where: str
    inner: str
    line: int


@dataclass
class Printer:
    """What has been read of one printer: the open traceback, and the chain that it may belong to."""

    label: str
    chain: list[Raised] = field(default_factory=list)
    joins: bool = False  # the next traceback belongs to the chain
    open: bool = False
    indent: int = 0
    where: str = ""
    inner: str = ""
    last_frame: int = 0
    mixed: bool = False
    after_code: bool = False
    tentative: bool = False  # the last exception may have been somebody else's line
    ignored: bool = False
    ignored_from: int = -_CLOSE
    in_a_thread: bool = False
    of_threads: list[Raised] = field(default_factory=list)
    rank: int | None = None
    rank_of_traceback: int | None = None

    def feed(self, number: int, text: str, time: str) -> list[Raised]:
        """Read one line; the chain that it shows to be over, if any."""
        if HEADER in text:
            return self._opened(number, text)
        stripped = text.strip()
        if not stripped:
            return []
        deeper = len(text) - len(text.lstrip()) > self.indent
        if self.tentative and ((deeper and number == self.chain[-1].line + 1) or _FRAME.match(text)):
            self.chain.pop()  # the traceback goes on
            self.open, self.tentative = True, False
        after_code, self.after_code = self.after_code, deeper
        over: list[Raised] = []
        frame = _FRAME.match(text)
        if not self.open:
            if frame is None or not frame["name"]:
                return self._outside(number, text, time)
            over = self._opened_without_header(number, text)
        if frame:
            self._stood(number, frame)
        elif not deeper:  # else it is a line of code, or the marks below it
            self._closed(number, stripped, time, after_code)
        return over

    @property
    def place(self) -> Place:
        """Where the open traceback stands."""
        return Place("" if self.mixed else self.where, self.inner, self.last_frame)

    def _stood(self, number: int, frame: re.Match[str]) -> None:
        named = frame["name"] if frame["name"] and frame["name"] != "<module>" else ""
        file = frame["path"].replace("\\", "/").rpartition("/")[2]
        self.last_frame, self.inner = number, f"{file}, in {named}" if named else file
        if _is_own(frame["path"]):
            self.where = f"{file}, line {frame['line']}" + (f", in {named}" if named else "")

    def _opened_without_header(self, number: int, text: str) -> list[Raised]:
        """A frame outside of a traceback: its first lines were not pasted, or stand elsewhere."""
        # Just after a traceback of two printers it may be the rest of either.
        mixed = self.mixed and bool(self.chain) and number - self.chain[-1].line <= _CLOSE
        over = self._opened(number, text)
        self.mixed, self.indent = mixed, max(self.indent - 2, 0)
        return over

    def _opened(self, number: int, text: str) -> list[Raised]:
        over: list[Raised] = []
        if self.chain and not self.joins and not WRAPPED.search(self.chain[-1].text):
            over, self.chain = self.chain, []
        self.mixed = self.open  # two printers without names: whose lines follow is not known
        self.open, self.joins, self.tentative, self.where, self.inner = True, False, False, "", ""
        self.indent = len(text) - len(text.lstrip())
        self.ignored = number - self.ignored_from <= _CLOSE
        self.rank_of_traceback, self.rank = self.rank, None
        return over

    def _outside(self, number: int, text: str, time: str) -> list[Raised]:
        over: list[Raised] = []
        if any(words in text for words in _CHAINED):
            self.joins = bool(self.chain)
        elif any(words in text for words in _NOT_THE_END):
            self.ignored_from, self.in_a_thread = number, _IN_A_THREAD in text
        elif text.lstrip().startswith("traceback :"):
            self.rank = None  # the report of that rank has none
        elif match := _REPORTED_RANK.match(text) or _SPAWNED_RANK.search(text):
            self.rank = int(match["rank"])
        elif match := _LAUNCHED.search(text.rstrip()):
            over, self.tentative = self.chain, False
            self.chain = [_launched(match, number, time)]
        elif (match := _ALONE.match(text)) and _is_raised(match):
            over, self.rank_of_traceback, self.tentative = self.chain, None, False
            error = _made(self, match, number, time, "")
            self.chain = [replace(error, in_a_sentence=not _LOG_LEAD.search(match["lead"]))]
        return over

    def _closed(self, number: int, stripped: str, time: str, after_code: bool) -> None:
        match = _RAISED.match(stripped)
        last = match["name"].rpartition(".")[2] if match else ""
        known = re.search(_ENDS_A_NAME + "$", last)
        if match is None or not (known or (after_code and last[:1].isupper())):
            return  # somebody else's line in between
        self.open = False
        error = _made(self, match, number, time, "" if self.mixed else self.where)
        if not self.ignored:
            self.tentative = not known
            self.chain.append(error)
        elif self.in_a_thread:
            self.of_threads.append(error)


def chains(paste: Paste, printers: dict[str, Printer]) -> Iterator[list[Raised]]:
    """The chained exceptions of all printers; ``printers`` is filled, by what stands before their lines."""
    unfinished: set[str] = set()
    for number, (margin, line) in enumerate(plain_lines(paste), start=1):
        if not unfinished and not _MATTERS.search(line):
            continue
        its = _ITS_RANK.match(line)  # after the name of a host, which no launcher's pattern knows
        label = margin + its["label"] if its else margin
        text = line[its.end() :].removeprefix(" ") if its else line
        time = _TIME.search(label)
        key = _TIME.sub("", label).strip()
        printer = printers.setdefault(key, Printer(key))
        if over := printer.feed(number, text, time[0] if time else ""):
            yield over
        (unfinished.add if printer.open or printer.tentative else unfinished.discard)(key)
    yield from (printer.chain for printer in printers.values() if printer.chain)


def _is_raised(match: re.Match[str]) -> bool:
    """Whether a line outside of tracebacks tells of an exception: no code, and no name of NCCL's own."""
    code = "except " in match["lead"] or "raise " in match["lead"]
    return not code and bool(match["text"].strip()) and not match["name"].startswith("nccl")


def _made(printer: Printer, match: re.Match[str], number: int, time: str, where: str) -> Raised:
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
        _LIBRARY.search(plain)
        or (plain.startswith("<") and plain != "<stdin>")
        or plain.endswith("train/ranks/launch_rank.py")
    )
