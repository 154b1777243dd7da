"""What does one update cost, when its global batch is cut into micro-batches of this size?

    cost = update_cost(global_batch=512, micro_batch=64)
    cost.kept_bytes, cost.seconds

The course's digits network on made-up images. The update is the same whatever the cut (but for BatchNorm and
dropout, which see micro-batches), so memory and time are what differs.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape

import torch
from torch import Tensor

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.train.accumulation import AccumulatingStep
from course_lib.train.saved_memory import saved_bytes
from course_lib.train.step import TrainingStep
from course_lib.units import format_bytes, format_seconds

IMAGE_SIZE = 16  # pixels a side
MOST_UPDATES = 25
MOST_SAMPLES = 16_384


@dataclass(frozen=True)
class UpdateCost:
    """One update from a global batch, in micro-batches; `seconds` is the median of `updates`.

    `kept_bytes` is what the forward pass of one micro-batch keeps for its backward pass, `steady_bytes` what
    is there all the time: weights, gradients and the optimizer's two numbers for each weight (AdamW).
    """

    global_batch: int
    micro_batch: int
    kept_bytes: int
    steady_bytes: int
    seconds: float
    updates: int

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches in one update."""
        return math.ceil(self.global_batch / self.micro_batch)

    @property
    def seconds_per_sample(self) -> float:
        """Seconds that one image takes."""
        return self.seconds / self.global_batch

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self) | {"accumulation_steps": self.accumulation_steps})

    def __str__(self) -> str:
        return (
            f"{self.accumulation_steps} x {self.micro_batch}: {format_bytes(self.kept_bytes)} of "
            f"activations, {format_seconds(self.seconds)} an update, "
            f"{format_seconds(self.seconds_per_sample)} an image"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


def update_cost(
    global_batch: int = 512,
    micro_batch: int = 64,
    *,
    budget_s: float = 1.0,
    device: str | torch.device = "cpu",
    progress: Callable[[float, str], None] | None = None,
) -> UpdateCost:
    """Measure it: one update to warm up, then as many as fit into `budget_s` seconds, but at least one.

    Raises CourseError for sizes outside 1 to MOST_SAMPLES, a micro-batch larger than the global batch, or no
    time.
    """
    check_cut(global_batch, micro_batch, budget_s)
    if micro_batch > global_batch:
        raise CourseError(
            f"A global batch of {global_batch} cannot be cut into micro-batches of {micro_batch}: take 1 to "
            f"{global_batch} samples."
        )
    tell = progress or (lambda share, doing: None)
    tell(0.0, "making the batch")
    device = torch.device(device)
    batches = _batches(global_batch, micro_batch, device)
    model = DigitsCNN().to(device)
    step = AccumulatingStep(TrainingStep(model, torch.optim.AdamW(model.parameters())), len(batches))
    kept = saved_bytes(model, batches[0])
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    seconds: list[float] = []
    begin = time.perf_counter()
    while len(seconds) <= MOST_UPDATES and (len(seconds) < 2 or time.perf_counter() - begin < budget_s):
        at = time.perf_counter()
        for window in step.windows(batches):
            step(window).item()  # asks for the number, and so waits until the device is done
        seconds.append(time.perf_counter() - at)
        tell(min(1.0, (time.perf_counter() - begin) / budget_s), f"update {len(seconds)}")
    tell(1.0, "done")
    measured = seconds[1:]
    return UpdateCost(
        global_batch, micro_batch, kept, 4 * parameters, statistics.median(measured), len(measured)
    )


def check_cut(global_batch: int, micro_batch: int, budget_s: float) -> None:
    """Raise CourseError, naming the one at fault, for sizes or a time that nothing can be measured with."""
    whole_in(global_batch, "The global batch", 1, MOST_SAMPLES)
    whole_in(micro_batch, "The micro-batch", 1, MOST_SAMPLES)
    number_in(budget_s, "The time to measure, in seconds,", 0.001, 600)


def one_update(global_batch: int, micro_batch: int) -> float:
    """Make one update on the CPU, and return its loss; for `run_limited`, which gives it little memory."""
    batches = _batches(global_batch, micro_batch, torch.device("cpu"))
    model = DigitsCNN()
    step = AccumulatingStep(TrainingStep(model, torch.optim.AdamW(model.parameters())), len(batches))
    (window,) = step.windows(batches)
    return float(step(window))


def _batches(global_batch: int, micro_batch: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(0)
    images = torch.rand(global_batch, 1, IMAGE_SIZE, IMAGE_SIZE, generator=random).to(device)
    labels = torch.randint(10, (global_batch,), generator=random).to(device)
    return list(zip(torch.split(images, micro_batch), torch.split(labels, micro_batch), strict=True))
