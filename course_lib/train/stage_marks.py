"""Which part of making a sample is reading, and which is decoding and transforming?

A data set says it with two context managers, which cost next to nothing while nobody measures:

    def __getitem__(self, index):
        with reading():
            data = self.archive.read(index)
        with decoding():
            return decode(data)

Files that Python opens are seen without marks: `watch_samples` replaces `open` while it measures. What no
mark and no file covers is told apart by the system, where it tells (Linux): a thread that is blocked waits
for storage, and one that computes decodes.
"""

import builtins
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Stage = Literal["read", "decode"]
Clock = Callable[[], float]
Blocked = Callable[[], float | None]


class SampleWatch:
    """Seconds that samples took in each stage; the stages that are open stand on a stack.

    `read_s` and `decode_s` are what marks and files told. `unmarked_s` is the rest, of which `blocked_s` was
    spent neither on a core nor in the queue for one, as far as the system tells.
    """

    def __init__(self, clock: Clock = time.perf_counter, blocked: Blocked | None = None) -> None:
        self._clock = clock
        self._blocked_clock = BlockedClock() if blocked is None else None
        self._blocked: Blocked = blocked or self._blocked_clock  # type: ignore[assignment]
        self._open: list[Stage | None] = [None]
        self.read_s = self.decode_s = self.unmarked_s = self.blocked_s = 0.0
        self._off_at, self._at = self._blocked(), self._clock()

    def enter(self, stage: Stage) -> None:
        """A stage begins; it interrupts the one that was open."""
        self._book()
        self._open.append(stage)

    def leave(self) -> None:
        """The innermost stage ends."""
        self._book()
        self._open.pop()

    def pause(self) -> None:
        """What passes until `resume` belongs to nothing."""
        self._book()

    def resume(self) -> None:
        """Go on from here."""
        self._off_at, self._at = self._blocked(), self._clock()

    def close(self) -> None:
        """Book what has passed since the last change."""
        self._book()
        if self._blocked_clock is not None:
            self._blocked_clock.close()

    def _book(self) -> None:
        passed, off = self._clock() - self._at, self._blocked()
        match self._open[-1]:
            case "read":
                self.read_s += passed
            case "decode":
                self.decode_s += passed
            case None:
                self.unmarked_s += passed
                if off is not None and self._off_at is not None:
                    self.blocked_s += off - self._off_at
        self._off_at, self._at = off, self._clock()


_watch: SampleWatch | None = None  # of this process; loader workers have none


class _Mark:
    """`with reading():`, one object a stage, made once."""

    __slots__ = ("_stage",)

    def __init__(self, stage: Stage) -> None:
        self._stage: Stage = stage

    def __enter__(self) -> None:
        if _watch is not None:
            _watch.enter(self._stage)

    def __exit__(self, *raised: object) -> None:
        if _watch is not None:
            _watch.leave()


_READING, _DECODING = _Mark("read"), _Mark("decode")


def reading() -> _Mark:
    """Within it, a data set waits for its storage."""
    return _READING


def decoding() -> _Mark:
    """Within it, a data set decodes or transforms."""
    return _DECODING


@contextmanager
def watch_samples(watch: SampleWatch) -> Iterator[None]:
    """Within it, marks and the reads of files are booked to this watch."""
    global _watch  # noqa: PLW0603 - marks stand in data sets, which know no watch
    if _watch is not None:
        raise RuntimeError("two measurements at a time would measure each other")
    original = builtins.open

    def timed_open(  # noqa: PLR0917 - as open itself
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if set(mode) - set("rbt") or buffering == 0:  # only reading through a buffer is watched
            return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
        with _READING:
            raw = _TimedFile(file, "r", closefd, opener)
        binary = io.BufferedReader(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        return binary if "b" in mode else io.TextIOWrapper(binary, encoding, errors, newline)

    _watch = watch
    builtins.open = io.open = timed_open
    try:
        yield
    finally:
        _watch = None
        builtins.open = io.open = original
        watch.close()


class _TimedFile(io.FileIO):
    """A file whose reads are booked, below the buffer, so that each byte counts once."""

    def read(self, size: int | None = -1, /) -> Any:
        with _READING:
            return super().read(-1 if size is None else size)

    def readall(self) -> Any:
        with _READING:
            return super().readall()

    def readinto(self, buffer: Any, /) -> Any:
        with _READING:
            return super().readinto(buffer)


class BlockedClock:
    """Seconds for which the thread that made it was blocked, from an arbitrary moment on; None where unknown.

    Wall time without the time on a core and without the time in the queue for one, which a busy machine
    lengthens (Linux: Documentation/scheduler/sched-stats.rst).
    """

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None

    def __call__(self) -> float | None:
        """Read the clocks. The file holds ns on a core, ns in the queue, and turns."""
        if self._file is None:
            return None
        queued = int(os.pread(self._file, 100, 0).split()[1])
        # Not the file's own time on a core, which is brought up to date only with the scheduler's ticks.
        return time.perf_counter() - time.thread_time() - queued * 1e-9

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
