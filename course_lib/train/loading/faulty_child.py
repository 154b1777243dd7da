"""Loaders that go wrong, each for real, in a process of its own.

    python -c "from course_lib.train.loading.faulty_child import run; run('stuck_worker')"

A function here breaks one thing and lets PyTorch say what it says. Where nothing is said, because the fault
is silent, it prints what came out. `faults` runs this in a child and explains what it hears.
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

NOT_HERE = "cannot be provoked here: "
SAMPLES = 64


class Numbers(Dataset[Tensor]):
    """Sample i is the number i."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index)])


class MemoryHog(Numbers):
    """Takes 64 MiB more with each sample and keeps them."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def __getitem__(self, index: int) -> Tensor:
        self.kept.append(torch.ones(2**24))
        return super().__getitem__(index)


class KilledFrom(Numbers):
    """The system ends the worker at one of the samples, as it does when memory is short."""

    def __getitem__(self, index: int) -> Tensor:
        if index == SAMPLES // 2:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return super().__getitem__(index)


class LargeSamples(Numbers):
    """A sample of 8 MiB."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(2**21)


class UnevenSamples(Numbers):
    """Samples of different lengths."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(index % 3 + 1)


class Stuck(Numbers):
    """A sample that never comes, as from a server that does not answer."""

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(3600)
        return super().__getitem__(index)


class BrokenSample(Numbers):
    """One sample of many cannot be read."""

    def __getitem__(self, index: int) -> Tensor:
        if index == SAMPLES // 2:
            raise FileNotFoundError(2, "No such file or directory", "photographs/00032.jpg")
        return super().__getitem__(index)


class OwnRandomness(Numbers):
    """Augments with a generator that it brought along, instead of torch's own."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([self.random.uniform()])


class UnsharedStream(IterableDataset[Tensor]):
    """A stream that does not look which worker it is in."""

    def __iter__(self) -> Iterator[Tensor]:
        for index in range(SAMPLES):
            yield torch.tensor([float(index)])


class OneOpenFile(Dataset[Tensor]):
    """Samples of eight bytes, all equal, read from a file that was opened before the workers were forked."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"".join(bytes([index]) * 8 for index in range(SAMPLES)))
        self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self.file.seek(8 * index)
        time.sleep(0.001)  # the other worker moves the place in the file, which belongs to both
        return torch.tensor([index, *self.file.read(8)])


def lambda_under_spawn() -> None:
    """A lambda cannot be sent to a worker that starts anew."""
    loader = DataLoader(
        Numbers(), 8, num_workers=2, multiprocessing_context="spawn", collate_fn=lambda samples: samples
    )
    next(iter(loader))


def class_of_a_notebook() -> None:
    """A class that was written in a notebook is not there in a worker that starts anew."""
    here: Any = sys.modules["__main__"]  # of `python -c`: like a notebook, no module with a file
    here.MyDataset = type("MyDataset", (Numbers,), {"__module__": "__main__"})
    next(iter(DataLoader(here.MyDataset(), 8, num_workers=2, multiprocessing_context="spawn", timeout=60)))


def no_main_guard() -> None:
    """A script whose loader is not under `


def run(kind: str) -> None:
    """Let this kind of fault happen in this process."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    KINDS[kind]()
