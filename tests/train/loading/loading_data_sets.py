"""Data sets for the tests, importable so that workers can be started anew."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from course_lib.train.stage_marks import decoding, reading

PIECE_S = 0.01


def wait(seconds: float) -> None:
    """Wait in equal pieces: a busy system wakes a process late, and long waits must grow as short ones do."""
    pieces = max(1, round(seconds / PIECE_S))
    for _ in range(pieces):
        time.sleep(seconds / pieces)


class Sleeping(Dataset[Tensor]):
    """Waits in reading and in decoding, which stays true on a busy machine."""

    def __init__(self, read_s: float = 0.0, decode_s: float = 0.0, length: int = 4000) -> None:
        self.read_s, self.decode_s, self.length = read_s, decode_s, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        if self.read_s:
            with reading():
                wait(self.read_s)
        if self.decode_s:
            with decoding():
                wait(self.decode_s)
        return torch.tensor([float(index)])


class Stream(IterableDataset[Tensor]):
    def __init__(self, length: int = 64) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        first, of = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, self.length, of):
            yield torch.tensor([float(index)])


class Everything(IterableDataset[Tensor]):
    """Each worker goes through all of it."""

    def __iter__(self) -> Iterator[Tensor]:
        for index in range(200):
            time.sleep(0.005)
            yield torch.tensor([float(index)])


class Signing(Sleeping):
    """Each worker leaves a file with its number in the current folder."""

    def __getitem__(self, index: int) -> Tensor:
        if get_worker_info() is not None:
            Path(f"{os.getpid()}.worker").touch()
        return super().__getitem__(index)


class StuckInWorkers(Sleeping):
    def __getitem__(self, index: int) -> Tensor:
        if get_worker_info() is not None:
            time.sleep(1e6)
        return super().__getitem__(index)


def slow_collate(samples: list[Any]) -> Any:
    wait(0.04)
    return torch.stack(samples)


def pairs(samples: list[Any]) -> dict[str, Tensor]:
    return {"numbers": torch.stack(samples), "twice": 2 * torch.stack(samples)}
