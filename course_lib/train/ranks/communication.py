"""How much of a training step is spent on exchanging gradients, and how fast is the link between the ranks?

`measure_communication` takes steps with and without the exchange (DDP's `no_sync`) in turn. What the exchange
adds to a step is its exposed part: what DDP could hide behind the backward pass costs nothing. No profiler is
needed, and it works the same over gloo and NCCL. `trace_buckets` shows what is hidden, and how.
"""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from course_lib.errors import CourseError
from course_lib.train.ranks.ranks_timing import as_table, median_interval, slowest, time_together
from course_lib.units import format_bytes, format_seconds, format_share


@dataclass(frozen=True)
class CommunicationShare:
    """What the exchange of gradients adds to a step of `world_size` ranks. Times in seconds.

    `with_s` and `without_s` are medians over the pairs of steps, of the slowest rank in each. `exposed_s`
    is the median of the pairs' differences, and `exposed_low_s` to `exposed_high_s` its 90 % interval
    (bootstrap). `gradient_bytes` is what each rank has to give, `sent_bytes` what it sends for that in a
    ring.
    """

    world_size: int
    backend: str
    with_s: float
    without_s: float
    exposed_s: float
    exposed_low_s: float
    exposed_high_s: float
    gradient_bytes: int
    pairs: int

    @property
    def share(self) -> float:
        """Exposed communication in the step, 0 to 1; 0 where none showed."""
        return min(1.0, max(0.0, self.exposed_s / self.with_s))

    @property
    def share_interval(self) -> tuple[float, float]:
        """The 90 % interval of the share, 0 to 1."""
        low, high = (min(1.0, max(0.0, s / self.with_s)) for s in (self.exposed_low_s, self.exposed_high_s))
        return low, high

    @property
    def sent_bytes(self) -> int:
        """Bytes that each rank sends in a step: 2 (n - 1) / n of the gradients, in a ring."""
        return round(2 * (self.world_size - 1) / self.world_size * self.gradient_bytes)

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self) | {"share": self.share, "sent_bytes": self.sent_bytes})

    def _rows(self) -> list[tuple[str, str]]:
        low, high = self.share_interval
        return [
            ("ranks", f"{self.world_size}, over {self.backend}"),
            ("step with the exchange", format_seconds(self.with_s)),
            ("step without", format_seconds(self.without_s)),
            (
                "exposed communication",
                f"{format_share(self.share)} of a step ({format_share(low)} to {format_share(high)})",
            ),
            (
                "gradients",
                f"{format_bytes(self.gradient_bytes)}; sent a step {format_bytes(self.sent_bytes)}",
            ),
            ("measured", f"{self.pairs} pairs of steps"),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':<24} {value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        return as_table(self._rows())


@dataclass(frozen=True)
class BucketTrace:
    """One step's buckets of gradients: bytes, and when each was sent and had come back.

    Seconds from the start of the backward pass, which itself ended at `backward_s`, the exchange not
    waited for.
    """

    sizes: tuple[int, ...]
    begin_s: tuple[float, ...]
    end_s: tuple[float, ...]
    backward_s: float


def gradient_bytes(model: nn.Module) -> int:
    """Bytes of all gradients of a model."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def measure_communication(
    model: DistributedDataParallel, step: Callable[[], object], *, pairs: int = 20, warmup: int = 3
) -> CommunicationShare:
    """As a rank, take steps with and without the exchange in turn, and tell what the exchange adds.

    Every rank must call it. `step` runs forward, backward and what else belongs to a step, on `model`. The
    weights are put back at the end: without the exchange, the ranks' would part. Raises CourseError
    without a pair.
    """
    if pairs < 1 or warmup < 1:
        raise CourseError(
            f"At least one pair of steps and one to warm up are needed, not {pairs} and {warmup}."
        )
    device = next(model.parameters()).device
    state = {name: value.detach().clone() for name, value in model.module.state_dict().items()}
    times = torch.zeros(2, pairs, dtype=torch.float64)
    for number in range(-warmup, pairs):
        for kind in (0, 1) if number % 2 else (1, 0):
            with nullcontext() if kind == 0 else model.no_sync():
                seconds = time_together(step, device)
            if number >= 0:
                times[kind, number] = seconds
    model.module.load_state_dict(state)
    times = slowest(times, device)
    low, middle, high = median_interval((times[0] - times[1]).tolist())
    return CommunicationShare(
        dist.get_world_size(), dist.get_backend(), float(times[0].median()), float(times[1].median()),
        middle, low, high, gradient_bytes(model), pairs,
    )  # fmt: skip


def trace_buckets(
    model: DistributedDataParallel, forward: Callable[[], torch.Tensor], *, warmup: int = 2
) -> BucketTrace:
    """As a rank, watch the buckets of one step. Every rank must call it, on a DDP model without a hook.

    `forward` returns the loss. DDP orders its buckets anew after the first step, so some are taken before.
    """
    noted: list[list[float]] = []

    def hook(
        state: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        row = [float(bucket.buffer().nbytes), time.perf_counter(), 0.0]
        noted.append(row)
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        assert work is not None

        def done(future: Any) -> torch.Tensor:
            row[2] = time.perf_counter()
            tensor: torch.Tensor = future.value()[0]
            return tensor

        chained: torch.futures.Future[torch.Tensor] = work.get_future().then(done)
        return chained

    model.register_comm_hook(None, hook)
    begin = 0.0
    for _ in range(warmup + 1):
        model.zero_grad()
        loss = forward()
        noted.clear()
        begin = time.perf_counter()
        loss.backward()  # type: ignore[no-untyped-call]
    return BucketTrace(
        tuple(int(row[0]) for row in noted),
        tuple(row[1] - begin for row in noted),
        tuple(row[2] - begin for row in noted),
        max(row[1] for row in noted) - begin,
    )
