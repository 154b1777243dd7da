"""How fast is the link between the ranks? All-reduces timed over sizes, and the latency and bandwidth
behind them.

The two figures are what predicts larger jobs: the time of a ring all-reduce is
`2 (n - 1) latency + 2 (n - 1) / n size / bandwidth` (Patarasuk and Yuan, 2009).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
import torch.distributed as dist

from course_lib.errors import CourseError
from course_lib.train.ranks.ranks_timing import as_table, slowest, time_together
from course_lib.units import format_bytes, format_count, format_seconds


@dataclass(frozen=True)
class LinkBenchmark:
    """How long an all-reduce of `sizes` bytes takes between `world_size` ranks: medians in seconds, and 10
    % to 90 %.

    `latency_s` and `bandwidth` (bytes per second) are fitted to
    `2 (n - 1) latency + 2 (n - 1) / n size / bandwidth`, the time of a ring (Patarasuk and Yuan, 2009).
    """

    world_size: int
    backend: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    low_s: tuple[float, ...]
    high_s: tuple[float, ...]
    latency_s: float
    bandwidth: float

    def predict_s(self, size: float, world_size: int | None = None) -> float:
        """Seconds of an all-reduce of `size` bytes by the fit, also for another number of ranks."""
        return ring_seconds(size, world_size or self.world_size, self.latency_s, self.bandwidth)

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self))

    def _rows(self) -> list[tuple[str, str]]:
        return [
            ("link", f"{self.world_size} ranks over {self.backend}"),
            ("latency", format_seconds(self.latency_s)),
            ("bandwidth", format_count(self.bandwidth, "B") + "/s"),
            *((format_bytes(n), format_seconds(s)) for n, s in zip(self.sizes, self.seconds, strict=True)),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':<24} {value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        return as_table(self._rows())


def ring_seconds(size: float, world_size: int, latency_s: float, bandwidth: float) -> float:
    """Seconds of a ring all-reduce of `size` bytes between `world_size` ranks; 0 for a single rank."""
    n = world_size
    return 2 * (n - 1) * latency_s + 2 * (n - 1) / n * size / bandwidth


def measure_link(
    sizes: Sequence[int] = (4 * 2**10, 64 * 2**10, 2**20, 4 * 2**20, 16 * 2**20),
    *,
    repeats: int = 15,
    device: str | torch.device = "cpu",
) -> LinkBenchmark:
    """As a rank, time all-reduces of these sizes in bytes. Every rank must call it.

    Raises CourseError for fewer than two sizes, one below 4 bytes, fewer than three repeats, or a single
    rank.
    """
    if len(sizes) < 2 or min(sizes) < 4 or repeats < 3:
        raise CourseError("A link needs two sizes of 4 bytes or more, and three repeats or more.")
    if dist.get_world_size() < 2:
        raise CourseError("A link is between two ranks or more; this group has one.")
    place = torch.device(device)
    times = torch.zeros(len(sizes), repeats, dtype=torch.float64)
    for row, size in enumerate(sizes):
        tensor = torch.zeros(size // 4, device=place)
        exchange = partial(dist.all_reduce, tensor)
        for number in range(-2, repeats):
            seconds = time_together(exchange, place)
            if number >= 0:
                times[row, number] = seconds
    times = slowest(times, place)
    medians = times.median(dim=1).values.tolist()
    low, high = (torch.quantile(times, q, dim=1).tolist() for q in (0.1, 0.9))
    n = dist.get_world_size()
    latency, bandwidth = fit_ring(sizes, medians, n)
    return LinkBenchmark(
        n, dist.get_backend(), tuple(sizes), tuple(medians), tuple(low), tuple(high), latency, bandwidth
    )


def fit_ring(sizes: Sequence[int], seconds: Sequence[float], world_size: int) -> tuple[float, float]:
    """(latency in s, bandwidth in bytes/s) of a ring that takes these times, by least relative squares.

    A size that took longer than a larger one was disturbed by something else: it counts as the larger one.
    Raises CourseError when the times do not grow with the size.
    """
    n = world_size
    seconds = [min(s for other, s in zip(sizes, seconds, strict=True) if other >= size) for size in sizes]
    if max(seconds) == min(seconds):
        raise CourseError("The times do not grow with the size: measure larger sizes too.")
    weights = [1 / s for s in seconds]
    rows = [(2 * (n - 1) * w, 2 * (n - 1) / n * size * w) for size, w in zip(sizes, weights, strict=True)]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ay, by = (sum(r[i] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    latency = (ay * bb - by * ab) / determinant if determinant else 0.0
    slope = (by * aa - ay * ab) / determinant if determinant else 0.0
    if latency < 0:
        latency, slope = 0.0, by / bb
    if not slope > 0:
        raise CourseError("The times do not grow with the size: measure larger sizes too.")
    return latency, 1 / slope
