"""How does a process become one rank of several, and what do the ranks have to do together?

    with process_group() as ranks:
        model = ranks.wrap(model)
        ranks.print("only once")
        loss = ranks.mean(loss_sum, samples)

The same lines run as one process, under torchrun on one computer, and on several nodes: `process_group` reads
what torchrun sets, chooses device and backend, and always takes the group down again.
"""

import atexit
import errno
import gc
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from course_lib.errors import CourseError
from course_lib.units import format_seconds

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each rank."""

BACKENDS: Mapping[str, str] = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo", "mps": "gloo"}
"""The backend that moves tensors of a device between ranks. gloo moves those of the CPU, on every system."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Ranks:
    """This process as one of `world_size` ranks: which one it is, and what all do together.

    `rank` counts over all computers, `local_rank` on this one: that is the number of its card.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    backend: str

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which prints and saves for all."""
        return self.rank == 0

    def wrap(self, model: nn.Module, **settings: Any) -> DistributedDataParallel:
        """The model on this rank's device, as DDP: all ranks start with rank 0's weights."""
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(model.to(self.device), device_ids=ids, **settings)

    def print(self, *values: object) -> None:
        """Print on rank 0 only."""
        if self.is_first:
            print(*values, flush=True)

    def tqdm(self, items: Iterable[Item], **settings: Any) -> Iterable[Item]:
        """A progress bar on rank 0, and just the items on the others."""
        from tqdm.auto import tqdm

        bar: Iterable[Item] = tqdm(items, disable=not self.is_first, **settings)
        return bar

    def mean(self, total: float, count: float) -> float:
        """The mean over all ranks of a sum over `count` samples on each, whatever their counts are.

        Every rank must call it. nan where no rank has a sample.
        """
        pair = torch.tensor([total, count], dtype=torch.float64)
        pair = pair.to(self.device, torch.float32 if self.device.type == "mps" else torch.float64)
        if self.backend == "gloo":
            pair = pair.cpu()
        dist.all_reduce(pair)
        return float(pair[0] / pair[1]) if pair[1] else math.nan

    def once(self, action: Callable[[], object]) -> None:
        """Let rank 0 do something, such as saving a checkpoint, while the others wait for its end.

        Every rank must call it. Where the action fails on rank 0, it raises there as it did, and a
        CourseError on the others: none of them goes on without.
        """
        told: list[str | None] = [None]
        try:
            if self.is_first:
                action()
        except Exception as error:
            told = [f"{type(error).__name__}: {error}"]
            raise
        finally:
            dist.broadcast_object_list(told, src=0, device=self._object_device)
        if told[0] is not None:
            raise CourseError(f"Rank 0 could not do what all wait for ({told[0]}).")

    @property
    def _object_device(self) -> torch.device:
        return torch.device("cpu") if self.backend == "gloo" else self.device


def join(model: nn.Module) -> AbstractContextManager[Any]:
    """Within it, ranks may have different numbers of batches: one that is done answers for the others.

    With DDP, the gradient of a late step is still divided by the number of all ranks, as it was before. A
    model that is not DDP needs nothing.
    """
    if isinstance(model, DistributedDataParallel):
        joined: AbstractContextManager[Any] = model.join(divide_by_initial_world_size=True)
        return joined
    return nullcontext()


@contextmanager
def process_group(
    backend: str | None = None, *, device: str | None = None, timeout_s: float = 600.0
) -> Iterator[Ranks]:
    """Join the other ranks, and take the group down at the end, however it ends.

    Without any of torchrun's variables this is a group of one. `device` is "cuda", "cpu" and so on; by
    default a card for each rank of this computer where there are cards, else the CPU. `backend` is by
    default the one for that device. A rank that waits `timeout_s` for another gives up with an error.

    Within another `process_group` this is the same group, which goes on after it.

    Raises:
        CourseError: a variable is missing or wrong, the port is taken, ranks do not come, there is no card
            for this rank, or this torch has no such backend.
    """
    if not timeout_s > 0:
        raise CourseError(f"The time limit must be more than 0 s, not {timeout_s}.")
    rank, local_rank, world_size = _read_environment(os.environ)
    chosen = _device(device, local_rank)
    if dist.is_initialized():
        yield Ranks(dist.get_rank(), local_rank, dist.get_world_size(), chosen, dist.get_backend())
        return
    name = backend or BACKENDS[chosen.type]
    if not dist.is_backend_available(name):
        raise CourseError(
            f"This torch has no backend {name!r}: use one of {', '.join(available_backends()) or 'none'}. "
            "gloo works on every system, for tensors on the CPU."
        )
    if name in ("nccl", "xccl") and name != BACKENDS[chosen.type]:
        raise CourseError(
            f"The backend {name} moves tensors of a card, and this rank works on the {chosen.type}: use gloo."
        )
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    try:
        _init(name, rank, world_size, timeout_s)
    except (RuntimeError, ValueError, OSError) as error:
        if dist.is_initialized():
            dist.destroy_process_group()
        raise CourseError(_told(error, world_size, timeout_s)) from error
    # gloo's threads end with the last reference to the group, and DDP models, which hold it, are in cycles. A
    # thread that is left when the interpreter ends may abort the process.
    atexit.unregister(gc.collect)  # once is enough
    atexit.register(gc.collect)
    try:
        yield Ranks(rank, local_rank, world_size, chosen, name)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def available_backends() -> list[str]:
    """The backends that this torch was built with."""
    return [name for name in ("nccl", "gloo", "mpi", "ucc", "xccl") if dist.is_backend_available(name)]


