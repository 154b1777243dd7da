"""How long does the same work take in each number format?

The formats take turns, round by round, so that other work on the machine slows all alike; each round gives
one ratio to float32, and their spread is told. A format that would need longer than the budget for one call
is not run: the estimate for it comes from a small matrix product (``format_speed``) and is called that.
"""

import copy
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from course_lib.errors import CourseError
from course_lib.train.device_time import timed_call
from course_lib.train.misfit import one_sentence, require_model
from course_lib.train.number_formats.float_formats import FLOAT_FORMATS, Format
from course_lib.train.number_formats.format_speed import matmul_speedups
from course_lib.train.precision import Precision
from course_lib.train.preformatted import preformatted
from course_lib.train.step import LossFn, TrainingStep, device_of
from course_lib.units import format_seconds

WARMUP = 2
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class FormatTime:
    """One format's median seconds, and how many times as fast as fp32 it is: median, 10 % and 90 % quantile.

    What was not run has no speed-up; its seconds are an estimate, and `note` says so.
    """

    format: Format
    seconds: float
    rounds: int
    speedup: float | None
    low: float | None
    high: float | None
    note: str = ""


@dataclass(frozen=True)
class FormatTimes:
    """The same work in several formats on one device."""

    work: str
    device: str
    times: Mapping[Format, FormatTime]

    def to_json(self) -> dict[str, Any]:
        """All figures as plain data, in seconds."""
        return {
            "work": self.work,
            "device": self.device,
            "times": {name: asdict(time) for name, time in self.times.items()},
        }

    def __str__(self) -> str:
        lines = [f"{self.work} on {self.device}"]
        for name, one in self.times.items():
            if one.speedup is None:
                told = one.note
            elif name == "fp32":
                told = ""
            else:
                told = f"{one.speedup:.2g} times as fast as fp32 ({one.low:.2g} to {one.high:.2g})"
            lines.append(f"  {name:5} {format_seconds(one.seconds):>9}  {told}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def formats_of(device: str | torch.device) -> tuple[Format, ...]:
    """The formats that a kind of device can be told to train in: all on CUDA, elsewhere all but tf32."""
    kind = torch.device(device).type
    return tuple(name for name in FLOAT_FORMATS if kind == "cuda" or name != "tf32")


def time_formats(
    work: str,
    make: Callable[[Precision], Callable[[], object]],
    *,
    device: str | torch.device = "cpu",
    formats: Sequence[Format] | None = None,
    budget_s: float = 2.0,
    rounds: int = 30,
    progress: Callable[[int, int], None] | None = None,
) -> FormatTimes:
    """Time what `make(precision)` returns, in each format of the device, in turns.

    `budget_s` is for each format: it bounds the rounds, and a format whose single call is estimated to be
    longer is not run. fp32 is always run, as all are compared with it. Raises CourseError for a budget or
    rounds that leave nothing to measure.
    """
    if not budget_s > 0 or rounds < 1:
        raise CourseError(f"A budget of {budget_s} s and {rounds} rounds leave nothing to measure.")
    device = torch.device(device)
    wanted = tuple(dict.fromkeys(("fp32", *(formats or formats_of(device)))))
    calls = {name: make(Precision(name, device.type)) for name in wanted}
    seconds: dict[Format, list[float]] = {"fp32": []}
    notes: dict[Format, float] = {}
    for _ in range(WARMUP):
        plain_s = timed_call(calls["fp32"], device)
    speedups = matmul_speedups(device) if len(wanted) > 1 else {}
    for name in wanted[1:]:
        estimate = plain_s / min(1.0, speedups.get(name, 1.0))
        if estimate > budget_s / LEAST_ROUNDS:
            notes[name] = estimate
            continue
        for _ in range(WARMUP):
            if timed_call(calls[name], device) > budget_s / LEAST_ROUNDS:
                break
        seconds[name] = []
    spent = dict.fromkeys(seconds, 0.0)
    for done in range(rounds):
        going = [name for name in seconds if done < LEAST_ROUNDS or spent[name] < budget_s]
        if going == ["fp32"] and len(seconds) > 1:
            break
        for name in going:
            took = timed_call(calls[name], device)
            seconds[name].append(took)
            spent[name] += took
        if progress is not None:
            progress(done + 1, rounds)
    times = {name: _figures(name, seconds[name], seconds["fp32"]) for name in seconds}
    for name, estimate in notes.items():
        told = f"not run: a matrix product suggests {format_seconds(estimate)}"
        times[name] = FormatTime(name, estimate, 0, None, None, None, told)
    return FormatTimes(work, device.type, {name: times[name] for name in wanted})


def time_steps(
    model: nn.Module,
    batch: Any,
    *,
    loss_fn: LossFn = cross_entropy,
    make_optimizer: Callable[[Any], Optimizer] = lambda parameters: SGD(parameters, lr=1e-3),
    name: str | None = None,
    **settings: Any,
) -> FormatTimes:
    """Time a whole training step of copies of the model in each format, with `settings` of time_formats.

    Raises CourseError when model, loss and batch do not fit together.
    """

    def make(precision: Precision) -> Callable[[], object]:
        trained = copy.deepcopy(model).train()
        step = TrainingStep(trained, make_optimizer(trained.parameters()), loss_fn, precision=precision)
        return lambda: step(batch)

    require_model(model)
    with one_sentence():
        make(Precision("fp32", device_of(model).type))()
    work = name or f"a training step of {type(model).__name__}"
    return time_formats(work, make, device=device_of(model), **settings)


def _figures(name: Format, own: list[float], plain: list[float]) -> FormatTime:
    ratios = sorted(b / a for a, b in zip(own, plain, strict=False))
    low, high = ratios[round(0.1 * (len(ratios) - 1))], ratios[round(0.9 * (len(ratios) - 1))]
    return FormatTime(name, statistics.median(own), len(own), statistics.median(ratios), low, high)
