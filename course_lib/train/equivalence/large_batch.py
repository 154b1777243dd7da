"""What does the large batch do? The plain run that a step is compared with, and what cannot equal it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from course_lib.train.equivalence.attribution import MicroGradients
from course_lib.train.equivalence.proof import TOLERANCE
from course_lib.train.equivalence.record import Forward, Record
from course_lib.train.equivalence.reference import Task, joined, seeded


@dataclass(frozen=True)
class Clip:
    """How gradients are clipped: by their "norm", each "value" alone, or not at all ("none").

    With a `scale` they are clipped to `limit` times it while they carry it, which is right too, and differs
    in the seventh digit: torch adds 1e-6 to the norm.
    """

    kind: str = "none"
    limit: float = 0.0
    scale: float = 1.0

    def apply(self, parameters: list[nn.Parameter]) -> None:
        """Clip the gradients of these parameters in place."""
        if self.kind == "value":
            nn.utils.clip_grad_value_(parameters, self.limit)
        if self.kind != "norm":
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        for gradient in gradients:
            gradient.mul_(self.scale)
        nn.utils.clip_grad_norm_(parameters, self.limit * self.scale)
        for gradient in gradients:
            gradient.div_(self.scale)

    def clipped(self, gradient: Tensor) -> Tensor:
        """The same for a gradient that is one row of numbers."""
        holder = nn.Parameter(torch.zeros_like(gradient))
        holder.grad = gradient.clone()
        self.apply([holder])
        return holder.grad


@dataclass(frozen=True)
class LargeBatchRun:
    """The gradient of each update, as the optimizer got it, and the weights at the end."""

    gradients: tuple[Tensor, ...]
    weights: Tensor


def run_large_batch(task: Task, clip: Clip, learning_rates: list[float] | None) -> LargeBatchRun:
    """Train from large batches, with these learning rates if there are any."""
    model = task.model()
    optimizer = task.optimizer(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    found: list[Tensor] = []
    with seeded(task.reference.seed):
        for _ in range(task.reference.epochs):
            for window in task.windows():
                optimizer.zero_grad()
                _window_loss(task, model, window).backward()  # type: ignore[no-untyped-call]
                clip.apply(trained)
                if learning_rates and len(found) < len(learning_rates):
                    for group in optimizer.param_groups:
                        group["lr"] = learning_rates[len(found)]
                found.append(
                    torch.cat(
                        [
                            torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                            for p in trained
                        ]
                    )
                )
                optimizer.step()
    return LargeBatchRun(tuple(found), torch.cat([p.detach().flatten() for p in trained]))


def expected_gradient(task: Task, gradients: MicroGradients, passes: list[tuple[Forward, Record]]) -> Tensor:
    """The mean over all samples of these forward passes, from their own gradients."""
    units = [sum(float(task.units[n][row]) for n, row in forward.samples) for forward, _ in passes]
    total = torch.zeros(task.parameters, dtype=torch.float64)
    for (forward, record), counted in zip(passes, units, strict=True):
        total += counted / max(sum(units), 1e-300) * gradients.of_forward(forward, record)
    return total


def by_nature(task: Task, gradients: MicroGradients) -> tuple[str, ...]:
    """Why even a right accumulation is not the large batch for this model: nothing, for most models."""
    window = task.windows()[0]
    model = gradients.model
    gradients.set_weights(
        torch.cat([p.detach().flatten() for p in task.model().parameters() if p.requires_grad])
    )
    model.train()
    with seeded(task.reference.seed):
        whole = torch.cat(
            [
                torch.zeros_like(p).flatten() if g is None else g.flatten()
                for p, g in zip(
                    gradients.trained,
                    torch.autograd.grad(
                        _window_loss(task, model, window), gradients.trained, allow_unused=True
                    ),
                    strict=True,
                )
            ]
        )
        total = task.total(window)
        parts = sum(
            (
                task.total([number]) / total * gradients.gradient(task.batches[number])
                for number in window
                if task.total([number])
            ),
            start=torch.zeros_like(whole),
        )
    difference = float((whole - parts).norm() / whole.norm().clamp_min(1e-300))
    if difference < TOLERANCE:
        return ()
    by = f"the gradients differ by {difference:.0%}" if difference > 0.005 else f"by {difference:.0e}"
    reasons = []
    if any(isinstance(m, _BatchNorm) and m.training for m in model.modules()):
        reasons.append(f"BatchNorm takes mean and variance over each micro-batch alone ({by})")
    if any(isinstance(m, _DropoutNd) and m.p > 0 for m in model.modules()):
        reasons.append(f"dropout draws other masks ({by})")
    if not reasons:
        reasons.append(f"this model's loss on a batch is not the mean of its losses on the parts ({by})")
    return tuple(reasons)


def _window_loss(task: Task, model: nn.Module, window: list[int]) -> Tensor:
    """The mean loss of the micro-batches as one batch; where they do not fit together, from their parts."""
    batches = [task.batches[number] for number in window]
    whole = joined(batches)
    if whole is not None:
        return task.loss(model, whole)
    total = task.total(window)
    losses = [
        task.total([number]) / total * task.loss(model, batch)
        for number, batch in zip(window, batches, strict=True)
        if task.total([number])
    ]
    return torch.stack(losses).sum()
