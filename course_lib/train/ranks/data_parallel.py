"""Do several ranks compute the same as one process? Data-parallel training twice: by hand, and with DDP.

Each function is what one rank runs, under `launch`, under torchrun, or alone as a group of one:

    launch("course_lib.train.ranks.data_parallel:train_digits", 2, arguments={"steps": 20})
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from course_lib.errors import CourseError
from course_lib.train.data import Digits
from course_lib.train.distributed import process_group
from course_lib.train.ranks.global_batches import GlobalBatches


def small_network(seed: int = 0) -> nn.Sequential:
    """A network for the digits without BatchNorm, whose statistics would depend on each rank's share."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)).double()


def average_gradients(model: nn.Module) -> None:
    """After the backward pass: each rank takes the mean of all ranks' gradients."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)  # the sum over the ranks
            parameter.grad /= dist.get_world_size()


def train_digits(
    steps: int = 50,
    global_batch_size: int = 100,
    by_hand: bool = False,
    keep_every: int = 1,
    forget_set_epoch: bool = False,
) -> dict[str, Any]:
    """Train on the digits for so many steps, as many epochs as that takes, in float64.

    Returns:
        "losses": of each `keep_every`-th global batch; "weights": the parameters at the end as one list;
        "samples": the indices that this rank trained on, step by step.
    """
    with process_group(device="cpu", timeout_s=60) as ranks:
        torch.set_num_threads(1)
        plain = small_network()
        model: nn.Module = plain if by_hand else ranks.wrap(plain)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
        dataset = Digits("train")
        batches = GlobalBatches(dataset, global_batch_size, rank=ranks.rank, world_size=ranks.world_size)
        loader = DataLoader(dataset, batch_sampler=batches)
        losses: list[float] = []
        samples: list[list[int]] = []
        epoch = 0
        while len(samples) < steps:
            batches.set_epoch(0 if forget_set_epoch else epoch)
            for indices, (images, labels), scale in zip(batches, loader, batches.scales(), strict=True):
                loss = cross_entropy(model(images.double()), labels)
                optimizer.zero_grad()
                _backward(loss * scale)
                if by_hand:
                    average_gradients(plain)
                optimizer.step()
                if len(samples) % keep_every == 0:
                    losses.append(ranks.mean(float(loss.detach()) * len(labels), len(labels)))
                samples.append(indices)
                if len(samples) == steps:
                    break
            epoch += 1
        weights = nn.utils.parameters_to_vector(plain.parameters()).tolist()
    return {"losses": losses, "weights": weights, "samples": samples}


def largest_difference(one: list[float], other: list[float]) -> float:
    """The largest absolute difference of two lists of equal length. Raises CourseError for another length."""
    if len(one) != len(other) or not one:
        raise CourseError(f"Lists of {len(one)} and {len(other)} numbers cannot be compared.")
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
