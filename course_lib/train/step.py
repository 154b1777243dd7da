"""What is one training step?

The five lines that every PyTorch beginner knows, in one object that a loop, a timer and a benchmark share.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from course_lib.errors import CourseError
from course_lib.train.batch import to_device
from course_lib.train.split import Phase
from course_lib.train.timing import StepTimer

LossFn = Callable[[Tensor, Tensor], Tensor]

_NO_PHASE = nullcontext()


def device_of(model: nn.Module) -> torch.device:
    """The device that holds the model's parameters; the CPU for a model that has none."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


class TrainingStep:
    """Transfer, zero_grad, forward, backward, optimizer: once a call.

        step = TrainingStep(model, optimizer)
        for batch in loader:
            loss = step(batch)

    A batch is a pair (inputs, targets), as a loader yields it. `loss_fn(outputs, targets)` returns one
    number, the mean over the batch. `device` is by default where the model is. With a `timer`, each part
    runs in its phase; zero_grad counts as optimizer.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss_fn: LossFn = cross_entropy,
        *,
        device: str | torch.device | None = None,
        timer: StepTimer | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.device = device_of(model) if device is None else torch.device(device)
        if timer is not None and timer.device.type != self.device.type:
            raise CourseError(
                f"The timer is for {timer.device} and the model is on {self.device}: build it as "
                f'StepTimer("{self.device.type}").'
            )
        self._phase: Callable[[Phase], AbstractContextManager[None]] = (
            timer.phase if timer is not None else _untimed
        )

    def __call__(self, batch: Any) -> Tensor:
        """Train on one batch. Returns its loss, detached and still on the device: nothing waits for it."""
        with self._phase("transfer"):
            inputs, targets = to_device(as_pair(batch), self.device)
        with self._phase("optimizer"):
            self.optimizer.zero_grad(set_to_none=True)
        with self._phase("forward"):
            loss = self.loss_fn(self.model(inputs), targets)
        with self._phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        with self._phase("optimizer"):
            self.optimizer.step()
        return loss.detach()


def as_pair(batch: Any) -> tuple[Any, Any]:
    """The batch as (inputs, targets). Raises CourseError when it is not two things."""
    if isinstance(batch, Mapping):
        raise CourseError(
            "A batch must be a pair (inputs, targets); the loader gave a dict with "
            f"{', '.join(map(repr, batch))}: choose two, as in "
            '((batch["pixels"], batch["label"]) for batch in loader).'
        )
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise CourseError(
            "A batch must be a pair (inputs, targets); the loader gave one thing of type "
            f"{type(batch).__name__}"
            f"{f', of length {len(batch)}' if isinstance(batch, (tuple, list)) else ''}."
        )
    return batch[0], batch[1]


def _untimed(name: Phase) -> AbstractContextManager[None]:
    return _NO_PHASE
