"""What is one training step?

The five lines that every PyTorch beginner knows, in one object that a loop, a timer and a benchmark share,
with the few more that a number format or a bound on the gradients asks for, in the order that is right.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from course_lib.errors import CourseError
from course_lib.train.batch import to_device
from course_lib.train.number_formats.float_formats import Format
from course_lib.train.precision import Precision, precision_for
from course_lib.train.split import Phase
from course_lib.train.timing import StepTimer

LossFn = Callable[[Tensor, Tensor], Tensor]

WHOLE = 1.0
_NO_CONTEXT: AbstractContextManager[None] = nullcontext()


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

    With a `precision`, forward pass and loss run under its autocast, and gradients are scaled where it needs
    that (`grad_scaler` replaces the scaler that is made for it). Without one nothing is set, and an autocast
    around the step holds as it would for your own lines. `max_grad_norm` clips the gradients, after they are
    unscaled. The halves of the step can be called alone, to gather gradients from several batches:

        step.zero_grad()
        for batch in micro_batches:
            step.backward(batch, share=1 / len(micro_batches))
        step.update()
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss_fn: LossFn = cross_entropy,
        *,
        device: str | torch.device | None = None,
        timer: StepTimer | None = None,
        precision: Precision | Format | None = None,
        grad_scaler: GradScaler | None = None,
        max_grad_norm: float | None = None,
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
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise CourseError(f"max_grad_norm must be a number above 0, not {max_grad_norm}.")
        self.max_grad_norm = max_grad_norm
        self.precision = precision_for(precision, self.device)
        if grad_scaler is None and self.precision is not None:
            grad_scaler = self.precision.grad_scaler()
        self.grad_scaler = grad_scaler
        self.skipped = False
        """Whether the last update was left out because the scaled gradients had overflowed."""
        self._autocast = _NO_CONTEXT if self.precision is None else self.precision.autocast()
        self._products = _untouched if self.precision is None else self.precision.float32_products
        self._phase: Callable[[Phase], AbstractContextManager[None]] = (
            timer.phase if timer is not None else _untimed
        )

    def __call__(self, batch: Any) -> Tensor:
        """Train on one batch. Returns its loss, detached and still on the device: nothing waits for it."""
        self.zero_grad()
        loss = self.backward(batch)
        self.update()
        return loss

    def zero_grad(self) -> None:
        """Forget the gradients."""
        with self._phase("optimizer"):
            self.optimizer.zero_grad(set_to_none=True)

    def backward(self, batch: Any, share: float | Tensor = WHOLE) -> Tensor:
        """Forward and backward: add this batch's gradients, times `share`, to those that are there.

        Returns the loss, detached, neither scaled nor multiplied by `share`.
        """
        with self._phase("transfer"):
            inputs, targets = to_device(as_pair(batch), self.device)
        with self._products():
            with self._phase("forward"), self._autocast:
                loss = self.loss_fn(self.model(inputs), targets)
            with self._phase("backward"):
                root = loss * share if share is not WHOLE else loss
                if self.grad_scaler is not None:
                    root = self.grad_scaler.scale(root)
                root.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def update(self) -> None:
        """Change the weights by the gradients, unless these overflowed (then `skipped` is True).

        With a scaler: unscale, clip, step, adapt the scale, each once. `skipped` then waits for the device.
        """
        scaler = self.grad_scaler
        with self._phase("optimizer"):
            if self.max_grad_norm is not None:
                if scaler is not None:
                    scaler.unscale_(self.optimizer)
                clip_grad_norm_(self._parameters(), self.max_grad_norm)
            if scaler is None:
                self.optimizer.step()
                return
            before = scaler.get_scale()
            scaler.step(self.optimizer)
            scaler.update()
            self.skipped = scaler.get_scale() < before

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


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
    return _NO_CONTEXT


def _untouched() -> AbstractContextManager[None]:
    return _NO_CONTEXT
