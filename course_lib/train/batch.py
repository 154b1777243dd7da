"""How many samples does a batch hold, and how does it reach the device?

A batch is what a loader yields: a tensor, or tuples, lists and dicts that hold tensors.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def samples_in(batch: Any) -> int:
    """The number of samples: the length of the first tensor found. 0 when there is none."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 1
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if isinstance(batch, (tuple, list)):
        for part in batch:
            if samples := samples_in(part):
                return samples
    return 0


def to_device(batch: Any, device: torch.device) -> Any:
    """Move every tensor of a batch to the device; anything else with a method `to` is asked to go itself.

    On CUDA the copy is queued (`non_blocking`): from pinned memory the program goes on meanwhile, from
    pageable memory CUDA waits by itself. Elsewhere the copy is finished on return.
    """
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=device.type == "cuda")
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple takes its parts one by one
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(to_device(part, device) for part in batch)
    return batch.to(device) if hasattr(batch, "to") else batch
