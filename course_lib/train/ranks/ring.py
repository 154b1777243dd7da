"""How do ranks add up their gradients? A ring all-reduce in plain sends and receives.

launch("course_lib.train.ranks.ring:show_ring", 2)
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib.train.distributed import process_group


def ring_all_reduce(tensor: Tensor) -> int:
    """Replace a contiguous tensor by its sum over all ranks; the bytes that this rank sent.

    The tensor is cut into n pieces, one a rank. In n - 1 rounds each rank passes a piece to its
    right and adds what comes from its left; in n - 1 more the finished pieces go round
    (Patarasuk and Yuan, 2009).
    """
    n, me = dist.get_world_size(), dist.get_rank()
    right, left = (me + 1) % n, (me - 1) % n
    pieces = tensor.view(-1).tensor_split(n)
    sent = 0
    for finished in (False, True):
        for turn in range(n - 1):
            out = pieces[(me - turn + finished) % n]
            into = pieces[(me - turn - 1 + finished) % n]
            arriving = torch.empty_like(into)
            sending = dist.isend(out, right)
            dist.recv(arriving, left)
            if sending is not None:
                sending.wait()
            into.copy_(arriving if finished else into + arriving)
            sent += out.nbytes
    return sent


def show_ring(numbers: int = 6) -> dict[str, Any]:
    """Each rank holds its own numbers: what it had, what the ring gives, what torch's all-reduce gives."""
    with process_group(device="cpu", timeout_s=30) as ranks:
        before = torch.arange(numbers, dtype=torch.float64) + 10.0 * ranks.rank
        by_ring, by_torch = before.clone(), before.clone()
        sent = ring_all_reduce(by_ring)
        dist.all_reduce(by_torch)
    return {
        "before": before.tolist(),
        "by_ring": by_ring.tolist(),
        "by_torch": by_torch.tolist(),
        "sent_bytes": sent,
        "tensor_bytes": before.nbytes,
    }
