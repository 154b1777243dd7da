"""What do ranks run to have their communication measured? Targets for `launch`, with plain data in and
out.
"""

import statistics
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib.train.distributed import Ranks, process_group
from course_lib.train.ranks.communication import measure_communication, trace_buckets
from course_lib.train.ranks.emulated_network import EmulatedNetwork
from course_lib.train.ranks.link import measure_link
from course_lib.train.ranks.ranks_timing import slowest, time_together

MIB = 2**20


def measure_emulated(
    *,
    compute_s: float = 0.05,
    gradient_mib: float = 8.0,
    layers: int = 8,
    bucket_cap_mb: float | None = None,
    pairs: int = 10,
    trace: bool = False,
) -> dict[str, Any]:
    """The communication of a step that computes for an emulated `compute_s`, over the real all-reduce.

    Returns the fields of a CommunicationShare, and with `trace` those of a BucketTrace.
    """
    with process_group(device="cpu", timeout_s=60) as ranks:
        torch.set_num_threads(1)
        return _measure(
            ranks,
            compute_s=compute_s,
            gradient_mib=gradient_mib,
            layers=layers,
            bucket_cap_mb=bucket_cap_mb,
            pairs=pairs,
            trace=trace,
        )


def _measure(
    ranks: Ranks,
    *,
    compute_s: float,
    gradient_mib: float,
    pairs: int,
    layers: int = 8,
    bucket_cap_mb: float | None = None,
    trace: bool = False,
) -> dict[str, Any]:
    network = EmulatedNetwork(compute_s=compute_s, gradient_bytes=round(gradient_mib * MIB), layers=layers)
    model = ranks.wrap(network, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True)
    inputs = torch.zeros(1, requires_grad=True)

    def forward() -> Tensor:
        loss: Tensor = model(inputs).sum()
        return loss

    def step() -> None:
        model.zero_grad()
        forward().backward()  # type: ignore[no-untyped-call]

    found: dict[str, Any] = {"share": asdict(measure_communication(model, step, pairs=pairs))}
    if trace:
        found["trace"] = asdict(trace_buckets(model, forward))
    return found


def measure_scaling(
    compute_s: float = 0.05, gradient_mib: float = 8.0, pairs: int = 10, repeats: int = 15
) -> dict[str, Any]:
    """The link between these ranks, then the emulated step over it: fields of LinkBenchmark,
    CommunicationShare.
    """
    with process_group(device="cpu", timeout_s=60) as ranks:
        torch.set_num_threads(1)
        link = asdict(measure_link(repeats=repeats)) if ranks.world_size > 1 else None
        return {"link": link, **_measure(ranks, compute_s=compute_s, gradient_mib=gradient_mib, pairs=pairs)}


def measure_injected(
    compute_s: float, volumes_mib: list[float], pairs: int = 15, repeats: int = 15
) -> list[dict[str, Any]]:
    """For each volume, two roads to one share: measured with `no_sync`, and from a clock on the exchange
    alone.

    The network has one layer, so that nothing of its exchange can be hidden: "expected" is what the
    exchange of the volume takes by its own clock, as a share of the step that it is a part of.
    """
    rows = []
    with process_group(device="cpu", timeout_s=60) as ranks:
        torch.set_num_threads(1)
        for volume in volumes_mib:
            times = exchange_times(volume, repeats)
            share = _measure(
                ranks, compute_s=compute_s, gradient_mib=volume, pairs=pairs, layers=1, bucket_cap_mb=1024.0
            )["share"]
            alone = statistics.median(times + exchange_times(volume, repeats))  # before and after
            measured = max(0.0, share["exposed_s"] / share["with_s"])
            rows.append(
                {"mib": volume, "measured": measured, "expected": alone / (alone + share["without_s"])}
            )
    return rows


def exchange_times(mib: float, repeats: int) -> list[float]:
    """As a rank, seconds of the exchange of so many MiB, of the slowest rank, time after time.

    It is what DDP does with a bucket: gradients copied into it and divided by the ranks, then the all-reduce.
    """
    gradient = torch.ones(round(mib * MIB) // 4)
    bucket = torch.zeros_like(gradient)

    def exchange() -> None:
        torch.div(gradient, dist.get_world_size(), out=bucket)
        dist.all_reduce(bucket)

    times = [time_together(exchange, bucket.device) for _ in range(repeats + 2)]
    found: list[float] = slowest(torch.tensor([times[2:]], dtype=torch.float64), bucket.device)[0].tolist()
    return found


def measure_network(width: int = 512, batch_size: int = 64, pairs: int = 10) -> dict[str, Any]:
    """The communication of a really computed step on this computer: three linear layers of this width."""
    with process_group(timeout_s=60) as ranks:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
        model = ranks.wrap(network)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        inputs = torch.rand(batch_size, width, device=ranks.device)

        def step() -> None:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()

        return asdict(measure_communication(model, step, pairs=pairs))
