"""Where does the time of a training step go?

`StepTimer` splits a step into waiting for data, transfer, forward, backward, optimizer and the rest:

    timer = StepTimer("cpu")
    for images, labels in timer.batches(loader):
        with timer.phase("forward"):
            loss = loss_fn(model(images), labels)
        with timer.phase("backward"):
            loss.backward()
        with timer.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    print(timer.split())

A step lasts from asking the loader for a batch to asking for the next one. The timer keeps marks, one at
each change of phase, and gives the time between two marks to the phase that was on: every moment counts
once, so the phases add up to the step. A phase inside another one interrupts it.

On a GPU the program runs ahead of the card: a kernel is queued in microseconds and runs later. There the
marks are CUDA events, set into the queue between the kernels, and nothing waits. The split then tells the
card's time, and "data" is the time for which the card stood still because no batch had come.
"""

import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import torch

from course_lib.errors import CourseError
from course_lib.train.batch import samples_in
from course_lib.train.split import PHASES, Phase, StepSplit

Batch = TypeVar("Batch")
DATA, REST = PHASES.index("data"), PHASES.index("rest")


class Clock(Protocol):
    """Makes marks, and tells the seconds between two of them."""

    method: str

    def mark(self) -> Any:
        """Mark this moment of the device's work."""
        ...

    def reached(self, mark: Any) -> bool:
        """Whether the device has come to this mark."""
        ...

    def seconds(self, earlier: Any, later: Any) -> float:
        """Seconds between two marks that were both reached."""
        ...

    def reuse(self, mark: Any) -> None:
        """Take back a mark that is needed no more."""
        ...

    def wait(self) -> None:
        """Return when every mark has been reached."""
        ...


class HostClock:
    """Reads the computer's clock: right where each operation is finished when it returns, as on a CPU."""

    method = "perf_counter"

    def mark(self) -> int:
        """Nanoseconds of `time.perf_counter_ns`."""
        return time.perf_counter_ns()

    def reached(self, mark: int) -> bool:
        """Always: the moment is over."""
        return True

    def seconds(self, earlier: int, later: int) -> float:
        """Seconds between two marks."""
        return (later - earlier) * 1e-9

    def reuse(self, mark: int) -> None:
        """Nothing to take back."""

    def wait(self) -> None:
        """Nothing to wait for."""


class SynchronizingClock(HostClock):
    """Waits for an Apple GPU at each mark, then reads the computer's clock.

    The waiting keeps the program from running ahead, so the step is slower than without the timer.
    """

    method = "perf_counter after torch.mps.synchronize, which slows the step"

    def mark(self) -> int:
        """Wait for the GPU, then mark."""
        torch.mps.synchronize()
        return time.perf_counter_ns()


class CudaClock:
    """Sets events into the current stream of a CUDA device; work on other streams is not seen."""

    method = "CUDA events"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._spare: list[torch.cuda.Event] = []

    def mark(self) -> torch.cuda.Event:
        """Queue an event."""
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def reached(self, mark: torch.cuda.Event) -> bool:
        """Whether the card has come to this event; asks without waiting."""
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def seconds(self, earlier: torch.cuda.Event, later: torch.cuda.Event) -> float:
        """Seconds between two events; CUDA tells milliseconds."""
        return float(earlier.elapsed_time(later)) / 1e3

    def reuse(self, mark: torch.cuda.Event) -> None:
        """Keep the event for a later mark."""
        self._spare.append(mark)

    def wait(self) -> None:
        """Wait for all that is queued."""
        torch.cuda.synchronize(self._device)


def clock_for(device: torch.device) -> Clock:
    """The clock that is right on a device. Raises CourseError for a kind that the course does not know."""
    if device.type == "cuda":
        return CudaClock(device)
    if device.type == "mps":
        return SynchronizingClock()
    if device.type == "cpu":
        return HostClock()
    raise CourseError(f"Steps on a {device.type!r} device cannot be timed: use cpu, cuda or mps.")


class _PhaseContext:
    """`with timer.phase(name)`: one object a phase, made once, so that entering costs next to nothing."""

    __slots__ = ("_index", "_timer")

    def __init__(self, timer: "StepTimer", index: int) -> None:
        self._timer = timer
        self._index = index

    def __enter__(self) -> None:
        self._timer._enter(self._index)

    def __exit__(self, *raised: object) -> None:
        self._timer._exit()


