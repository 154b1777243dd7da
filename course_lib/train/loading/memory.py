"""What do loader workers take of the computer's memory, and does that fit?"""

from dataclasses import dataclass
from pathlib import Path

import psutil

from course_lib.errors import CourseError
from course_lib.machine import available_memory_bytes
from course_lib.train.loading.settings import DEFAULT_PREFETCH, LoaderSettings
from course_lib.units import format_bytes

GUESS_FORKED, GUESS_STARTED = 60 * 2**20, 400 * 2**20
"""Bytes of a worker before one was seen. A forked one shares what is loaded; another loads torch itself."""

BATCHES_IN_THE_MAKING = 2  # the one that is being made, and its samples
SPARE = 0.1  # of what is free, for all others


@dataclass(frozen=True)
class HostMemory:
    """What is free, what a worker has for itself, and what a batch takes; bytes.

    `worker_bytes` is measured in a trial when `measured`, else a guess. `shared_free_bytes` is the room in
    which batches are handed over (/dev/shm); None where the system sets no bound of its own.
    """

    free_bytes: int
    shared_free_bytes: int | None
    worker_bytes: int
    batch_bytes: int
    measured: bool = False

    @classmethod
    def before_trials(cls, batch_bytes: int, *, forked: bool, free_bytes: int | None = None) -> "HostMemory":
        """What is known before a worker was seen; `free_bytes` in place of what is free now."""
        return cls(
            free_bytes=available_memory_bytes() if free_bytes is None else free_bytes,
            shared_free_bytes=free_shared_bytes(),
            worker_bytes=GUESS_FORKED if forked else GUESS_STARTED,
            batch_bytes=batch_bytes,
        )

    def needed_bytes(self, settings: LoaderSettings) -> int:
        """Private memory of all workers, and the batches that lie ready."""
        return settings.num_workers * self.worker_bytes + self.ready_bytes(settings)

    def ready_bytes(self, settings: LoaderSettings) -> int:
        """Batches that the workers keep ready or are making, in shared memory."""
        return ready_bytes(settings, self.batch_bytes)

    def refusal(self, settings: LoaderSettings) -> str | None:
        """Why these settings do not fit; None when they do."""
        little = _shared_refusal(settings, self.batch_bytes, self.shared_free_bytes)
        if little is not None:
            return little
        workers = _workers(settings)
        needed = self.needed_bytes(settings)
        if settings.num_workers and needed > self.free_bytes * (1 - SPARE):
            return f"{workers} would take {format_bytes(needed)} of the {format_bytes(self.free_bytes)} free"
        return None


def ready_bytes(settings: LoaderSettings, batch_bytes: int) -> int:
    """Batches that the workers keep ready or are making, in shared memory."""
    ahead = settings.prefetch_factor or DEFAULT_PREFETCH
    return settings.num_workers * (ahead + BATCHES_IN_THE_MAKING - 1) * batch_bytes


def free_shared_bytes(folder: Path = Path("/dev/shm")) -> int | None:
    """The room in which batches are handed over; None where the system sets no bound of its own."""
    try:
        return int(psutil.disk_usage(str(folder)).free)
    except OSError:
        return None


def check_shared_memory(settings: LoaderSettings, batch_bytes: int) -> None:
    """Raises CourseError where the workers' batches do not fit: they would end in a bus error."""
    why = _shared_refusal(settings, batch_bytes, free_shared_bytes())
    if why is not None:
        raise CourseError(
            f"{why}: use a smaller batch or fewer workers, or start the container with --shm-size=1g."
        )


def _shared_refusal(settings: LoaderSettings, batch_bytes: int, room: int | None) -> str | None:
    ready = ready_bytes(settings, batch_bytes)
    if room is None or ready <= room * (1 - SPARE):
        return None
    return (
        f"{_workers(settings)} would keep {format_bytes(ready)} of batches in shared memory, of which "
        f"{format_bytes(room)} are free"
    )


def _workers(settings: LoaderSettings) -> str:
    return f"{settings.num_workers} worker{'s' if settings.num_workers != 1 else ''}"
