"""How much memory do a process and all its children use together, at the most?

Adding up the resident sizes of a process and its loader workers counts what they share several times over:
torch's libraries alone are hundreds of MiB in each. The proportional set size (PSS) divides a shared page by
the number of processes that map it, so that PSS adds up. Linux alone reports it; elsewhere this module adds
up the unique set size (USS, what is not shared at all: a lower bound) and says so, and where that is not to
be had the resident size (RSS: an upper bound).
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Literal, Self

import psutil

MemoryKind = Literal["PSS", "USS", "RSS"]


def memory_of(process: psutil.Process) -> tuple[int, MemoryKind]:
    """Bytes that one process uses, and what kind of bytes. Raises psutil.NoSuchProcess when it has ended."""
    try:
        full = process.memory_full_info()
    except psutil.AccessDenied:
        return process.memory_info().rss, "RSS"
    pss = getattr(full, "pss", None)
    # A system may know the field and leave it empty; a process that is just ending has nothing of either.
    return (full.uss, "USS") if pss is None or (pss == 0 and full.uss > 0) else (pss, "PSS")


class MemoryWatch:
    """Samples the memory of a process and all its descendants, in a thread, until it is left.

        with MemoryWatch(kernel_pid) as watch:
            ...
        watch.peak_bytes, watch.kind

    A peak shorter than the time between two samples may be missed. ``mark`` begins a new stretch, of which
    ``peak_since_mark`` tells the peak. ``end_descendants`` ends what the process has left behind.
    """

    def __init__(self, pid: int, seconds_between: float = 0.3) -> None:
        self.peak_bytes = 0
        self.peak_since_mark = 0
        self.kind: MemoryKind = "PSS"
        self._root = psutil.Process(pid)
        self._seconds_between = seconds_between
        self._seen: set[psutil.Process] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def __enter__(self) -> Self:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def sample(self) -> int:
        """Measure once, now: bytes of the process and its descendants together (0 when it has ended)."""
        total = 0
        try:
            family = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return 0
        self._seen.update(family[1:])
        for process in family:
            try:
                size, kind = memory_of(process)
            except psutil.NoSuchProcess:
                continue
            total += size
            if kind != "PSS":
                self.kind = kind
        self.peak_bytes = max(self.peak_bytes, total)
        self.peak_since_mark = max(self.peak_since_mark, total)
        return total

    def mark(self) -> None:
        """Begin a new stretch for ``peak_since_mark``."""
        self.peak_since_mark = 0

    def end_descendants(self) -> int:
        """Kill the descendants that were seen and still run; return how many there were.

        psutil knows a process by its number and its start, so a number that was given to another program
        since is left alone.
        """
        left = [process for process in self._seen if _still_runs(process)]
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=5)
        return len(left)

    def _watch(self) -> None:
        while not self._stopping.wait(self._seconds_between):
            self.sample()


def _still_runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it ended just now
        return False
