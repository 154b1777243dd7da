"""How long does each operation take on this machine? Real training steps, timed operation by operation.

On a card each operation is waited for, so that its time is its own; on a processor it is anyway.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.machine import cpu_name
from course_lib.plan.calibration_nets import CalibrationNet
from course_lib.plan.op_kinds import work_of
from course_lib.plan.recorder import Recorder
from course_lib.plan.roofline import Rates
from course_lib.plan.work import Work

LONG = 1.2  # seconds: a rate that takes longer to measure is measured only twice


@dataclass(frozen=True)
class Timed:
    """One piece of work with the seconds that it took (an operation's time shared out by bytes and flops)."""

    work: Work
    seconds: float


def measure_rates(device: str) -> Rates:
    """Peak rates of large matrix products by number format, and the bandwidth of a large copy."""
    side = 1024 if device == "cpu" else 8192
    peaks = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if device == "cpu" and name == "fp16":
            continue  # many processors emulate it, hundreds of times slower
        left, right = (torch.rand(side, side, dtype=dtype, device=device) for _ in range(2))
        # Libraries differ in how well they run each order of the operands: the faster one is the peak.
        took = min(_best(functools.partial(torch.mm, left, other), device) for other in (right, right.t()))
        peaks[name] = 2.0 * side**3 / took
    count = 2**25 if device == "cpu" else 2**28
    source = torch.ones(count, device=device)
    target = torch.empty_like(source)
    bandwidth = 8.0 * count / _best(lambda: target.copy_(source), device)
    name = (
        cpu_name() if device == "cpu" else torch.cuda.get_device_name() if device == "cuda" else ("Apple GPU")
    )
    return Rates(f"this machine ({name})", bandwidth, peaks)


def _best(work: Callable[[], Any], device: str, repeats: int = 4) -> float:
    """The shortest of a few runs after the first, in seconds; of two if they take long."""
    times: list[float] = []
    for _ in range(repeats + 1):
        if sum(times) > LONG and len(times) > 1:
            break
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    elif device.startswith("mps"):
        torch.mps.synchronize()


class TimingRecorder(Recorder):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """A recorder that runs operations for real and keeps the seconds of each in ``times``, beside ``ops``."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.times: list[float] = []

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operation and time it."""
        _wait(self.device)
        start = time.perf_counter()
        out = func(*args, **kwargs)
        _wait(self.device)
        self._last = time.perf_counter() - start
        return out

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = len(self.ops)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if len(self.ops) > before:
            self.times.append(self._last)
        return out


def time_net(net: CalibrationNet, device: str, batch_size: int, seconds: float) -> list[Timed]:
    """Train a network for a few steps and time each operation.

    Of the steps after the first, the quicker half counts: what else ran on this machine meanwhile slowed the
    others.
    """
    model = net.build().to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(batch_size, *net.sample, device=device)
    classes = torch.zeros(batch_size, dtype=torch.long, device=device)
    begin = time.monotonic()
    runs: list[TimingRecorder] = []
    steps: list[float] = []
    while len(runs) < 2 or (len(runs) < 7 and time.monotonic() - begin < seconds * 0.8):
        recorder = TimingRecorder(device)
        optimizer.zero_grad()
        with recorder:
            recorder.phase = "forward"
            loss = torch.nn.functional.cross_entropy(model(images), classes)
            recorder.phase = "backward"
            loss.backward()  # type: ignore[no-untyped-call]
        recorder.stop()
        start = time.perf_counter()
        optimizer.step()
        _wait(device)
        steps.append(time.perf_counter() - start)
        runs.append(recorder)
        if len(runs) == 2 and time.monotonic() - begin > seconds:
            break
    moved = 5 * sum(p.numel() * p.element_size() for p in model.parameters())
    timed = [Timed(Work("optimizer", "optimizer", 0, moved), min(steps[1:]))]
    quickest = sorted(runs[1:], key=lambda run: math.fsum(run.times))[: max(1, len(runs) // 2)]
    for place, op in enumerate(runs[-1].ops):
        took = statistics.median(run.times[place] for run in quickest)
        timed += _share(work_of(op, False), took)
    return timed


def _share(works: Sequence[Work], took: float) -> list[Timed]:
    """One operation's time, shared out to its pieces: those with arithmetic by their flops, the rest by
    bytes.
    """
    weights = [work.flops / 20 + work.nbytes for work in works]
    whole = sum(weights)
    return [Timed(work, took * weight / whole) for work, weight in zip(works, weights, strict=True) if whole]
