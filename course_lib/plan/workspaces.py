"""How much memory does an operation borrow while it runs? Convolution workspaces, and copies that kernels
make inside.

cuDNN's fast kernels want another layout or a transformed input, and borrow the memory for it from
PyTorch's allocator. How much depends on the kernel that it picks, which no document tells. Here it is a
multiple of what the convolution reads and writes, by kind of convolution, pass and layout. The multiples
were fitted to public measurements (``benchmarks/fit_memory.py``). They are right on average and not for one
model: see ``CHOICES`` in ``memory.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from course_lib.plan.replay import Borrowed
from course_lib.plan.step_trace import Op, Shape

ELEMENT = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "complex64": 8}
STEM_CHANNELS = (
    4  # at most so many input channels: the first layer of an image model, with kernels of its own
)

_ATTENTION_BACKWARD = (
    "_scaled_dot_product_flash_attention_backward.default",
    "_scaled_dot_product_efficient_attention_backward.default",
)


def kind_of(op: Op) -> str:
    """The kind of a convolution: ``stem``, ``depthwise``, ``wide_depthwise`` (kernels above 3 x 3),
    ``grouped``, ``pointwise`` or ``dense``, with ``_nhwc`` if channels last.
    """
    backward = op.name == "convolution_backward.default"
    image, weight = (op.inputs[1], op.inputs[2]) if backward else (op.inputs[0], op.inputs[1])
    groups = op.option("groups")
    layouts = op.option("layouts")
    if image[1] <= STEM_CHANNELS:
        return "stem"
    if groups == image[1] and groups > 1:
        kind = "wide_depthwise" if max(weight[2:]) > 3 else "depthwise"
    elif groups > 1:
        kind = "grouped"
    else:
        kind = "dense" if max(weight[2:]) > 1 else "pointwise"
    return kind + ("_nhwc" if layouts[1 if backward else 0] == "channels_last" else "")


def _nbytes(shape: Shape, element: int) -> int:
    return math.prod(shape) * element


def _attention_workspace(op: Op) -> Borrowed:
    """The float32 sums that the backward pass of fused attention keeps for 16-bit inputs: the gradient of
    the query, and a number for each of its rows; tokens rounded up to 128, head size to 32 (``mha_bwd``
    of FlashAttention 2).
    """
    batch, heads, tokens, head = op.inputs[1]
    rows = batch * heads * (-(-tokens // 128) * 128)
    return Borrowed((4 * rows * (-(-head // 32) * 32) + 4 * rows,))


class WorkspaceRule:
    """Says what an operation borrows, from fitted multiples.

    ``multiples``: ``"dense.forward": 1.0`` and so on, for forward, ``data`` (gradient of the input) and
    ``weight`` (gradient of the weight); a missing one is 0. ``benchmark``: whether cudnn.benchmark is on.
    """

    def __init__(self, multiples: Mapping[str, float], benchmark: bool) -> None:
        self.multiples = multiples
        self.benchmark = benchmark

    def __call__(self, op: Op) -> Borrowed | None:
        """The bytes that ``op`` borrows for each output that it makes, or None."""
        element = ELEMENT.get(op.dtype, 4)
        scratch: tuple[int, ...]
        if op.name == "convolution.default":
            touched = sum(_nbytes(shape, element) for shape in (*op.inputs[:2], op.outputs[0]))
            scratch = (self._share(op, "forward", touched),)
        elif op.name == "convolution_backward.default":
            touched = sum(_nbytes(shape, element) for shape in op.inputs[:3])
            weight = self._share(op, "weight", touched)
            scratch = (self._share(op, "data", touched), weight) if op.option("mask")[0] else (weight,)
        elif op.name in _ATTENTION_BACKWARD:
            return _attention_workspace(op) if element == 2 else None
        else:
            layouts = op.option("layouts")
            if not layouts:
                return None
            copied = [
                _nbytes(shape, element)
                for shape, layout in zip(op.inputs, layouts, strict=False)
                if layout == "strided"
            ]
            return Borrowed((sum(copied),)) if copied else None
        return Borrowed(scratch, tried=self.benchmark, chosen=True)

    def _share(self, op: Op, part: str, touched: int) -> int:
        return int(self.multiples.get(f"{kind_of(op)}.{part}", 0.0) * touched)
