"""What does a message say about the computer's own memory running out?

PyTorch's CPU allocator, NumPy, the operating system (errno 12, WinError 1455) and the kernel's OOM killer
each have their own wording. None of it is about the card.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

from course_lib.diagnose.finding import Evidence, Finding, Reading
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.size import show_mib

_PATTERNS = {
    name: re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for name, pattern in {
        # "not enough memory" is what the Windows build says, "can't allocate memory" the others
        "allocator": r"(?:DefaultCPUAllocator|Torch):\s*(?:can't allocate memory|not enough memory):\s*"
        r"you\s+tried\s+to\s+allocate\s+(?P<number>\d{1,20})\s*(?P<unit>bytes|[KMGT]?B)"
        r"(?:\.?\s*Error\s+code\s+(?P<error_code>\d{1,4}))?",
        "array": r"Unable to allocate\s+"
        r"(?:(?P<number>\d{1,20}(?:\.\d{1,6})?)\s*(?P<unit>[KMGTPE]?i?B|bytes)\s+for\s+)?"
        r"(?:an\s+)?array\s+with\s+shape\s+(?P<shape>\([\d, ]{0,200}\))",
        "windows": r"\[WinError (?P<winerror>1455|8|14)\]",
        # a mapping that is refused is most often one too many: faults/dataloader.py
        "errno": r"\[Errno 12\]|(?<!\()(?<!>: )Cannot allocate memory"
        r"|posix_memalign\([^)\n]{0,80}\) == 0\. 12 vs 0",
        "python": r"^(?:\[(?:rank|default)\d{1,6}\]:[ ]?|[^A-Za-z\n]{0,60})(?:[\w.]{1,60}\.)?MemoryError"
        r"(?:[ \t]*$|:(?! Unable))",
        "library": r"\bstd::bad_alloc\b",
        "killed": r"Out of memory: Kill(?:ed)? process (?P<pid>\d{1,10})"
        r"|Memory cgroup out of memory[^\n]{0,80}|\boom[-_]kill\b[^\n]{0,60}|cgroup out-of-memory handler"
        r"|The node was low on resource: memory|\bOOMKilled\b",
    }.items()
}
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception))\s*:")
_DLL = re.compile(r"([\w.-]{1,80}\.dll)\b", re.IGNORECASE)
_WORKERS = re.compile(r"DataLoader|num_workers|spawn_main|multiprocessing|Error loading", re.IGNORECASE)
_RSS = re.compile(r"anon-rss:(\d{1,15})kB", re.IGNORECASE)
_FACTORS = {"bytes": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50, "e": 2**60}
_LARGE_MIB = 8 * 1024.0  # half of a usual laptop's memory
_ONE_REQUEST_MIB = 64 * 1024.0  # more than most computers have in all
_OVERFLOW_MIB = 2.0**30  # 1 PiB


@dataclass(frozen=True, slots=True)
class HostMessage:
    """The figures of one message. ``tried_bytes`` is exact only where the text gives bytes."""

    form: str
    exception: str | None = None
    tried_bytes: int | None = None
    tried_mib: float | None = None
    error_code: int | None = None
    winerror: int | None = None
    dll: str | None = None
    shape: str | None = None
    pid: int | None = None
    anon_rss_mib: float | None = None
    windows: bool = False
    workers: bool = False

    def figures(self) -> dict[str, Any]:
        """All that stands in the text, as JSON data."""
        figures = asdict(self)
        del figures["windows"], figures["workers"]
        return {"backend": "cpu", **figures}


def read(paste: Paste) -> list[Reading]:
    """One Reading for each different message about host memory in the text."""
    readings: dict[HostMessage, Reading] = {}
    workers = _WORKERS.search(paste.text) is not None
    for form, pattern in _PATTERNS.items():
        if form == "python" and "memoryerror" not in paste.lowered:
            continue  # the beginning of each line of a long log would be looked at
        for match in pattern.finditer(paste.text):
            if form == "errno" and any(m.form == "allocator" for m in readings):
                continue  # the allocator's own message ends with the system's words
            message = _message(paste, form, match, workers=workers)
            readings.setdefault(
                message,
                Reading(
                    kind="out-of-memory message",
                    figures=message.figures(),
                    first_line=paste.line_of(match.start()),
                    last_line=paste.line_of(match.end() - 1),
                    findings=(diagnose(message),),
                    source=message,
                ),
            )
    return list(readings.values())


def _message(paste: Paste, form: str, match: re.Match[str], *, workers: bool) -> HostMessage:
    groups = match.groupdict()
    line = paste.line_before(match.start()) + paste.text[match.start() : match.end() + 400].split("\n")[0]
    following = paste.text[match.end() : match.end() + 400]
    exceptions = _EXCEPTION.findall(paste.line_before(match.start()))
    tried = None
    if groups.get("number"):
        unit = groups["unit"].lower()
        tried = float(groups["number"]) * _FACTORS.get(unit, _FACTORS.get(unit[0], 1))
    dll = _DLL.search(line) if form == "windows" else None
    rss = _RSS.search(following) if form == "killed" else None
    in_bytes = tried is not None and groups["unit"].lower() == "bytes"
    return HostMessage(
        form=form,
        exception=exceptions[-1] if exceptions else None,
        tried_bytes=int(float(groups["number"])) if in_bytes else None,
        tried_mib=None if tried is None else round(tried / 2**20, 2),
        error_code=_whole(groups.get("error_code")),
        winerror=_whole(groups.get("winerror")),
        dll=dll.group(1) if dll else None,
        shape=groups.get("shape"),
        pid=_whole(groups.get("pid")),
        anon_rss_mib=round(int(rss.group(1)) / 1024, 2) if rss else None,
        windows=form == "windows" or "not enough" in match.group().lower() or "\\" in line,
        workers=workers,
    )


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def diagnose(message: HostMessage) -> Finding:
    """The one finding that the figures of ``message`` support best."""
    tried = message.tried_mib
    if tried is not None and tried >= _OVERFLOW_MIB:
        return Finding(
            "shape_overflow",
            "The size that was asked for is nonsense: a shape is wrong",
            f"One request asks for {show_mib(tried)}: a dimension is negative or overflowed, or an index is "
            "used as a size. This is not a memory problem.",
            ("Print the shapes at the failing line; look for an integer overflow or a garbage length.",),
            ("A smaller batch size.", "More memory."),
            _evidence(message),
        )
    if tried is not None and tried >= _ONE_REQUEST_MIB:
        return Finding(
            "oom.host_single_request_too_large",
            f"One array of {show_mib(tried)} is asked for in the computer's memory",
            "No other figure matters beside a single request of that size: a whole data set, a matrix of "
            "all pairs or a wrong shape.",
            (
                "Look at the line that makes this array and make it in pieces: stream or memory-map the "
                "data, use a smaller dtype, a sparse matrix, or fewer samples at once.",
            ),
            ("GPU memory advice: the card is not involved.",),
            _evidence(message),
        )
    if message.winerror is not None or (message.form == "allocator" and message.windows):
        return _windows(message)
    if message.form == "killed":
        return Finding(
            "oom.host_killed",
            "The system ended the process because the computer's (or the container's) memory was full",
            "The kernel's OOM killer chose the process with the most memory. A Python error is not printed "
            "then; the exit status is -9 or 137.",
            (
                "Lower what the job holds in host memory: fewer DataLoader workers (each holds a copy of "
                "what it touches), no whole data set in lists, a smaller batch; or ask the scheduler for "
                "more (--mem).",
                "Watch the memory over time: growth from epoch to epoch is a leak, not a size.",
            ),
            ("GPU memory advice: the card is not involved.", "A longer timeout, or starting again as it is."),
            _evidence(message),
        )
    asked = "" if tried is None else f" The last request was {show_mib(tried)}; {_weight(tried)}."
    if message.form == "library":
        asked = " A library of C++ says so (std::bad_alloc); a size that it read wrongly gives that too."
    return Finding(
        "oom.host_memory",
        "The computer's own memory is full",
        "The system refused host memory (or the limit of a container, scheduler or ulimit was "
        f"reached).{asked} The card is not involved.",
        (
            "Lower what is held in host memory: halve the batch or num_workers, stream the data instead of "
            "loading it whole; and check the limit (free -h, ulimit -v, the container's or job's limit).",
            "Keep no history of tensors: append loss.item(), not loss.",
        ),
        ("GPU advice: torch.cuda.empty_cache(), allocator settings, a larger card.",),
        _evidence(message),
        certainty="likely" if message.form == "library" else "certain",
    )


def _weight(tried_mib: float) -> str:
    """How a request weighs: small ones only meet a memory that is full already."""
    return (
        "it is only the last straw" if tried_mib < _LARGE_MIB else "it is large by itself: look at its line"
    )


def _windows(message: HostMessage) -> Finding:
    if message.winerror == 1455 and (message.dll or message.workers):
        return Finding(
            "oom.host_commit_limit_workers",
            "Too many worker processes for memory and page file together",
            "On Windows every DataLoader worker starts anew, imports torch and commits the CUDA libraries' "
            "memory again; workers times that exceeds memory plus page file. The library named is only the "
            "one that was being loaded.",
            (
                "Lower num_workers (2 or 0), then enlarge the page file.",
                "Keep imports of torch out of what workers do not need.",
            ),
            ("Reinstalling torch because a library 'cannot be loaded'.", "GPU memory advice."),
            _evidence(message),
        )
    tried = message.tried_mib
    asked = "" if tried is None else f" The last request was {show_mib(tried)}; {_weight(tried)}."
    return Finding(
        "oom.host_commit_limit",
        "The computer's memory and page file together are full",
        f"Windows refuses memory once all programs have committed memory plus page file.{asked} The card is "
        "not involved.",
        (
            "Halve the batch and num_workers; close other programs; then enlarge the page file.",
            "Stream the data instead of loading it whole.",
        ),
        ("Taking 'Buy new RAM!' as a diagnosis.", "GPU advice."),
        _evidence(message),
    )


def _evidence(message: HostMessage) -> tuple[Evidence, ...]:
    named = (
        ("asked for", None if message.tried_mib is None else show_mib(message.tried_mib)),
        ("shape", message.shape),
        ("error code", message.error_code),
        ("WinError", message.winerror),
        ("library", message.dll),
        ("process", message.pid),
    )
    return tuple(Evidence(name, str(value)) for name, value in named if value is not None)