def _init(backend: str, rank: int, world_size: int, timeout_s: float) -> None:
    limit = timedelta(seconds=timeout_s)
    if not any(name in os.environ for name in VARIABLES):
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=limit)  # type: ignore[attr-defined]
    else:
        store, _, _ = next(rendezvous("env://", rank, world_size, timeout=limit))
        # torchrun starts ranks anew with the same store: what those before them wrote must not be read.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)


def _read_environment(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """(rank, local rank, world size); (0, 0, 1) where none of the variables is set."""
    missing = [name for name in VARIABLES if not environment.get(name)]
    if len(missing) == len(VARIABLES):
        return 0, 0, 1
    if missing:
        raise CourseError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set, and the other variables "
            "of a rank are: start the script with torchrun, which sets all of them."
        )
    numbers = {}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"):
        if not re.fullmatch(r"\d+", environment[name].strip()):
            raise CourseError(f"{name} is {environment[name]!r}: it must be a whole number, 0 or more.")
        numbers[name] = int(environment[name])
    if numbers["MASTER_PORT"] > 65535:
        raise CourseError(f"MASTER_PORT is {numbers['MASTER_PORT']}: ports end at 65535; 29500 is usual.")
    rank, world_size = numbers["RANK"], numbers["WORLD_SIZE"]
    if not 0 <= rank < world_size:
        raise CourseError(
            f"RANK is {rank} and WORLD_SIZE {world_size}: ranks count from 0 to WORLD_SIZE - 1, so the world "
            "size is too small, or the rank is wrong."
        )
    return rank, numbers["LOCAL_RANK"], world_size


def _device(device: str | None, local_rank: int) -> torch.device:
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda":
        cards = torch.cuda.device_count()
        if local_rank >= cards:
            raise CourseError(
                f"Rank {local_rank} of this computer needs card {local_rank}, and there are {cards}: start "
                "as many ranks as there are cards (torchrun --nproc-per-node), or use device='cpu'."
            )
        return torch.device("cuda", local_rank)
    if kind not in BACKENDS:
        raise CourseError(f"There is no device {device!r} for ranks: use one of {', '.join(BACKENDS)}.")
    available: Mapping[str, Callable[[], bool]] = {
        "mps": torch.backends.mps.is_available,
        "xpu": torch.xpu.is_available,
    }
    if kind in available and not available[kind]():
        raise CourseError(f"There is no {kind} device on this computer: use device='cpu'.")
    return torch.device(kind)


def _told(error: Exception, world_size: int, timeout_s: float) -> str:
    """The sentence for a group that did not come together."""
    text = str(error)
    where = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    if (
        "EADDRINUSE" in text
        or "address already in use" in text
        or getattr(error, "errno", 0) == errno.EADDRINUSE
    ):
        return (
            f"Port {os.environ.get('MASTER_PORT')} is in use by another program, perhaps another training: "
            "choose another MASTER_PORT, or start with torchrun --standalone, which finds a free one."
        )
    joined = re.search(r"(\d+)/(\d+) (?:clients|workers) joined", text)
    if joined:
        return (
            f"Only {joined[1]} of {world_size} ranks came within {format_seconds(timeout_s)}: start as "
            "many as WORLD_SIZE says, on all computers, or correct WORLD_SIZE."
        )
    if re.search("tim(ed|e) ?out|connect|resolve", text, re.IGNORECASE):
        return (
            f"The ranks did not find each other at {where} within {format_seconds(timeout_s)}: is WORLD_SIZE "
            f"({world_size}) the number of ranks that were started, does rank 0 run there, and does the "
            "network let them through?"
        )
    first = (text.strip().splitlines() or [type(error).__name__])[0]
    return f"The {world_size} rank{'s' * (world_size != 1)} could not form a group ({first})."
