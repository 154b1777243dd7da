"""Do the workers of a stream each give all of it?

A stream that does not ask `get_worker_info` is gone through by every worker: nothing fails, and each sample
comes once for each worker. The first batches of two workers show it, since they come one after the other.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


class RepeatWatch:
    """Passes batches of several workers on; `repeated` says whether the first two gave the same."""

    def __init__(self, batches: Iterator[Any], num_workers: int) -> None:
        self.repeated = False
        self._batches, self._num_workers = batches, num_workers
        self._number = 0
        self._first: Any = None  # kept while it may tell something

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self._number == 0:
            self._first = batch
        elif self._first is not None:
            self._compare(batch)
        self._number += 1
        return batch

    def _compare(self, batch: Any) -> None:
        """Equal batches tell nothing where all samples of the stream are equal: then wait for another one."""
        equal = same(self._first, batch)
        if self._number == 1 and not equal:
            self._first = None
        elif varies(self._first) or not equal:
            self.repeated = True
            self._first = None
        elif self._number >= 2 * self._num_workers:
            self._first = None


def same(one: Any, other: Any) -> bool:
    """Whether two batches hold the same numbers and texts, however they are nested."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return isinstance(one, str | bytes | int | float) and bool(one == other)


def varies(batch: Any) -> bool:
    """Whether a batch holds two samples that differ in any of its tensors."""
    if isinstance(batch, Tensor):
        return batch.ndim > 0 and not bool((batch == batch[:1]).all())
    if isinstance(batch, dict):
        return any(map(varies, batch.values()))
    return isinstance(batch, list | tuple) and any(map(varies, batch))
