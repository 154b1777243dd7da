"""Where in its epochs is a run, and how does it find back there?

`Resumption` keeps the position of a training run while it goes, saves it with the checkpoint, and sets the
data to it when the run is resumed.
"""

from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from course_lib.errors import CourseError
from course_lib.train import checkpoint as checkpoints
from course_lib.train.data import ResumableSampler
from course_lib.train.history import EpochResult, Evaluation


class Resumption:
    """The position of a run: complete epochs, steps in the one that is open, and its loss so far.

    Without a path nothing is saved, and any loader will do. With one, the loader must draw from a
    ResumableSampler in batches of a known size. Raises CourseError where that is not so.
    """

    def __init__(
        self,
        path: str | Path | None,
        every: int | None,
        *,
        loader: Iterable[Any],
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        grad_scaler: GradScaler | None = None,
    ) -> None:
        if path is None and every is not None:
            raise CourseError("checkpoint_every needs a checkpoint: give the path to save to.")
        if every is not None and every < 1:
            raise CourseError(f"checkpoint_every must be 1 step or more, not {every}.")
        self._path = path
        self._every = every
        self._parts: dict[str, Any] = {
            "model": model,
            "optimizer": optimizer,
            "scheduler": scheduler,
            "grad_scaler": grad_scaler,
        }
        self._sampler = getattr(loader, "sampler", None)
        self._dataset = getattr(loader, "dataset", None)
        self._batch_size = getattr(loader, "batch_size", None)
        self._restore: Callable[[], None] | None = None
        if path is not None and not (isinstance(self._sampler, ResumableSampler) and self._batch_size):
            raise CourseError(
                "A run with checkpoints must know which samples it has seen: build the loader as "
                "DataLoader(dataset, batch_size=64, sampler=ResumableSampler(dataset))."
            )
        if isinstance(self._sampler, ResumableSampler):
            self._sampler.set_epoch(0)  # an interrupted run may have left it in the middle of an epoch
        self.epoch = 0
        self.step = 0
        self.seconds = 0.0  # of the open epoch, before this process took it up
        self.loss_total = 0.0
        self.samples = 0
        self.epochs: list[EpochResult] = []

    def begin_epoch(self) -> Callable[[], None] | None:
        """Set the data to where the run is. Returns what to call before the first batch, if anything."""
        if isinstance(self._sampler, ResumableSampler):
            start = self.step * (self._batch_size or 0)
            self._sampler.set_epoch(self.epoch, min(start, self._sampler.length))
        else:
            _tell_epoch(self._sampler, self.epoch)
        _tell_epoch(self._dataset, self.epoch)
        restore, self._restore = self._restore, None
        return restore

    def close_epoch(self, test: Evaluation | None, seconds: float) -> None:
        """Add the open epoch to the complete ones."""
        result = EpochResult(self.epoch + 1, self.loss_total / self.samples, test, seconds)
        self.epochs.append(result)
        self.epoch, self.step, self.seconds, self.loss_total, self.samples = self.epoch + 1, 0, 0.0, 0.0, 0

    def due(self) -> bool:
        """Whether a checkpoint is to be saved after this step."""
        return self._every is not None and self.step % self._every == 0

    def save(self, seconds: float = 0.0) -> None:
        """Save a checkpoint, if there is a path for it; `seconds` are those of the open epoch so far."""
        if self._path is None:
            return
        position = {
            "epoch": self.epoch,
            "step": self.step,
            "seconds": seconds,
            "loss_total": self.loss_total,
            "samples": self.samples,
            "epochs": [astuple(result) for result in self.epochs],
            "data": self._data(),
        }
        checkpoints.save(self._path, **self._parts, position=position)

    def resume(self) -> None:
        """Go on from the checkpoint, or from the start when there is none yet."""
        if self._path is None:
            raise CourseError("resume needs a checkpoint: give the path that the run was saved to.")
        if not checkpoints.exists(self._path):
            return
        loaded = checkpoints.load(self._path, **self._parts)
        position = loaded.position
        if position["data"] != self._data():
            raise CourseError(
                f"The checkpoint {loaded.source} belongs to a run over {_told(position['data'])}; this run "
                f"is over {_told(self._data())}: set it up as it was, or start without resuming."
            )
        self.epoch, self.step, self.seconds = position["epoch"], position["step"], position["seconds"]
        self.loss_total, self.samples = position["loss_total"], position["samples"]
        self.epochs = [
            EpochResult(number, loss, test and Evaluation(*test), seconds)
            for number, loss, test, seconds in position["epochs"]
        ]
        if self.step:  # between epochs, starting the loader is still to come, and takes its own draw
            self._restore = loaded.restore_random_state

    def _data(self) -> dict[str, Any]:
        sampler = self._sampler
        assert isinstance(sampler, ResumableSampler)  # a path is only taken with one
        return {"samples": sampler.length, "batch_size": self._batch_size, "seed": sampler.seed}


def _tell_epoch(part: Any, epoch: int) -> None:
    if hasattr(part, "set_epoch"):
        part.set_epoch(epoch)


def _told(data: dict[str, Any]) -> str:
    return f"{data['samples']} samples in batches of {data['batch_size']}, seed {data['seed']}"