class StepTimer:
    """Splits training steps into PHASES; see the top of this module for how it is used.

    The first `warmup` steps are measured but not reported: they start workers, fill caches and choose
    algorithms. A step that was left by `break` or by an exception is not complete and does not count.
    Outside a loop over `batches`, a phase measures nothing.
    """

    def __init__(
        self, device: str | torch.device = "cpu", *, warmup: int = 3, clock: Clock | None = None
    ) -> None:
        """`clock` replaces the one that suits the device."""
        if warmup < 0:
            raise CourseError(f"The warm-up is a number of steps, 0 or more, not {warmup}.")
        self.device = torch.device(device)
        self.warmup = warmup
        self._clock = clock or clock_for(self.device)
        self._contexts = {name: _PhaseContext(self, index) for index, name in enumerate(PHASES)}
        self._running: object | None = None  # the pass over a loader that is going on
        self._marks: list[tuple[int, Any]] = []  # of the open step: the phase that begins, and when
        self._within: list[int] = []  # phases entered and not left, the innermost last
        self._queued: deque[tuple[list[tuple[int, Any]], int]] = deque()  # closed steps, not yet read
        self._times = array("d")  # six a step
        self._samples = array("q")

    def phase(self, name: Phase) -> _PhaseContext:
        """The context in which time belongs to this phase."""
        try:
            return self._contexts[name]
        except KeyError:
            raise CourseError(f"There is no phase {name!r}: use {', '.join(PHASES)}.") from None

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Loop over a loader; the time in which it is asked for a batch is "data".

        Raises CourseError when two loops over one timer run at the same time.
        """
        this_pass = self._running = object()
        self._within.clear()
        try:
            self._marks = [(DATA, self._clock.mark())]
            iterator = iter(loader)
            while True:
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
                self._marks.append((REST, self._clock.mark()))
                self._read()
                samples = samples_in(batch)
                yield batch
                if self._running is not this_pass:
                    raise CourseError("Two loops share one StepTimer: give each its own.")
                end = self._clock.mark()
                self._marks.append((DATA, end))
                self._queued.append((self._marks, samples))
                self._marks = [(DATA, end)]
        finally:
            if self._running is this_pass:
                self._running = None

    def split(self) -> StepSplit:
        """What the complete steps so far spent their time on.

        Waits for the device once. Raises CourseError when no step is left after the warm-up.
        """
        if self._queued:
            self._clock.wait()
            self._read()
        measured = len(self._samples)
        if measured <= self.warmup:
            why = f"{measured} complete step{'s were' if measured != 1 else ' was'} measured"
            if measured:
                why += f", and the first {self.warmup} are warm-up: measure more, or use a smaller warmup"
            else:
                why = "No complete step was measured: loop over timer.batches(loader) and let a step finish"
            raise CourseError(f"{why}.")
        times = [tuple(self._times[i : i + len(PHASES)]) for i in range(0, len(self._times), len(PHASES))]
        return StepSplit.from_steps(
            times[self.warmup :],
            samples=sum(self._samples[self.warmup :]),
            warmup=self.warmup,
            device=str(self.device),
            method=self._clock.method,
        )

    def _enter(self, index: int) -> None:
        if self._running is not None:
            self._within.append(index)
            self._marks.append((index, self._clock.mark()))

    def _exit(self) -> None:
        if self._within:
            self._within.pop()
            outer = self._within[-1] if self._within else REST
            self._marks.append((outer, self._clock.mark()))

    def _read(self) -> None:
        """Turn closed steps into seconds, oldest first, as far as the device has come."""
        while self._queued and self._clock.reached(self._queued[0][0][-1][1]):
            marks, samples = self._queued.popleft()
            row = [0.0] * len(PHASES)
            for (phase, begin), (_, end) in pairwise(marks):
                row[phase] += self._clock.seconds(begin, end)
                self._clock.reuse(begin)  # the last mark also begins the next step, and is taken back there
            self._times.extend(row)
            self._samples.append(samples)
