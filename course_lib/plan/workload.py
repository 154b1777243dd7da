"""What is one training step? Model, batch, loss, optimizer, precision: everything a prediction starts
from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from course_lib.errors import CourseError
from course_lib.plan.optimizers import OptimizerRule, optimizer_rule

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
PRECISIONS: dict[str, torch.dtype | None] = {
    "fp32": None,
    "tf32": None,  # the same bytes as fp32: only the multiplications are rounded
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


@dataclass(frozen=True)
class Batch:
    """What one call of the model gets, and what its output is compared with."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    target: Any = None


@dataclass(frozen=True)
class Workload:
    """One training step, described and not yet run.

    ``model`` makes the module (or returns the learner's own: it is copied, never changed). ``batch``
    makes one micro-batch of the given size; it runs under fake tensors, so it may ask for any size.
    ``loss(output, target)`` gives one number. ``precision`` fp16 and bf16 mean autocast with float32
    parameters. With ``accumulate`` n, the optimizer steps after n micro-batches of ``micro_batch``
    samples.
    """

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    loss: Callable[[Any, Any], torch.Tensor]
    micro_batch: int = 32
    optimizer: OptimizerRule = field(default_factory=lambda: optimizer_rule("sgd"))
    precision: Precision = "fp32"
    accumulate: int = 1
    checkpointing: bool = False
    channels_last: bool = False

    def __post_init__(self) -> None:
        if self.micro_batch < 1 or self.accumulate < 1:
            raise CourseError(
                "A step needs at least one sample and one micro-batch, "
                f"not {self.micro_batch} and {self.accumulate}."
            )
        if self.precision not in PRECISIONS:
            raise CourseError(
                f"Precision {self.precision!r} is not known; choose one of {', '.join(PRECISIONS)}."
            )

    def with_batch(self, micro_batch: int) -> Workload:
        """The same step at another micro-batch."""
        return replace(self, micro_batch=micro_batch)

    @property
    def global_batch(self) -> int:
        """Samples between two optimizer steps on one card."""
        return self.micro_batch * self.accumulate


def workload_from(
    module: nn.Module,
    sample: Any,
    target: Any = None,
    *,
    loss: Callable[[Any, Any], torch.Tensor] | None = None,
    optimizer: str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] = "sgd",
    **settings: Any,
) -> Workload:
    """A Workload from the learner's own module and one sample batch.

    ``sample`` is what the module is called with: a tensor, a tuple of arguments or a dict of keyword
    arguments. Every tensor whose first dimension equals that of the first tensor grows and shrinks with
    the batch; the others stay. ``loss`` defaults to :func:`default_loss`. ``settings`` are further fields
    of Workload. Nothing of ``module`` is changed. Raises CourseError for what is no module, and for a sample
    without a tensor.
    """
    if not isinstance(module, nn.Module):
        raise CourseError(f"{module!r:.60} is no torch.nn.Module: give your model itself.")
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(sample, dict):
        kwargs = dict(sample)
    elif isinstance(sample, tuple | list):
        args = tuple(sample)
    else:
        args = (sample,)
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.dim() > 0]
    if not tensors:
        raise CourseError(
            "The sample batch holds no tensor; give the tensor, tuple or dict that the model is called with."
        )
    size = tensors[0].shape[0]
    spec = _Spec(args, kwargs, target, size)
    return Workload(
        name=settings.pop("name", type(module).__name__),
        model=lambda: module,
        batch=spec.batch,
        loss=loss or default_loss,
        optimizer=optimizer_rule(optimizer),
        micro_batch=settings.pop("micro_batch", size),
        **settings,
    )


@dataclass(frozen=True)
class _Spec:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Any
    size: int

    def batch(self, batch_size: int) -> Batch:
        def grow(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                shape = list(value.shape)
                if shape and shape[0] == self.size:
                    shape[0] = batch_size
                return torch.empty(shape, dtype=value.dtype)
            if isinstance(value, tuple | list):
                return type(value)([grow(item) for item in value])
            if isinstance(value, dict):
                return {name: grow(item) for name, item in value.items()}
            return value

        return Batch(grow(self.args), grow(self.kwargs), grow(self.target))


def default_loss(output: Any, target: Any) -> torch.Tensor:
    """The loss that a bare model is trained with.

    The model's own ``loss`` where its output has one; cross entropy where the target holds classes
    (integers); mean squared error where it holds numbers; else the mean of the output. Outputs with
    auxiliary heads (Inception, DeepLab) add theirs.
    """
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    heads = _tensors(output)
    if not heads:
        raise CourseError("The model's output holds no tensor to make a loss from; give a loss function.")
    total = None
    for head in heads:
        if not isinstance(target, torch.Tensor):
            loss = head.float().mean()
        elif target.is_floating_point():
            loss = functional.mse_loss(head, target)
        else:
            loss = functional.cross_entropy(head, target)
        total = loss if total is None else total + loss
    assert total is not None
    return total


def _tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = tuple(output.values())
    if isinstance(output, tuple | list):
        return [tensor for item in output for tensor in _tensors(item)]
    return []
