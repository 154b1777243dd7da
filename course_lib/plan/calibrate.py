"""How fast is this machine, kind of work by kind of work? Measured in two minutes, and used by ``predict``.

Small networks (``calibration_nets.py``) train for a few steps under a recorder that times each operation as
it runs, with the caches, threads and memory pages of a real step. For each kind of work two shares are
fitted to these times, as ``benchmarks/fit_speed.py`` does for public measurements. What was not met falls
back on its family.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.machine import best_device, cpu_name
from course_lib.plan.calibration_nets import CalibrationNet, calibration_nets
from course_lib.plan.coefficients import Coefficients, coefficients_from
from course_lib.plan.op_kinds import Work, work_of
from course_lib.plan.recorder import Recorder
from course_lib.plan.roofline import Rates
from course_lib.plan.work_timer import Parts, WorkTimer

FILE = Path(".course", "calibration.json")
FORMAT = 1
MOST_SECONDS = 120.0


@dataclass(frozen=True)
class Timed:
    """One piece of work with the seconds that it took (an operation's time shared out by bytes and flops)."""

    work: Work
    seconds: float


@dataclass(frozen=True)
class Calibration:
    """What was measured on one device: its rates, and the shares that each kind of work reaches of them."""

    rates: Rates
    coefficients: Coefficients
    device: str
    torch_version: str
    threads: int
    date: str
    seconds: float
    row: dict[str, Any]

    def save(self, folder: Path) -> Path:
        """Write it into the learner's folder; returns the path."""
        path = folder / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "format": FORMAT,
            "device": self.device,
            "torch_version": self.torch_version,
            "threads": self.threads,
            "date": self.date,
            "seconds": self.seconds,
            "rates": {**asdict(self.rates), "peaks": dict(self.rates.peaks)},
            "coefficients": self.row,
        }
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        return path

    def to_json(self) -> dict[str, Any]:
        """The rates and what was run, without the shares of each kind."""
        return {
            "device": self.device, "name": self.rates.name, "bandwidth_gb_s": self.rates.bandwidth / 1e9,
            "peak_gflops": {name: value / 1e9 for name, value in self.rates.peaks.items()},
            "kinds": len(self.coefficients.kinds), "threads": self.threads, "date": self.date,
            "seconds": self.seconds, "torch_version": self.torch_version,
        }  # fmt: skip

    def __str__(self) -> str:
        peaks = ", ".join(f"{name} {value / 1e9:,.0f} GFLOP/s" for name, value in self.rates.peaks.items())
        return (
            f"{self.rates.name}: {peaks}; {self.rates.bandwidth / 1e9:,.1f} GB/s; "
            f"{len(self.coefficients.kinds)} kinds of work measured in {self.seconds:.0f} s on {self.date}"
        )


def load_calibration(folder: Path) -> Calibration | None:
    """The calibration saved in a learner's folder; None if there is none.

    Raises CourseError for a broken file.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
        return Calibration(
            Rates(**data["rates"]),
            coefficients_from("this machine", data["coefficients"]),
            data["device"],
            data["torch_version"],
            int(data["threads"]),
            data["date"],
            float(data["seconds"]),
            data["coefficients"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseError(
            f"{path} is not a calibration that this version can read ({error}); run `course calibrate` again."
        ) from None


def calibrate(
    device: str | None = None,
    *,
    batch_size: int | None = None,
    seconds: float = 90.0,
    nets: Iterable[CalibrationNet] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Measure ``device`` (default: the best of this machine) for about ``seconds`` seconds, at most 120.

    ``batch_size``: images in a step; small on a CPU, where a step takes long. Kinds that come too late for
    the time are left to their families. Raises CourseError for a device that torch does not have.
    """
    device = device or best_device()
    _check(device, seconds)
    begin = time.monotonic()
    limit = min(seconds, MOST_SECONDS)
    batch = batch_size or (4 if device == "cpu" else 64)
    progress(f"peak rates of {device}")
    rates = measure_rates(device)
    runs: list[list[Timed]] = []
    for net in calibration_nets() if nets is None else nets:
        left = limit - (time.monotonic() - begin)
        if left <= 0 and runs:
            break
        progress(net.name)
        runs.append(time_net(net, device, batch, min(max(left, 1.0), limit / 6)))
    row = fit(runs, rates)
    made = coefficients_from("this machine", row)
    return Calibration(
        rates,
        made,
        device,
        torch.__version__,
        torch.get_num_threads(),
        datetime.date.today().isoformat(),
        time.monotonic() - begin,
        row,
    )


