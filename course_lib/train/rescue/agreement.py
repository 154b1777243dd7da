"""How do the ranks of a distributed run take the same decision about memory?

The card that has the least free decides for all: each rank tells its own state, and all take the worst.
With one process nothing is sent.
"""

from typing import Final

import torch
import torch.distributed as dist

FAILED: Final = 0
OUT_OF_MEMORY: Final = 1
FITS: Final = 2
_NO_LIMIT = 2**62


class Agreement:
    """All-reduces over the default process group, with MIN; a group of one where torch.distributed is not
    initialised.
    """

    def __init__(self) -> None:
        self._distributed = dist.is_available() and dist.is_initialized()
        self.world_size: int = dist.get_world_size() if self._distributed else 1

    def least(self, limit: int | None) -> int | None:
        """The smallest limit of all ranks, in bytes; None if no rank has one."""
        (found,) = self._minimum(_NO_LIMIT if limit is None else limit)
        return None if found == _NO_LIMIT else found

    def worst(self, state: int, peak: int) -> tuple[int, int]:
        """The worst state of all ranks (FAILED, OUT_OF_MEMORY, FITS), and the highest peak in bytes."""
        found, lowest = self._minimum(state, -peak)
        return found, -lowest

    def _minimum(self, *numbers: int) -> tuple[int, ...]:
        if not self._distributed:
            return numbers
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        tensor = torch.tensor(numbers, dtype=torch.int64, device=device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
        return tuple(int(number) for number in tensor.tolist())
