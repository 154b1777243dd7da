"""What is each one-line lever worth here, pulled alone?

Each lever is one line that people paste: a memory layout, a fused optimizer, TF32, torch.compile. All
variants of the step take turns with the plain one, and each is compared with it alone; what shows no effect
is said to show none.
"""

import copy
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW

from course_lib.errors import CourseError
from course_lib.train.batch import to_device
from course_lib.train.device_time import timed_call
from course_lib.train.misfit import one_sentence, require_model
from course_lib.train.precision import Precision
from course_lib.train.preformatted import preformatted
from course_lib.train.step import LossFn, TrainingStep, as_pair, device_of

PLAIN = "nothing changed"
LEVERS: Mapping[str, str] = {
    "bf16": "torch.autocast(device_type, dtype=torch.bfloat16)",
    "TF32": 'torch.backends.cuda.matmul.fp32_precision = "tf32"',
    "channels_last": "model.to(memory_format=torch.channels_last), and the inputs too",
    "fused optimizer": "AdamW(..., fused=True)",
    "torch.compile": "torch.compile(model)",
}
"""Name and line of each lever."""

NOISE = 0.03  # a lever whose interval holds 1, or that changes less than this, shows no effect


@dataclass(frozen=True)
class LeverGain:
    """How many times as fast the step is with one lever: the median, and where it lies in 19 of 20 cases."""

    lever: str
    times: float
    low: float
    high: float
    rounds: int

    @property
    def shows(self) -> bool:
        """Whether there is an effect beyond the noise of this measurement."""
        return not self.low <= 1 <= self.high and abs(self.times - 1) > NOISE

    def __str__(self) -> str:
        effect = f"{self.times:.2f} times as fast" if self.shows else "no effect seen"
        return f"{self.lever}: {effect} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class LeverGains:
    """All levers that were pulled, and those that this device does not have."""

    gains: Mapping[str, LeverGain]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        lines = [str(gain) for gain in self.gains.values()]
        lines += [f"{lever}: cannot be tested here" for lever in self.left_out]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def time_levers(
    model: nn.Module,
    batch: Any,
    *,
    levers: Sequence[str] = ("bf16", "TF32", "channels_last", "fused optimizer"),
    loss_fn: LossFn = cross_entropy,
    rounds: int = 30,
    budget_s: float = 3.0,
) -> LeverGains:
    """Time a training step with AdamW plain, and with each lever alone, in turns; the model is not changed.

    `batch` is a pair (inputs, targets). `budget_s` is for all rounds together, but at least three are done.
    torch.compile is not among the default levers: the first step may take a minute, and it needs a compiler.
    Raises CourseError for a lever that is not known, and when model, loss and batch do not fit together.
    """
    unknown = [lever for lever in levers if lever not in LEVERS]
    if unknown:
        raise CourseError(f"There is no lever {unknown[0]!r}; there are {', '.join(LEVERS)}.")
    require_model(model)
    device = device_of(model)
    wanted = [lever for lever in levers if lever != "TF32" or device.type == "cuda"]
    plain = to_device(as_pair(batch), device)
    with one_sentence():
        steps = {name: _step(model, plain, name, loss_fn) for name in (PLAIN, *wanted)}
        for step in steps.values():
            for _ in range(2):
                timed_call(step, device)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + budget_s
    for done in range(rounds):
        if done >= 3 and time.perf_counter() > end:
            break
        for name, step in steps.items():
            seconds[name].append(timed_call(step, device))
    gains = {name: _gain(name, seconds[PLAIN], seconds[name]) for name in wanted}
    return LeverGains(gains, tuple(lever for lever in levers if lever not in wanted))


def _step(model: nn.Module, batch: tuple[Any, Any], lever: str, loss_fn: LossFn) -> Callable[[], object]:
    device = device_of(model)
    trained = copy.deepcopy(model).train()
    inputs, targets = batch
    if lever == "channels_last":
        trained = trained.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs
    optimizer = AdamW(trained.parameters(), lr=1e-4, fused=True if lever == "fused optimizer" else None)
    called: Any = torch.compile(trained) if lever == "torch.compile" else trained
    name = {"bf16": "bf16", "TF32": "tf32"}.get(lever, "fp32")
    precision = Precision(name, device.type)  # type: ignore[arg-type]
    step = TrainingStep(called, optimizer, loss_fn, device=device, precision=precision)
    return lambda: step((inputs, targets))


def _gain(lever: str, plain: list[float], own: list[float]) -> LeverGain:
    ratios = sorted(a / b for a, b in zip(plain, own, strict=True))
    many = len(ratios)
    outside = max(0, math.floor(many / 2 - math.sqrt(many)))  # two standard deviations of a binomial count
    return LeverGain(lever, statistics.median(ratios), ratios[outside], ratios[-1 - outside], many)
