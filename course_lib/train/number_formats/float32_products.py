"""How does an NVIDIA card multiply float32 tensors, and how is that set for a while?

Since Ampere a card can round what it multiplies to TF32, which is several times faster. PyTorch's own setting
differs by operation: on for convolutions, off for matrix products.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch


@contextmanager
def float32_products(how: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Multiply float32 tensors exactly ("ieee") or as TF32 on CUDA: products, convolutions, RNNs.

    Holds for forward and backward passes that run inside; the settings of before come back at the end.
    """
    backends: Any = torch.backends  # torch's own type hints do not know these settings
    parts = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [part.fp32_precision for part in parts]
    try:
        for part in parts:
            part.fp32_precision = how
        yield
    finally:
        for part, setting in zip(parts, before, strict=True):
            part.fp32_precision = setting
