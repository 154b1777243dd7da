"""How do several small batches become one large one, with the same update?

    for window in windows(loader, 4):
        for micro in window:
            with micro.sync(model):
                loss = loss_fn(model(micro.inputs), micro.targets) * micro.weight
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()

A *window* is what one update is made of: so many micro-batches, and fewer at the end of an epoch. Each loss
is weighted by its share of the window's samples (or tokens), so that the sum of the gradients is the gradient
of the mean over the whole window. `AccumulatingStep` does this with a `TrainingStep`, its precision, its
clipping, and a scheduler.

With DistributedDataParallel, gradients travel once a window, and the weights are shares of all ranks'
windows together, whatever number of batches each rank has.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler

from course_lib.errors import CourseError
from course_lib.train.batch import samples_in
from course_lib.train.step import TrainingStep, as_pair

Count = Callable[[Any], int]
"""How many samples, or tokens, the mean of a batch's loss is taken over."""

IGNORED: Final = -100
"""The target that torch's cross_entropy leaves out, by its default."""


def tokens_in(batch: Any) -> int:
    """The tokens that count in a batch (inputs, targets): targets that are not -100."""
    return int((as_pair(batch)[1] != IGNORED).sum())


@dataclass(frozen=True)
class MicroBatch:
    """One small batch of a window.

    `weight` is what its mean loss is multiplied by: its share of the window's samples or tokens, times the
    number of ranks, since DistributedDataParallel takes the mean over ranks. 0 for a batch that only keeps
    the other ranks company. `last` says that the gradients travel after this one.
    """

    batch: Any
    weight: float
    last: bool

    @property
    def inputs(self) -> Any:
        """The first of a batch (inputs, targets)."""
        return as_pair(self.batch)[0]

    @property
    def targets(self) -> Any:
        """The second of a batch (inputs, targets)."""
        return as_pair(self.batch)[1]

    def sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Around forward *and* backward pass: `model.no_sync()`, except on the last micro-batch of a window.

        DistributedDataParallel decides in the forward pass whether the backward pass will send. Models of one
        process have nothing to send.
        """
        if self.last or not isinstance(model, DistributedDataParallel):
            return nullcontext()
        return model.no_sync()


@dataclass(frozen=True)
class Window:
    """The micro-batches of one update on this rank, and the samples or tokens of all ranks in it."""

    micro_batches: tuple[MicroBatch, ...]
    total: int

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self.micro_batches)

    def __len__(self) -> int:
        return len(self.micro_batches)


def windows(
    batches: Iterable[Any], accumulation_steps: int, *, count: Count = samples_in, distributed: bool = False
) -> Iterator[Window]:
    """Cut a pass over batches into windows of `accumulation_steps`; the last one may be shorter.

    Any iterable will do, with or without a length. The batches of one window are fetched together, as their
    weights depend on all of them: they wait where the loader puts them, which is not on the card.

    With `distributed`, all ranks of the default process group get the same number of windows: before each one
    they agree on its size. A rank that has run out of batches sees its last one again, with weight 0, so that
    none waits for it in vain. Batches in which nothing counts (only ignored tokens) are left out.

    Raises CourseError for a number of steps below 1, and for a rank that begins without a batch.
    """
    if accumulation_steps < 1:
        raise CourseError(f"accumulation_steps must be 1 or more, not {accumulation_steps}.")
    world_size = dist.get_world_size() if distributed else 1
    source = iter(batches)
    latest: list[tuple[Any, int]] = []
    while True:
        taken = tuple(islice(source, accumulation_steps))
        sizes = [count(batch) for batch in taken]
        counted = [(batch, size) for batch, size in zip(taken, sizes, strict=True) if size > 0]
        latest = counted[-1:] or latest
        total, alive, without = sum(sizes), bool(taken), not latest
        if distributed:
            total, alive, without = _agree(total, alive, without)
        if not alive:
            return
        if not total:
            continue
        if without:
            raise CourseError(
                "A rank began without a batch in which anything counts: give one to each, or use fewer ranks."
            )
        counted = counted or [(latest[0][0], 0)]
        yield Window(
            tuple(
                MicroBatch(batch, world_size * size / total, number == len(counted))
                for number, (batch, size) in enumerate(counted, start=1)
            ),
            total,
        )


def _agree(total: int, alive: bool, without: bool) -> tuple[int, bool, bool]:
    """The samples of all ranks; whether any rank still has batches, and whether any never had one."""
    device = torch.accelerator.current_accelerator() if dist.get_backend() != "gloo" else None
    numbers = torch.tensor([total, alive, without], dtype=torch.int64, device=device)
    dist.all_reduce(numbers)
    total, living, empty = numbers.tolist()
    return total, living > 0, empty > 0


class AccumulatingStep:
    """One update from a window of micro-batches: zero_grad, forward and backward of each, then the update.

        step = AccumulatingStep(TrainingStep(model, optimizer, precision="fp16", max_grad_norm=1.0), 4)
        for window in step.windows(loader):
            loss = step(window)

    The `step`'s loss is the mean over what `count` counts: samples by default, `tokens_in` for text. Its
    scaler, clipping and optimizer act once a window, on the whole gradient. So does the `scheduler`, unless
    the scaler skipped the update.
    """

    def __init__(
        self,
        step: TrainingStep,
        accumulation_steps: int,
        *,
        count: Count = samples_in,
        scheduler: LRScheduler | None = None,
    ) -> None:
        self.step = step
        self.accumulation_steps = accumulation_steps
        self.count = count
        self.scheduler = scheduler

    def windows(self, batches: Iterable[Any]) -> Iterator[Window]:
        """Windows for this step, over any iterable; the same number on each rank of a distributed model."""
        distributed = isinstance(self.step.model, DistributedDataParallel)
        return windows(batches, self.accumulation_steps, count=self.count, distributed=distributed)

    def __call__(self, window: Window) -> Tensor:
        """Train on one window. Returns its mean loss, detached and still on the device.

        On several ranks, the mean of what they return is the mean loss of the window.
        """
        self.step.zero_grad()
        losses = []
        for micro in window:
            with micro.sync(self.step.model):
                losses.append(self.step.backward(micro.batch, share=micro.weight) * micro.weight)
        self.step.update()
        if self.scheduler is not None and not self.step.skipped:
            self.scheduler.step()
        return torch.stack(losses).sum()
