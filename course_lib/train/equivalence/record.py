"""What happened while a step ran? Plain data: forward passes, updates, and the calls between them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Forward:
    """One forward pass: which samples, as pairs (micro-batch, row), and in which state of the model.

    `version` counts the updates before it, and `random` is the state of torch's random numbers when it began.
    """

    samples: tuple[tuple[int, int], ...]
    epoch: int
    version: int
    training: bool
    random: Tensor


@dataclass(frozen=True)
class Update:
    """One `optimizer.step()`: the gradient that it used, and the learning rate.

    `forwards` is how many forward passes there had been. `unclipped` is the gradient as the last
    clipping found it, without the loss scale, or None without clipping.
    """

    gradient: Tensor
    unclipped: Tensor | None
    learning_rate: float
    forwards: int
    epoch: int


@dataclass
class Record:
    """All that was seen of a run on one rank.

    `weights` are all trained parameters in a row: at the start, and after each update. `calls` are the names
    of what was called, in order, each with a number: "forward", "zero_grad", "update", "scale",
    "unscale", "scaler.step", "scaler.update", "clip", "schedule", "no_sync", "sync" (bytes), "epoch".
    `error` is what stopped the run; `own_line` where in the step.
    """

    rank: int = 0
    forwards: list[Forward] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    calls: list[tuple[str, float]] = field(default_factory=list)
    error: str = ""
    own_line: str = ""
    unknown_inputs: int = 0

    def count(self, name: str) -> int:
        """How often something was called."""
        return sum(call == name for call, _ in self.calls)

    def values(self, name: str) -> list[float]:
        """The numbers that came with these calls."""
        return [value for call, value in self.calls if call == name]

    def save(self, path: Path) -> None:
        """Write it as one .npz file, whole or not at all."""
        facts = {
            "rank": self.rank,
            "calls": self.calls,
            "error": self.error,
            "own_line": self.own_line,
            "unknown_inputs": self.unknown_inputs,
            "forwards": [[f.samples, f.epoch, f.version, f.training] for f in self.forwards],
            "updates": [
                [u.learning_rate, u.forwards, u.epoch, u.unclipped is not None] for u in self.updates
            ],
        }
        arrays: dict[str, Any] = {f"random{i}": f.random.numpy() for i, f in enumerate(self.forwards)}
        arrays |= {f"weights{i}": weights.numpy() for i, weights in enumerate(self.weights)}
        for i, update in enumerate(self.updates):
            arrays[f"gradient{i}"] = update.gradient.numpy()
            if update.unclipped is not None:
                arrays[f"unclipped{i}"] = update.unclipped.numpy()
        half = path.with_suffix(".part.npz")
        np.savez(half, facts=np.array(json.dumps(facts)), **arrays)
        half.replace(path)

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "facts"}
            facts = json.loads(str(file["facts"]))
        record = cls(
            facts["rank"],
            calls=[(name, value) for name, value in facts["calls"]],
            error=facts["error"],
            own_line=facts["own_line"],
            unknown_inputs=facts["unknown_inputs"],
        )
        record.forwards = [
            Forward(tuple((b, r) for b, r in samples), epoch, version, training, arrays[f"random{i}"])
            for i, (samples, epoch, version, training) in enumerate(facts["forwards"])
        ]
        record.updates = [
            Update(arrays[f"gradient{i}"], arrays[f"unclipped{i}"] if clipped else None, rate, seen, epoch)
            for i, (rate, seen, epoch, clipped) in enumerate(facts["updates"])
        ]
        many = sum(name.startswith("weights") for name in arrays)
        record.weights = [arrays[f"weights{i}"] for i in range(many)]
        return record