def _check(device: str, seconds: float) -> None:
    kind = device.split(":", maxsplit=1)[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(kind, False):
        known = " or ".join(name for name, is_there in there.items() if is_there)
        raise CourseError(f"This torch has no device {device!r} to calibrate; it has {known}.")
    if seconds < 5:
        raise CourseError(f"A calibration needs at least 5 s, not {seconds:g}.")


# -- rates --------------------------------------------------------------------------------------------------


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
        if sum(times) > MOST_SECONDS / 100 and len(times) > 1:
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


# -- operations ---------------------------------------------------------------------------------------------


class TimingRecorder(Recorder):
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
            loss.backward()
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


# -- shares of the peaks -------------------------------------------------------------------------------------


def fit(runs: Sequence[Sequence[Timed]], rates: Rates) -> dict[str, Any]:
    """The coefficients of a device from the timed work of several networks, as an entry of
    ``data/speed.json``.

    The interval comes from networks that are left out one by one and told from the others.
    """
    row = _row([item for run in runs for item in run], rates)
    errors = []
    if len(runs) > 3:
        for left_out in range(len(runs)):
            others = [item for place, run in enumerate(runs) if place != left_out for item in run]
            made = coefficients_from("others", _row(others, rates))
            parts = Parts(WorkTimer("fp32", rates, made))
            for item in runs[left_out]:
                parts.add(item.work, "", "", 1)
            errors.append(math.log(parts.seconds() / math.fsum(item.seconds for item in runs[left_out])))
    spread = max(LEAST_SPREAD, statistics.pstdev(errors) if errors else 0.0)
    factor = math.exp(1.645 * spread)  # nine tenths of a normal distribution
    row["intervals"] = dict.fromkeys(("reference", "reference, rare kinds"), (1 / factor, factor))
    return row


LEAST_SPREAD = 0.06  # a computer's own step times differ by so much from hour to hour


def _row(timed: Sequence[Timed], rates: Rates) -> dict[str, Any]:
    """The coefficients without an honest interval."""
    start = min((item.seconds for item in timed), default=0.0)
    by_kind: dict[str, list[Timed]] = defaultdict(list)
    by_family: dict[str, list[Timed]] = defaultdict(list)
    for item in timed:
        by_kind[item.work.kind].append(item)
        by_family[item.work.family].append(item)
    families = {family: _fit_kind(items, rates, start) for family, items in by_family.items()}
    for family in _FAMILIES:
        families.setdefault(family, {"compute": 0.3, "memory": 0.5})
    kinds = {kind: _fit_kind(items, rates, start) for kind, items in sorted(by_kind.items())}
    for kind in list(kinds):  # a processor has one fused attention; a card would take another in float32
        if kind.startswith("flash_attention"):
            kinds.setdefault(kind.replace("flash", "efficient"), kinds[kind])
    return {
        "reference": rates.name,
        "kinds": kinds,
        "families": families,
        "start_us": start * 1e6,
        "launch_us": 0.0,
        "intervals": {"reference": (1.0, 1.0), "reference, rare kinds": (1.0, 1.0)},
        "note": f"Measured on this machine on {datetime.date.today().isoformat()}.",
    }


_FAMILIES = (
    "convolution",
    "grouped",
    "depthwise",
    "matmul",
    "attention",
    "norm",
    "softmax",
    "pointwise",
    "reduction",
    "copy",
    "gather",
    "pool",
    "optimizer",
)
_SHARES = tuple(2.0 ** (step / 4) for step in range(-32, 13))


def _fit_kind(items: Sequence[Timed], rates: Rates, start: float) -> dict[str, Any]:
    """The two shares under which the times of one kind are predicted best, by a search over a grid.

    The weight of each time is its length: a kind's long runs decide.
    """
    peak = rates.peak("bf16" if items[0].work.half else "fp32")
    weights = [item.seconds for item in items]
    whole = sum(weights) or 1.0

    def loss(compute: float, memory: float) -> float:
        total = 0.0
        for item, weight in zip(items, weights, strict=True):
            arithmetic = item.work.flops / peak / compute
            moving = item.work.nbytes / rates.bandwidth / memory
            told = math.hypot(arithmetic, moving) + start
            total += weight * abs(math.log(told / max(item.seconds, 1e-9)))
        return total / whole

    has_flops = any(item.work.flops for item in items)
    computes = _SHARES if has_flops else (1.0,)
    compute, memory = min(((c, m) for c in computes for m in _SHARES), key=lambda pair: loss(*pair))
    for step in (2 ** (1 / 8), 2 ** (1 / 16), 2 ** (1 / 32)):
        near = [(compute * step**i, memory * step**j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        compute, memory = min(
            near if has_flops else [(1.0, m) for _, m in near], key=lambda pair: loss(*pair)
        )
    return {"compute": compute, "memory": memory, "calls": len(items), "error": loss(compute, memory)}
