"""What can a learner run under a memory limit? Training steps of a small network, and the search for its
largest batch.

Both are at the top of a module, so that `run_limited` can import them in its child process.
"""

import time

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.models.checkpointing import BlockSaving, block_names, checkpoint_blocks
from course_lib.models.gpt import GPT, GPTConfig
from course_lib.models.zoo import build
from course_lib.train.rescue import find_batch_size
from course_lib.train.rescue.batch_size_result import BatchSizeSearch
from course_lib.train.step import TrainingStep


def train_some_steps(
    batch_size: int, steps: int = 2, model: str = "digits_cnn", channels: int = 1, size: int = 28
) -> float:
    """Train `steps` steps on random images (batch_size, channels, size, size). Returns the last loss."""
    step = _step(model)
    loss = torch.zeros(())
    for _ in range(steps):
        loss = step(_batch(batch_size, channels, size))
    return float(loss)


def train_text_steps(
    batch_size: int = 8,
    *,
    steps: int = 3,
    layers: int = 6,
    width: int = 128,
    context: int = 128,
    checkpointing: bool = False,
) -> float:
    """Train a small GPT for `steps` steps on random tokens (batch_size, context), with each of its blocks
    checkpointed or not. Returns the seconds of the fastest step.
    """
    model = GPT(GPTConfig(256, context, layers, 4, width))
    if checkpointing:
        blocks = block_names(model)
        checkpoint_blocks(model, [BlockSaving(name, 1, 0.0) for name in blocks])
    optimizer = torch.optim.AdamW(model.parameters())
    fastest = float("inf")
    for _ in range(steps):
        tokens = torch.randint(256, (batch_size, context))
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        fastest = min(fastest, time.perf_counter() - begin)
    return fastest


def search_batch_size(
    model: str = "digits_cnn", channels: int = 1, size: int = 28, start: int = 8, largest: int | None = None
) -> BatchSizeSearch:
    """Search the largest batch of such images with which a step fits into what this process may take."""
    return find_batch_size(
        _step(model),
        lambda batch_size: _batch(batch_size, channels, size),
        device="cpu",
        start=start,
        largest=largest,
    )


def _step(model: str) -> TrainingStep:
    network = build(model, num_classes=10)
    return TrainingStep(network, torch.optim.AdamW(network.parameters()))


def _batch(batch_size: int, channels: int, size: int) -> tuple[Tensor, Tensor]:
    return torch.rand(batch_size, channels, size, size), torch.zeros(batch_size, dtype=torch.int64)
