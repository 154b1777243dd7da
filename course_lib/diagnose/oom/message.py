"""Which figures stand in a caching allocator's out-of-memory message?

The allocators of CUDA, HIP, XPU and their relatives share one sentence that has changed with the years:

- 1.0 to 1.3: ``(GPU 0; 10.76 GiB total capacity; ... already allocated; ... free; ... cached)``, where
  "cached" is what is held but unused;
- 1.4 to 2.0: ``... reserved in total by PyTorch)``, from 1.10 with a hint about max_split_size_mb, and with
  ``... allowed;`` where the process has a limit;
- 2.1 and later: whole sentences, other processes by number, "reserved but unallocated", private pools;
- with ``backend:cudaMallocAsync``: a list (``Currently allocated``, ``Requested``, ``Device limit``), in
  which nothing says what the allocator holds unused.

All are read here, broken by a terminal or not, also without the first words. A clause that is not there
leaves None.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.size import SIZE, PrintedSize

# All patterns are for the squeezed text: no blanks.
_DEVICE = r"(?:GPU|NPU|XPU|MLU|MUSA|DCU|device)"
_ANCHOR = re.compile(
    r"(?P<backend>CUDA|HIP|XPU|NPU|MLU|MUSA)outofmemory[.:!]*Triedtoallocate"
    r"|(?:Currentplatformcannot)?allocatememoryblockwithsizelargerthan(?P<block_limit>\d{1,3}[KMGT]B)!?Triedtoallocate"
    r"|Allocationondevice(?P<device>\d{0,4})wouldexceedallowedmemory\.?\(outofmemory\)"
    # the first words are not in the text
    rf"|Triedtoallocate(?={SIZE}[.(]{{0,2}}{_DEVICE}\d{{1,4}}(?:;|hasatotalcapac))",
    re.IGNORECASE,
)
_BACKEND_OF_SETTING = re.compile(r"PYTORCH_(HIP|NPU|MLU|MUSA)_ALLOC_CONF", re.IGNORECASE)
_SAID_WITHIN = 1_500
_TRIED = re.compile(SIZE)
_ABSURD = re.compile(r"morethan1EB", re.IGNORECASE)
_CLAUSES = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "gpu": rf"{_DEVICE}(\d{{1,4}})(?=;|hasatotalcapac)",
        "tried_to_allocate": rf"Requested:{SIZE}",
        "total_capacity": rf"hasatotalcapaci?tyof{SIZE}|(?<=;){SIZE}totalcapacity|Devicelimit:{SIZE}",
        "free": rf"ofwhich{SIZE}isfree|(?<=;){SIZE}free|Free\(accordingtoCUDA\):{SIZE}",
        "allocated": rf"Oftheallocatedmemory{SIZE}isallocatedbyPyTorch|(?<=;){SIZE}alreadyallocated"
        rf"|Currentlyallocated:{SIZE}",
        "cached_unused": rf"(?<=;){SIZE}cached",
        "reserved_total": rf"(?<=;){SIZE}reservedintotal(?:byPyTorch)?",
        "reserved_unallocated": rf"{SIZE}isreservedbyPyTorchbutunallocated",
        "process_in_use": rf"thisprocesshas{SIZE}memoryinuse",
        "other_process": rf"Process(\d{{1,10}})has{SIZE}memoryinuse",
        "allowed": rf"{SIZE}allowed;|memoryfraction\):{SIZE}",
        "private_pools": rf"with{SIZE}allocatedinprivatepools",
        "hint": r"Ifreserved(?:butunallocated)?memoryis",
    }.items()
}
_COMMENTED = re.compile(r"^[ \t]{0,40}#{1,3}(?=[ \t])", re.MULTILINE)
_GAP = 160  # a clause may stand this far behind the one before, e.g. after words that somebody has put in
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception))\s*:\s*$")
_RANK = re.compile(r"\[rank(\d{1,5})\]")
_NOT_REPORTED_MIB = 2.0**43  # WSL and containers print 2**64 bytes for a process they cannot see


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """Another process on the card, as the message names it."""

    pid: int
    in_use: PrintedSize


@dataclass(frozen=True, slots=True)
class AllocatorMessage:
    """The figures of one message. Sizes are None where the message does not give them.

    ``reserved_total`` holds all that PyTorch has taken from the card, ``reserved_unallocated`` (until 1.3
    ``cached_unused``) the part of it that is not in use. ``process_in_use`` counts this process with
    everything outside PyTorch. ``block_limit`` is the largest size in one piece, where the message names it.
    ``times`` says how often the same message stands in the text.
    """

    backend: str
    exception: str | None = None
    rank: int | None = None
    gpu_index: int | None = None
    tried_to_allocate: PrintedSize | None = None
    tried_lower_bound: str | None = None
    total_capacity: PrintedSize | None = None
    free: PrintedSize | None = None
    allocated: PrintedSize | None = None
    cached_unused: PrintedSize | None = None
    reserved_total: PrintedSize | None = None
    reserved_unallocated: PrintedSize | None = None
    process_in_use: PrintedSize | None = None
    allowed: PrintedSize | None = None
    private_pools: PrintedSize | None = None
    other_processes: tuple[OtherProcess, ...] = ()
    fragmentation_hint_printed: bool = False
    block_limit: str | None = None
    times: int = 1
    first_line: int = field(default=1, compare=False)
    last_line: int = field(default=1, compare=False)

    def mib(self, name: str) -> float | None:
        """The size of that name in MiB; None where it is missing or cannot be meant.

        That is the mark for "not reported", and a card of no size.
        """
        size = getattr(self, name)
        if not isinstance(size, PrintedSize) or size.mib >= _NOT_REPORTED_MIB:
            return None
        return None if name == "total_capacity" and size.mib == 0 else size.mib

    def figures(self) -> dict[str, Any]:
        """All that stands in the text, as JSON data."""
        figures: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            figures[entry.name] = value.to_json() if isinstance(value, PrintedSize) else value
        del figures["first_line"], figures["last_line"]
        figures["other_processes"] = [
            {"pid": other.pid, "in_use": other.in_use.to_json()} for other in self.other_processes
        ]
        return figures


def allocator_messages(paste: Paste) -> list[AllocatorMessage]:
    """All messages of caching allocators in the text, each once."""
    # A message that was kept in a comment goes on behind the next "#".
    if _COMMENTED.search(paste.text) and _ANCHOR.search(paste.squeezed):
        paste = Paste.of(_COMMENTED.sub(lambda match: " " * len(match.group()), paste.text))
    messages: list[AllocatorMessage] = []
    for message in _all_messages(paste):
        known = next((i for i, m in enumerate(messages) if _same_event(m, message)), None)
        if known is None:
            messages.append(message)
        else:
            first = messages[known]
            messages[known] = replace(
                first, times=first.times + 1, exception=first.exception or message.exception
            )
    return messages


def _all_messages(paste: Paste) -> Iterator[AllocatorMessage]:
    text = paste.squeezed
    anchors = list(_ANCHOR.finditer(text))
    ends = [anchor.start() for anchor in anchors[1:]] + [len(text)] * bool(anchors)
    for anchor, end_of_all in zip(anchors, ends, strict=True):
        found, end = _clauses(text, anchor.end(), end_of_all)
        start = paste.offset(anchor.start())
        before = paste.line_before(start)
        exception = _EXCEPTION.search(before)
        rank = _RANK.search(before)
        if anchor["device"]:
            found.setdefault("gpu_index", int(anchor["device"]))
        yield AllocatorMessage(
            backend=_backend(anchor, text),
            exception=exception.group(1) if exception else None,
            rank=int(rank.group(1)) if rank else None,
            first_line=paste.line_of(start),
            last_line=paste.line_of(paste.offset(max(end - 1, anchor.start()))),
            block_limit=anchor["block_limit"],
            **found,
        )


def _backend(anchor: re.Match[str], text: str) -> str:
    if anchor["backend"]:
        return anchor["backend"].lower()
    if anchor["block_limit"]:
        return "xpu"  # the words of Intel's extension
    said = _BACKEND_OF_SETTING.search(text, anchor.end(), anchor.end() + _SAID_WITHIN)
    return said[1].lower() if said else "cuda"


def _clauses(text: str, start: int, end_of_all: int) -> tuple[dict[str, Any], int]:
    """The clauses that follow one another from ``start``, and where the last of them ends."""
    found: dict[str, Any] = {}
    others: list[OtherProcess] = []
    position = start
    if tried := _TRIED.match(text, position, end_of_all):
        found["tried_to_allocate"] = PrintedSize.of(*tried.groups())
        position = tried.end()
    elif absurd := _ABSURD.match(text, position, end_of_all):
        found["tried_lower_bound"] = "1 EB"
        position = absurd.end()
    while True:
        limit = min(position + _GAP, end_of_all)
        # A clause may look back at the semicolon before it, so search the text itself, not a part of it.
        matches = [(m, name) for name, p in _CLAUSES.items() if (m := p.search(text, position, limit))]
        if not matches:
            break
        match, name = min(matches, key=lambda pair: (pair[0].start(), -pair[0].end()))
        values = [group for group in match.groups() if group is not None]
        if name == "other_process":
            others.append(OtherProcess(int(values[0]), PrintedSize.of(values[1], values[2])))
        elif name == "gpu":
            found.setdefault("gpu_index", int(values[0]))
        elif name == "hint":
            found["fragmentation_hint_printed"] = True
        else:
            found.setdefault(name, PrintedSize.of(values[0], values[1]))
        position = match.end()
    if others:
        found["other_processes"] = tuple(others)
    return found, position


def _same_event(one: AllocatorMessage, two: AllocatorMessage) -> bool:
    """Whether two messages are one event, printed again by a logger."""
    same = {"times": 1, "exception": None}
    return replace(one, **same) == replace(two, **same)  # type: ignore[arg-type]
