"""How can operations be seen as a CUDA card would run them, on a machine without one?

Fake tensors know their shape, type and layout, and hold no numbers. Where torch was built for CUDA (or
ROCm), they can say that they live on "cuda" and torch takes the decisions that it takes there. On other
builds they say "cpu", and :class:`CudaRules` takes those decisions instead. Both roads give the same
trace; a test compares them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

HALF = (torch.float16, torch.bfloat16)
_PLAIN_ATTENTION = functional.scaled_dot_product_attention

# Operations that autocast runs in float32 on CUDA and not (all of them) on the CPU.
# Source: "Op-Specific Behavior" in the documentation of torch.amp.
_FLOAT32_NAMES = frozenset(
    [
        "acos",
        "asin",
        "cosh",
        "cosine_embedding_loss",
        "cdist",
        "cosine_similarity",
        "cumprod",
        "cumsum",
        "dist",
        "erfinv",
        "exp",
        "expm1",
        "group_norm",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "layer_norm",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_softmax",
        "logsumexp",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "native_layer_norm",
        "native_group_norm",
        "nll_loss",
        "norm",
        "nuclear_norm",
        "pdist",
        "poisson_nll_loss",
        "pow",
        "prod",
        "reciprocal",
        "renorm",
        "rsqrt",
        "sinh",
        "smooth_l1_loss",
        "soft_margin_loss",
        "softmax",
        "softmin",
        "softplus",
        "sum",
        "tan",
        "triplet_margin_loss",
        "cross_entropy",
        "binary_cross_entropy_with_logits",
        "rms_norm",
        "__pow__",
        "__rpow__",
    ]
)


def fake_device() -> str:
    """The device that fake tensors claim: "cuda" if this torch was built for a GPU of that kind, else
    "cpu".
    """
    return "cuda" if torch.backends.cuda.is_built() else "cpu"  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def autocast(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """Autocast by its switches: ``torch.autocast("cuda")`` turns itself off on a machine without a card."""
    before = (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
    if dtype is not None:
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
        torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if dtype is not None:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
            torch.set_autocast_enabled(device, before[0])
            torch.set_autocast_dtype(device, before[1])


@contextlib.contextmanager
def fused_attention(device: str) -> Iterator[None]:
    """Put :func:`attention` in the place of torch's own also for code that no function mode looks into.

    A mode does not see what a Python function of torch calls in turn (``multi_head_attention_forward``).
    """

    def replaced(*args: Any, **kwargs: Any) -> torch.Tensor:
        return attention(device, *args, **kwargs)

    with mock.patch.object(functional, "scaled_dot_product_attention", replaced):
        yield


class CudaRules(TorchFunctionMode):
    """Takes the decisions that torch takes by looking at a real card.

    On both roads: attention through the memory-efficient or the flash kernel (without a card torch falls back
    to the plain formula, which keeps the whole attention matrix). On the CPU road also: dropout through
    the fused kernel, and CUDA's list of float32 operations under autocast.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _PLAIN_ATTENTION:
            return attention(self.device, *args, **kwargs)
        if self.device == "cpu":
            if func in (functional.dropout, torch.dropout):
                return _fused_dropout(func, *args, **kwargs)
            if torch.is_autocast_enabled("cpu") and getattr(func, "__name__", "") in _FLOAT32_NAMES:
                args, kwargs = _as_float32(args), {name: _as_float32(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _as_float32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in HALF else value
    if isinstance(value, tuple | list):
        return type(value)(_as_float32(item) for item in value) if type(value) in (tuple, list) else value
    return value


def _fused_dropout(  # noqa: PLR0917 - as torch has it
    func: Callable[..., Any],
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool | None = None,
) -> torch.Tensor:
    training = training if train is None else train
    if not training or inplace or not 0 < p < 1:
        return functional.dropout(input, p, training, inplace)
    return torch.native_dropout(input, p, True)[0]


def attention(  # noqa: PLR0917 - as torch has it
    device: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``scaled_dot_product_attention`` with the kernel that a card of 2020 or later would take.

    Flash for 16-bit inputs without a mask, memory-efficient else, the plain formula where neither accepts the
    shapes (the head size must be a multiple of 8 in 16 bits, of 4 in 32 bits).
    """
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        query, key, value = (x.to(dtype) if x.is_floating_point() else x for x in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    half = query.dtype in HALF
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    head = query.shape[-1]
    same = query.dtype == key.dtype == value.dtype and query.dim() == 4
    if half and attn_mask is None and same and head <= 256 and value.shape[-1] == head:
        pad = -head % 8
        if pad:
            query, key, value = (functional.pad(x, (0, pad)) for x in (query, key, value))
        result = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, scale=scale if scale is not None else head**-0.5
        )[0]
        cut: torch.Tensor = result[..., :head] if pad else result
        return cut
    aligned = head % (8 if half else 4) == 0 and value.shape[-1] % (8 if half else 4) == 0
    if not same or not aligned or query.dtype == torch.float64:
        return _PLAIN_ATTENTION(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    if attn_mask is not None:
        attn_mask = _attention_bias(attn_mask, query, key)
    needs_gradient = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (query, key, value, attn_mask)
    )
    attended: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, needs_gradient, dropout_p, is_causal, scale=scale
    )[0]
    return attended


def _attention_bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The mask as the kernel takes it: floating point, rows aligned to 16 elements, then expanded."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    columns = mask.shape[-1]
    if columns % 16 and columns > 1:
        mask = functional.pad(mask, (0, -columns % 16))[..., :columns]
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
