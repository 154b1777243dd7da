"""How is a thing timed that several ranks do together? They begin together, and the slowest counts."""

import html
import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from course_lib.errors import CourseError

RESAMPLES = 1000


def time_together(action: Callable[[], object], device: torch.device) -> float:
    """As a rank, seconds of an action that all ranks begin together, its work on the device included."""
    dist.barrier()
    _wait_for(device)
    begin = time.perf_counter()
    action()
    _wait_for(device)
    return time.perf_counter() - begin


def _wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def slowest(times: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Of each time, that of the slowest rank."""
    shared = times if dist.get_backend() == "gloo" else times.to(device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return shared.cpu()


def median_interval(values: Sequence[float], level: float = 0.9) -> tuple[float, float, float]:
    """(low, median, high): the median and its bootstrap interval, the same for the same values."""
    if not values:
        raise CourseError("A median needs a value.")
    generator = torch.Generator().manual_seed(0)
    drawn = torch.tensor(values, dtype=torch.float64)
    chosen = drawn[torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)]
    medians = chosen.quantile(0.5, dim=1)
    low, high = (float(torch.quantile(medians, q)) for q in ((1 - level) / 2, (1 + level) / 2))
    return low, statistics.median(values), high


def as_table(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values as an HTML table, escaped."""
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{body}</table>"
