"""Which kinds of work is an operation made of? Its place in the taxonomy that speed is calibrated by.

A convolution of 3 x 3 and one of 1 x 1, a forward pass and a gradient of a weight, a sum over rows and one
over columns run at very different shares of a card's peak. Each operation of a trace becomes one or more
pieces of :class:`Work`, each with a *kind* (``dense3.weight``) under a *family* (``convolution``). What a
kind has not been calibrated for, its family answers for.
"""

from __future__ import annotations

import math

from course_lib.plan.convolution_kinds import convolution, convolution_backward
from course_lib.plan.step_trace import Op
from course_lib.plan.work import Work, is_half, layout_mark

_NO_KERNEL = frozenset(
    f"{name}.{overload}"
    for name, overloads in {
        "empty": ("memory_format",),
        "empty_strided": ("default",),
        "empty_like": ("default",),
        "new_empty": ("default",),
        "new_empty_strided": ("default",),
        "_unsafe_view": ("default",),
        "_reshape_alias": ("default",),
        "resize_": ("default",),
        "set_": ("source_Storage",),
        "scalar_tensor": ("default",),
        "_local_scalar_dense": ("default",),
    }.items()
    for overload in overloads
)

_MATMULS = frozenset({"mm", "addmm", "_addmm_activation"})
_BATCHED = frozenset({"bmm", "baddbmm"})
_COPIES = frozenset({"clone", "copy_", "copy", "contiguous", "_to_copy", "to", "lift_fresh_copy"})
_JOINS = frozenset({"cat", "stack", "split_with_sizes_copy", "unsafe_split", "repeat", "roll", "flip"})
_FILLS = frozenset(
    {
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "fill_",
        "zero_",
        "new_full",
    }
)
_GATHERS = frozenset(
    {
        "index",
        "index_put",
        "index_put_",
        "_index_put_impl_",
        "_unsafe_index_put",
        "gather",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "index_select",
        "index_add",
        "embedding",
        "embedding_dense_backward",
        "sort",
        "topk",
        "argsort",
        "unique",
        "nonzero",
        "grid_sampler_2d",
        "grid_sampler_2d_backward",
    }
)
_SPREADS = frozenset(
    {
        "slice_backward",
        "select_backward",
        "constant_pad_nd",
        "im2col",
        "col2im",
        "unfold_backward",
        "reflection_pad2d",
        "replication_pad2d",
        "diagonal_backward",
        "pixel_shuffle",
        "pixel_unshuffle",
    }
)
_REDUCTIONS = frozenset(
    {
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "var_mean",
        "var",
        "std",
        "std_mean",
        "linalg_vector_norm",
        "norm",
        "argmax",
        "any",
        "all",
        "prod",
        "logsumexp",
        "cumsum",
        "_log_softmax",
        "_log_softmax_backward_data",
        "nll_loss_forward",
        "nll_loss_backward",
        "nll_loss2d_forward",
        "nll_loss2d_backward",
    }
)
_HEAVY_MATH = (
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "exp",
    "mish",
    "softplus",
    "log",
    "erf",
    "pow",
    "elu",
    "rsqrt",
    "sqrt",
    "sin",
    "cos",
)


def work_of(op: Op, channels_last: bool) -> tuple[Work, ...]:
    """The pieces of work of one operation; none if no kernel runs.

    ``channels_last``: whether the step keeps its images in that layout. A convolution whose own image or
    weight stands so runs in it anyway.
    """
    name = op.name
    channels_last = (
        channels_last or op.layout == "channels_last" or "channels_last" in op.option("layouts", ())
    )
    if name in _NO_KERNEL:
        return ()
    base = name.split(".")[0]
    if base == "convolution":
        return (convolution(op, "forward", op.inputs[0], op.inputs[1], op.outputs[0], channels_last),)
    if base == "convolution_backward":
        return convolution_backward(op, channels_last)
    if base in _MATMULS or base in _BATCHED:
        return (_matmul(op, base),)
    if "scaled_dot_product" in base:
        return (_attention(op, base),)
    if "batch_norm" in base:
        return (_batch_norm(op, base, channels_last),)
    for norm in ("layer_norm", "group_norm", "rms_norm"):
        if norm in base:
            return (_plain(op, f"{norm}.{_pass(base)}", "norm", op.dtype),)
    if base.startswith("_softmax"):
        return (_plain(op, f"softmax.{_pass(base)}", "softmax", op.dtype),)
    if "pool" in base:
        shape = "global" if "adaptive" in base else "max" if "max" in base else "average"
        return (_plain(op, f"{shape}_pool.{_pass(base)}{layout_mark(channels_last)}", "pool"),)
    if "upsample" in base:
        return (_plain(op, f"upsample.{_pass(base)}{layout_mark(channels_last)}", "pool"),)
    if base in ("lstm", "_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl"):
        return (_plain(op, "recurrent", "pointwise"),)
    return (_memory_bound(op, base),)


def _pass(base: str) -> str:
    return "backward" if "backward" in base else "forward"


