"""What was each update made of? The gradient that an update used, taken apart into micro-batches.

A gradient in float64 with some hundred components tells exactly how much of each micro-batch's gradient is
in it: one number for each, by least squares. These numbers say what happened, whatever the code looks like.
They are given as *ratios*: 1 where a sample counts for its share of the window, 0 where it is missing, 4
where a loss was not divided by 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course_lib.train.equivalence.record import Forward, Record, Update
from course_lib.train.equivalence.reference import Task, joined, rows_of

UNEXPLAINED = 1e-7
"""Above this part of a gradient's norm, something is in it that no recorded forward pass explains."""
OLD = 1e-6
"""More than this of an old gradient is not noise. With a scaler an old one is divided by the scale again."""
_MOST_COMPONENTS = 50_000  # of the gradient that are looked at: enough to tell some dozen batches apart


@dataclass(frozen=True)
class Attribution:
    """One update, taken apart.

    `ratios` has a row for each epoch and a column for each micro-batch: how much of it is in this update,
    over its share of the window. `unexplained` is the part of the gradient that comes from none of them.
    """

    rank: int
    update: Update
    version: int
    ratios: Tensor
    unexplained: float


class MicroGradients:
    """Gradients of the mean loss of recorded forward passes, computed anew at the weights they had."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.model = task.model()
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self._kept: dict[tuple[object, ...], Tensor] = {}

    def of_forward(self, forward: Forward, record: Record) -> Tensor:
        """The gradient of the mean loss over the samples of a forward pass, at the weights of that moment."""
        key = (record.rank, forward.version, forward.samples, forward.random.numpy().tobytes())
        if key not in self._kept:
            self.set_weights(record.weights[forward.version])
            self.model.train(forward.training)
            parts = self._parts(forward.samples)
            pieces = [rows_of(self.task.batches[number], rows) for number, rows in parts]
            units = [float(self.task.units[number][rows].sum()) for number, rows in parts]
            total = math.fsum(units)
            whole = joined(pieces) if total else None
            gradient = torch.zeros(self.task.parameters, dtype=torch.float64)
            if whole is not None:
                gradient = self.gradient(whole, forward.random)
            else:
                for piece, counted in zip(pieces, units, strict=True):
                    if counted:
                        gradient += counted / total * self.gradient(piece, forward.random)
            self._kept[key] = gradient
        return self._kept[key]

    def gradient(self, batch: object, random: Tensor | None = None) -> Tensor:
        """The gradient of the mean loss of a batch at the present weights."""
        before = torch.get_rng_state()
        try:
            if random is not None:
                torch.set_rng_state(random)
            loss = self.task.loss(self.model, batch)
            found = torch.autograd.grad(loss, self.trained, allow_unused=True)
        finally:
            torch.set_rng_state(before)
        return torch.cat(
            [
                (torch.zeros_like(p) if g is None else g).flatten()
                for p, g in zip(self.trained, found, strict=True)
            ]
        )

    def set_weights(self, weights: Tensor) -> None:
        """Give the model these weights."""
        with torch.no_grad():
            nn.utils.vector_to_parameters(weights, self.trained)

    @staticmethod
    def _parts(samples: tuple[tuple[int, int], ...]) -> list[tuple[int, Tensor]]:
        rows: dict[int, list[int]] = {}
        for number, row in samples:
            rows.setdefault(number, []).append(row)
        return [(number, torch.tensor(of_batch)) for number, of_batch in rows.items()]


def attribute(records: list[Record], gradients: MicroGradients) -> list[Attribution]:
    """Take apart all updates of all ranks."""
    found = []
    for record in records:
        found += [_attribute(record, version, records, gradients) for version in range(len(record.updates))]
    return found


def _attribute(record: Record, version: int, records: list[Record], gradients: MicroGradients) -> Attribution:
    """First from the forward passes since the update before, then, if that does not do, from all so far."""
    task, update = gradients.task, record.updates[version]
    target = update.gradient if update.unclipped is None else update.unclipped
    size = float(target.norm())
    for everything in (False, True):
        sources = _sources(records, record, version, everything=everything)
        weights, rest = _solve(target, [gradients.of_forward(f, r) for f, r in sources])
        unexplained = rest / size if size else 0.0
        if unexplained < UNEXPLAINED:
            break
    totals = [task.total(window) for window in task.windows()]
    ratios = torch.zeros(task.reference.epochs, len(task.batches), dtype=torch.float64)
    window_of = {number: at for at, window in enumerate(task.windows()) for number in window}
    for (forward, _), weight in zip(sources, weights, strict=True):
        units = [float(task.units[number][row]) for number, row in forward.samples]
        for (number, _), counted in zip(forward.samples, units, strict=True):
            if counted and number in window_of:
                own = float(task.units[number].sum())
                ratios[forward.epoch, number] += (
                    weight * counted / sum(units) * totals[window_of[number]] / own
                )
    return Attribution(record.rank, update, version, ratios, unexplained)


def _sources(
    records: list[Record], own: Record, version: int, *, everything: bool
) -> list[tuple[Forward, Record]]:
    """The forward passes whose gradients may be in an update: this rank's, and those of the other ranks."""
    found: dict[tuple[object, ...], tuple[Forward, Record]] = {}
    for record in records:
        ends = [update.forwards for update in record.updates] or [0]
        end = ends[version] if version < len(ends) else len(record.forwards)
        begin = 0 if everything or not version else ends[min(version, len(ends)) - 1]
        for forward in record.forwards[begin:end]:
            key = (record.rank, forward.version, forward.samples, forward.random.numpy().tobytes())
            found.setdefault(key, (forward, record))
    return list(found.values())


def _solve(target: Tensor, sources: list[Tensor]) -> tuple[list[float], float]:
    """Least squares: the weights of the sources in the target, and the norm of what is left."""
    if not sources:
        return [], float(target.norm())
    matrix = torch.stack(sources, dim=1)
    if len(target) > _MOST_COMPONENTS:
        chosen = torch.randperm(len(target), generator=torch.Generator().manual_seed(0))[:_MOST_COMPONENTS]
        part, aim = matrix[chosen], target[chosen]
    else:
        part, aim = matrix, target
    lengths = part.norm(dim=0).clamp_min(1e-300)
    weights = torch.linalg.lstsq(part / lengths, aim[:, None], driver="gelsd").solution[:, 0] / lengths
    return weights.tolist(), float((target - matrix @ weights).norm())
