"""What is a piece of work? A kernel with its kind, its arithmetic and its bytes."""

from __future__ import annotations

from dataclasses import dataclass

Dims = tuple[float, float, float]


@dataclass(frozen=True)
class Work:
    """One kernel, or a few that belong together.

    ``flops`` counts a multiply-add as two; ``nbytes`` is what is read and written at least once. ``dims``:
    rows, columns and inner length of the matrix product (per group), zeros where there is none. ``half``:
    whether 16-bit tensor cores may run it. ``groups``: of a convolution that runs group by group, in the
    layout in which the values of one group do not lie together; zero elsewhere.
    """

    kind: str
    family: str
    flops: float
    nbytes: float
    dims: Dims = (0.0, 0.0, 0.0)
    half: bool = False
    kernels: int = 1
    groups: float = 0.0


def is_half(dtype: str) -> bool:
    """Whether 16-bit units compute with numbers of this type."""
    return dtype in ("float16", "bfloat16")


def layout_mark(channels_last: bool) -> str:
    """What a kind's name says of the layout: nothing for channels last."""
    return "" if channels_last else ".nchw"
