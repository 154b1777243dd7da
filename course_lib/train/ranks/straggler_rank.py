"""One rank of `time_ranks`: a process that trains with others and tells how long each part of a step took.

Its order comes as one line of JSON on standard input, which then stays open: when it closes, the parent is
gone, and the rank ends.
"""

import threading
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.train.child import leave_answer, take_order


def small_network() -> nn.Module:
    """A convolutional network for images of (1, 32, 32), with some half a million weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16 * 16, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def timed_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    late_s: float,
) -> list[float]:
    """One step of data-parallel training; the seconds of straggler.PARTS."""
    clock = [time.perf_counter()]
    time.sleep(late_s)  # the batch comes late, as from a slow disk
    images, labels = batch
    clock.append(time.perf_counter())
    loss = cross_entropy(model(images), labels)
    torch.autograd.backward(loss)
    own = [p.grad for p in model.parameters() if p.grad is not None]
    gradients = nn.utils.parameters_to_vector(own)
    clock.append(time.perf_counter())
    dist.barrier()  # until every rank is here
    clock.append(time.perf_counter())
    dist.all_reduce(gradients)  # now each rank holds the sum
    clock.append(time.perf_counter())
    gradients /= dist.get_world_size()
    nn.utils.vector_to_parameters(gradients, own)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    clock.append(time.perf_counter())
    return [later - earlier for earlier, later in pairwise(clock)]


def run(order: dict[str, Any]) -> None:
    """Train as one rank, and write the answer."""
    torch.set_num_threads(1)
    store = dist.FileStore(order["store"], order["world_size"])  # type: ignore[attr-defined]
    limit = timedelta(seconds=order["time_limit_s"])
    dist.init_process_group(
        "gloo", store=store, rank=order["rank"], world_size=order["world_size"], timeout=limit
    )
    torch.manual_seed(0)  # all ranks begin with the same weights
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    random = torch.Generator().manual_seed(order["rank"])  # and each has its own images
    images = torch.rand(order["batch_size"], 1, 32, 32, generator=random)
    labels = torch.randint(10, (order["batch_size"],), generator=random)
    answer: dict[str, Any] = {"runs": [], "parameters": sum(p.numel() for p in model.parameters())}
    for late_s in order["late_s"]:
        for _ in range(order["warmup"]):
            timed_step(model, optimizer, (images, labels), 0.0)
            tell_a_step(order)
        seconds = []
        for _ in range(order["steps"]):
            seconds.append(timed_step(model, optimizer, (images, labels), late_s))
            tell_a_step(order)
        weights = float(sum(p.detach().double().sum() for p in model.parameters()))
        answer["runs"].append({"seconds": seconds, "weights": weights})
    leave_answer(order["answer"], answer)
    # The parent ends all ranks when it has all answers: one that left now would cut the others' connections.
    threading.Event().wait(order["time_limit_s"])


def tell_a_step(order: dict[str, Any]) -> None:
    """Rank 0 writes a line for each step, for the parent's progress bar."""
    if order["rank"] == 0:
        print("step", flush=True)


if __name__ == "__main__":
    run(take_order())
