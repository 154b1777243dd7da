"""Which kind is a convolution, and how much work is each of its three passes?

cuDNN has other kernels for 1 x 1 than for 3 x 3, for channels that come in eights, for one group a channel;
and the gradient of a weight sums over all pixels, where the others do not. Grouped convolutions in channels
last that it has no kernels for run group by group, at a small share of the bandwidth, which depends on how
many groups there are and how wide they are rather than on each width by itself.
"""

from __future__ import annotations

import math

from course_lib.plan.step_trace import Op, Shape
from course_lib.plan.work import Dims, Work, is_half, layout_mark
from course_lib.plan.workspaces import ELEMENT, STEM_CHANNELS

# Channels of a group that runs by itself. In training steps of an RTX 3090 a pixel of such a layer took about
# 24 ns where groups have up to 8 channels and 45 to 120 ns where they have 16 to 48; from 56 on, its time
# follows the channels of all groups together.
THIN, MID = 8, 48


def convolution_backward(op: Op, channels_last: bool) -> tuple[Work, ...]:
    """The gradients that a backward convolution is asked for, one piece each."""
    grad, image, weight = op.inputs[:3]
    mask = op.option("mask")
    parts = [
        convolution(op, part, image, weight, grad, channels_last)
        for part, wanted in (("data", mask[0]), ("weight", mask[1]))
        if wanted
    ]
    if len(mask) > 2 and mask[2]:
        nbytes = math.prod(grad) * ELEMENT.get(op.dtype, 4)
        parts.append(Work(f"bias_grad{layout_mark(channels_last)}", "reduction", 0, nbytes))
    return tuple(parts)


def convolution(  # noqa: PLR0917 - three shapes
    op: Op, part: str, image: Shape, weight: Shape, out: Shape, channels_last: bool
) -> Work:
    """One pass (``forward``, ``data``: gradient of the image, ``weight``) of a convolution."""
    groups, transposed = op.option("groups"), op.option("transposed")
    kernel = weight[2:]
    taps = math.prod(kernel)
    cin, cout = image[1], out[1]
    if transposed:  # a transposed convolution is the gradient of a plain one
        image, out, cin, cout = out, image, cout, cin
        part = {"forward": "data", "data": "forward", "weight": "weight"}[part]
    size = ELEMENT.get(op.dtype, 4)
    pixels = out[0] * math.prod(out[2:])
    flops = 2.0 * pixels * cout * (cin // groups) * taps
    nbytes = (math.prod(image) + math.prod(out) + math.prod(weight)) * size
    wide, narrow = cin // groups, cout // groups
    dims: Dims
    if part == "forward":
        dims = (pixels, narrow, wide * taps)
    elif part == "data":
        dims = (image[0] * math.prod(image[2:]), wide, narrow * taps)
    else:
        dims = (wide * taps, narrow, pixels)
    kind, family = _convolution_kind(
        cin, cout, groups, kernel, op.option("stride"), op.option("dilation"), channels_last
    )
    half = is_half(op.dtype)
    if half and family == "convolution" and not kind.startswith("stem") and (cin % 8 or cout % 8):
        kind += "_odd"
    suffix = "" if half else ".single"
    by_group = groups if channels_last and family == "grouped" and "_by32" not in kind else 0
    return Work(
        f"{kind}.{part}{layout_mark(channels_last)}{suffix}",
        family, flops, nbytes, dims, half, groups=float(by_group),
    )  # fmt: skip


def _convolution_kind(  # noqa: PLR0917 - what a convolution is told by
    cin: int, cout: int, groups: int, kernel: Shape, stride: Shape, dilation: Shape, channels_last: bool
) -> tuple[str, str]:
    widest = max(kernel)
    strided = "_s2" if max(stride) > 1 else ""
    if groups > 1 and groups == cin:
        step = next((size for size in (3, 5, 7) if widest <= size), 9)
        return f"depthwise{step}{strided}", "depthwise"
    if groups > 1:
        width = cin // groups
        if groups % 32 == 0 and width in (4, 8, 16, 32) and cin == cout:
            return f"grouped_by32{strided}", "grouped"  # cuDNN has kernels of their own for these
        if channels_last:
            wide = "_thin" if width <= THIN else "_mid" if width <= MID else "_wide"
        else:
            wide = str(next((size for size in (2, 4, 8, 16, 24, 32, 40, 48) if width <= size), 64))
        return f"grouped{wide}{strided if widest > 1 else '_1x1'}", "grouped"
    if cin <= STEM_CHANNELS:
        return ("stem_patch" if tuple(stride) == tuple(kernel) else "stem"), "convolution"
    if len(kernel) > 2:
        return "volume", "convolution"
    if widest == 1:
        return f"pointwise{strided}", "convolution"
    if tuple(stride) == tuple(kernel):
        return "patch", "convolution"
    if len(set(kernel)) > 1:
        return "asymmetric", "convolution"
    if max(dilation) > 1:
        return "dilated", "convolution"
    return f"dense{3 if widest <= 3 else 5}{strided}", "convolution"
