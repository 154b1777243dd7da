"""Which samples does each rank get, so that all ranks together train as one process would?

`GlobalBatches` cuts the shuffled data set into global batches, and each of these into one share a rank. No
sample is left out or seen twice, and the global batches do not depend on how many ranks there are.
"""

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler

from course_lib.errors import CourseError


class GlobalBatches(Sampler[list[int]]):
    """For `DataLoader(dataset, batch_sampler=...)`: this rank's share of each global batch.

        batches = GlobalBatches(dataset, 256, rank=ranks.rank, world_size=ranks.world_size)
        for epoch in range(epochs):
            batches.set_epoch(epoch)
            for (inputs, targets), scale in zip(loader, batches.scales()):
                loss = cross_entropy(model(inputs), targets) * scale

    The last global batch may be smaller, and shares may differ by one sample. DDP takes the plain mean of the
    ranks' gradients, so each mean loss is multiplied by `scales()`: the share's samples, times the ranks,
    by the samples of the global batch.

    torch's DistributedSampler makes all shares equal instead, by giving some samples to two ranks.
    """

    def __init__(
        self, dataset: Sized, global_batch_size: int, *, rank: int, world_size: int, seed: int = 0
    ) -> None:
        self.length = len(dataset)
        if not 0 <= rank < world_size:
            raise CourseError(f"Rank {rank} of {world_size} does not exist: ranks count from 0.")
        if global_batch_size < world_size:
            raise CourseError(
                f"A global batch of {global_batch_size} leaves some of {world_size} ranks without a "
                "sample: make it at least as large as the number of ranks."
            )
        rest = self.length % global_batch_size
        if 0 < rest < world_size:
            raise CourseError(
                f"The last batch of {rest} sample{'s' * (rest > 1)} leaves some of {world_size} ranks "
                "without one: choose another global batch size."
            )
        if seed < 0:
            raise CourseError(f"The seed must be 0 or more, not {seed}.")
        self.global_batch_size = global_batch_size
        self.rank, self.world_size, self.seed = rank, world_size, seed
        self.epoch = self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch of the next pass, and how many of its global batches were trained on already."""
        if epoch < 0 or not 0 <= start <= self.steps:
            raise CourseError(
                f"Epoch {epoch} from step {start} does not exist: an epoch has {self.steps} steps."
            )
        self.epoch, self.start = epoch, start

    @property
    def steps(self) -> int:
        """Global batches in an epoch."""
        return -(-self.length // self.global_batch_size)

    def scales(self) -> list[float]:
        """What to multiply each mean loss of this pass by; 1 where all shares are equal."""
        sizes = [min(self.global_batch_size, self.length - first) for first in self._firsts()]
        return [len(range(self.rank, size, self.world_size)) * self.world_size / size for size in sizes]

    def __len__(self) -> int:
        return self.steps - self.start

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.length, generator=generator).tolist()
        for first in self._firsts():
            yield order[first : first + self.global_batch_size][self.rank :: self.world_size]

    def _firsts(self) -> range:
        return range(self.start * self.global_batch_size, self.length, self.global_batch_size)