def _plain(op: Op, kind: str, family: str, dtype: str = "") -> Work:
    suffix = (".half" if is_half(dtype) else ".single") if dtype else ""
    return Work(kind + suffix, family, op.flops, op.bytes_moved)


def _batch_norm(op: Op, base: str, channels_last: bool) -> Work:
    if "backward" in base:
        part = "backward"
    elif "no_training" in base or (len(op.outputs) > 1 and not math.prod(op.outputs[1])):
        part = "inference"
    else:
        part = "forward"
    suffix = "" if is_half(op.dtype) else ".single"
    return Work(f"batch_norm.{part}{layout_mark(channels_last)}{suffix}", "norm", op.flops, op.bytes_moved)


# -- matrix products and attention ------------------------------------------------------------------------


def _matmul(op: Op, base: str) -> Work:
    left, right = op.inputs[-2:]
    batch = left[0] if base in _BATCHED else 1
    rows, inner, columns = left[-2], left[-1], right[-1]
    half = is_half(op.dtype)
    flops = 2.0 * batch * rows * inner * columns
    if base in _BATCHED:
        part = "batched.backward" if op.phase == "backward" else "batched.forward"
    elif op.phase != "backward":
        part = "linear.forward"
    else:
        # The gradient of the weight sums over all samples: its inner length is the long side.
        part = "linear.weight" if op.layout == "strided" else "linear.data"
    odd = "_odd" if half and (inner % 8 or columns % 8 or rows % 8) else ""
    name, _, rest = part.partition(".")
    kind = f"{name}{odd}.{rest}" + ("" if half else ".single")
    return Work(kind, "matmul", flops, op.bytes_moved, (rows, columns, inner), half)


def _attention(op: Op, base: str) -> Work:
    road = "flash" if "flash" in base or "cudnn" in base else "efficient"
    query = op.inputs[1] if "backward" in base else op.inputs[0]
    key = op.inputs[2] if "backward" in base else op.inputs[1]
    half = is_half(op.dtype)
    kind = f"{road}_attention.{_pass(base)}" + ("" if half else ".single")
    tokens, head = float(query[-2]), float(query[-1])
    flops = float(op.flops)
    if not flops:
        products = 5 if "backward" in base else 2
        flops = 2.0 * products * math.prod(query) * key[-2]
    # What the fused kernel saves is the matrix between: only queries, keys, values and results move.
    return Work(kind, "attention", flops, op.bytes_moved, (tokens, float(key[-2]), head), half)


# -- everything that only moves and changes numbers ----------------------------------------------------------


def _memory_bound(op: Op, base: str) -> Work:
    size = ".half" if is_half(op.dtype) else ".single"
    strided = "_strided" if op.layout == "strided" else ""
    if base in _COPIES:
        word = "cast" if base in ("_to_copy", "to") else "copy"
        if op.inputs and op.inputs[0] == op.outputs[0] and len(op.inputs[0]) <= 2 and op.phase != "load":
            word = "weight_" + word if op.module == "" or math.prod(op.inputs[0]) < 2**16 else word
        return Work(f"{word}{strided}", "copy", 0, op.bytes_moved)
    if base in _JOINS:
        return Work(f"join{strided}", "copy", 0, op.bytes_moved)
    if base in _FILLS:
        return Work("fill", "copy", 0, op.bytes_moved)
    if base in _SPREADS:
        return Work("spread", "copy", 0, op.bytes_moved)
    if base in _GATHERS:
        return Work("gather", "gather", 0, op.bytes_moved)
    if base in _REDUCTIONS:
        inner = "columns" if _over_columns(op) else "rows"
        return Work(f"reduce_{inner}{size}{strided}", "reduction", 0, op.bytes_moved)
    if "dropout" in base or base in (
        "bernoulli_",
        "bernoulli",
        "rand",
        "randn",
        "uniform_",
        "normal_",
        "randperm",
    ):
        return Work("random", "pointwise", 0, op.bytes_moved)
    full = max((math.prod(shape) for shape in op.outputs), default=0)
    shapes = [shape for shape in op.inputs if len(shape) > 0 and math.prod(shape) > 1]
    broadcast = "_broadcast" if any(math.prod(shape) < full for shape in shapes) else ""
    plain = base.removesuffix("_").removesuffix("_backward").removeprefix("_foreach_")
    heavy = "math" if any(plain.startswith(word) for word in _HEAVY_MATH) else "plain"
    back = "_backward" if "backward" in base else ""
    return Work(f"{heavy}{back}{broadcast}{strided}{size}", "pointwise", 0, op.bytes_moved)


def _over_columns(op: Op) -> bool:
    """Whether a reduction sums over rows and keeps the last dimension, as the gradient of a bias does."""
    if not op.inputs or not op.outputs:
        return False
    before, after = op.inputs[0], op.outputs[0]
    return len(after) > 0 and len(before) > 0 and before[-1] == after[-1] and before[-1] > 1
