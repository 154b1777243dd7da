"""How much memory did these training steps need at the most, and how much may they?

A meter reads one kind of memory: what a GPU's allocator has taken from the card, or what this process has
taken from the system. `meter_for` picks the one for a device.
"""

import ctypes
import threading
from pathlib import Path
from types import ModuleType
from typing import Protocol

import psutil
import torch

from course_lib.errors import CourseError
from course_lib.train.limits.counted_budget import CountedBudget, active_budget


class MemoryMeter(Protocol):
    """Reads the peak of one kind of memory, in bytes."""

    @property
    def name(self) -> str:
        """What is read, in words."""
        ...

    @property
    def gaps(self) -> float:
        """The share of the limit that a reading seldom reaches, because memory is cut into pieces."""
        ...

    def begin(self) -> int:
        """Give back what is cached, and forget the peak. Returns the bytes in use."""
        ...

    def peak(self) -> int:
        """The most bytes in use since `begin`."""
        ...

    def limit(self) -> int | None:
        """The bytes that `peak` can reach before memory runs out; None where nothing sets a limit."""
        ...


class AllocatorMeter:
    """What tensors and workspaces take from PyTorch's caching allocator on one CUDA (NVIDIA, AMD) or XPU
    (Intel) device.

    Allocated, not reserved: near the limit the allocator gives back what it only keeps, so that reserved
    bytes tell too early that the card is full (by a tenth of the batch in the median over 30 models,
    replayed), and allocated ones too late by some percent, the gaps. The limit is what the allocator holds
    and what is free beside it, or the share of the card that `set_per_process_memory_fraction` left.
    """

    name = "allocated on the device"
    gaps = 0.01  # the median over the same 30 models

    def __init__(self, device: torch.device) -> None:
        self._backend: ModuleType = torch.xpu if device.type == "xpu" else torch.cuda
        self._device = device

    def begin(self) -> int:
        """Empty the cache, and start counting from what is left."""
        self._backend.synchronize(self._device)
        self._backend.empty_cache()
        self._backend.reset_peak_memory_stats(self._device)
        return int(self._backend.memory_allocated(self._device))

    def peak(self) -> int:
        """Wait for the device, so that late errors come now, and read the counter."""
        self._backend.synchronize(self._device)
        return int(self._backend.max_memory_allocated(self._device))

    def limit(self) -> int:
        """Reserved and free together, within the process's share."""
        free, total = self._backend.mem_get_info(self._device)
        reachable = int(self._backend.memory_reserved(self._device)) + int(free)
        share_of = getattr(self._backend, "get_per_process_memory_fraction", None)
        return reachable if share_of is None else min(reachable, int(share_of(self._device) * total))


class MetalMeter:
    """What Metal holds for this process on an Apple GPU, cache included.

    Metal keeps no peak, but the pool only shrinks when it is told to: after a step its size is the step's
    peak.
    """

    name = "held by Metal"
    gaps = 0.0

    def begin(self) -> int:
        """Empty the pool."""
        torch.mps.synchronize()
        torch.mps.empty_cache()
        return torch.mps.driver_allocated_memory()

    def peak(self) -> int:
        """The size of the pool."""
        torch.mps.synchronize()
        return torch.mps.driver_allocated_memory()

    def limit(self) -> int:
        """What Metal recommends as the most; beyond it the computer begins to swap."""
        return torch.mps.recommended_max_memory()


class ProcessMeter:
    """What this process has taken from the system for its data, on a CPU.

    On Linux this is `VmData`, the very number that RLIMIT_DATA limits; its peak follows from the kernel's
    own record of the resident peak. Where that record cannot be restarted, and on other systems, a thread
    samples: private bytes on Windows, resident bytes on macOS. A peak shorter than the time between two
    samples may then be missed.
    """

    name = "in use by this process"
    gaps = 0.0
    _seconds_between = 0.002

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._highest = 0
        self._untouched: int | None = (
            None  # data that is not resident; None where the kernel's record is not used
        )
        self._stop = threading.Event()
        self._sampler: threading.Thread | None = None

    def begin(self) -> int:
        """Give freed memory back to the system, and start watching."""
        self._end_sampling()
        _trim_heap()
        now = self._highest = self._in_use()
        self._untouched = now - _anonymous("VmRSS") if _restart_resident_peak() else None
        if self._untouched is None:
            self._stop = threading.Event()
            self._sampler = threading.Thread(target=self._sample, args=(self._stop,), daemon=True)
            self._sampler.start()
        return now

    def peak(self) -> int:
        """Stop watching, and tell the highest."""
        self._end_sampling()
        self._highest = max(self._highest, self._in_use())
        if self._untouched is not None:
            self._highest = max(self._highest, self._untouched + _anonymous("VmHWM"))
        return self._highest

    def limit(self) -> int | None:
        """The soft limit RLIMIT_DATA, where one is set."""
        if psutil.LINUX:
            import resource

            soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
            return None if soft == resource.RLIM_INFINITY else soft
        return None

    def _in_use(self) -> int:
        memory = self._process.memory_info()
        if psutil.LINUX:
            return int(memory.data)
        return int(getattr(memory, "private", memory.rss))

    def _sample(self, stop: threading.Event) -> None:
        while not stop.wait(self._seconds_between):
            self._highest = max(self._highest, self._in_use())

    def _end_sampling(self) -> None:
        self._stop.set()
        if self._sampler is not None:
            self._sampler.join()
            self._sampler = None


class BudgetMeter:
    """The bytes that a CountedBudget counts."""

    name = "counted tensors (emulated)"
    gaps = 0.0

    def __init__(self, budget: CountedBudget) -> None:
        self._budget = budget
        self._highest = 0

    def begin(self) -> int:
        """Start watching."""
        self._highest = self._budget.in_use
        if self._watch not in self._budget.watchers:
            self._budget.watchers.append(self._watch)
        return self._highest

    def peak(self) -> int:
        """Stop watching, and tell the highest."""
        if self._watch in self._budget.watchers:
            self._budget.watchers.remove(self._watch)
        return self._highest

    def limit(self) -> int:
        """The budget."""
        return self._budget.budget

    def _watch(self, in_use: int) -> None:
        self._highest = max(self._highest, in_use)


def meter_for(device: str | torch.device) -> MemoryMeter:
    """The meter for a device. Raises CourseError for a kind of device that the course does not know."""
    chosen = torch.device(device)
    if chosen.type in ("cuda", "xpu"):
        return AllocatorMeter(chosen)
    if chosen.type == "mps":
        return MetalMeter()
    if chosen.type == "cpu":
        budget = active_budget()
        return ProcessMeter() if budget is None else BudgetMeter(budget)
    raise CourseError(
        f"The memory of a {chosen.type!r} device cannot be read here: use cpu, cuda, mps or xpu."
    )


def _trim_heap() -> None:
    """Let the C library give back what was freed: glibc keeps it otherwise.

    Nothing happens where it has no such call.
    """
    if psutil.LINUX:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _restart_resident_peak() -> bool:
    """Have the kernel forget VmHWM (proc(5), clear_refs 5); False where it cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return False
    return True


def _anonymous(kind: str) -> int:
    """Resident bytes, now (VmRSS) or at the peak (VmHWM), less what stands in files and is shared
    (proc(5)).
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in lines)
        if " kB" in rest
    }
    return 1024 * (sizes[kind] - sizes.get("RssFile", 0) - sizes.get("RssShmem", 0))
