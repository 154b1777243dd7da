"""What can a number format hold: how large, how small, how fine?

A floating-point number is a sign, an exponent and a fraction: value = sign × 1.fraction × 2^exponent. The
exponent's bits give the range, the fraction's bits the fineness. Everything else follows from the two (IEEE
754; bfloat16 and TF32 are cut from float32 in the same way).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.train.preformatted import preformatted

Format = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True)
class FloatFormat:
    """One format. `dtype` is torch's name for it; tf32 has none, it is float32 in memory."""

    name: Format
    exponent_bits: int
    fraction_bits: int
    bytes: int  # that one number takes in memory
    dtype: torch.dtype

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent's bits."""
        return int(2 ** (self.exponent_bits - 1) - 1)

    @property
    def largest(self) -> float:
        """The largest finite number; beyond it comes infinity."""
        return float((2 - 2.0**-self.fraction_bits) * 2.0**self.bias)

    @property
    def smallest_normal(self) -> float:
        """The smallest number with a full fraction; below it precision is lost bit by bit."""
        return float(2.0 ** (1 - self.bias))

    @property
    def smallest(self) -> float:
        """The smallest number above zero (subnormal); what is nearer to zero than half of it becomes zero."""
        return float(2.0 ** (1 - self.bias - self.fraction_bits))

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number; rounding is off by at most half of it, relatively."""
        return float(2.0**-self.fraction_bits)

    def __str__(self) -> str:
        return (
            f"{self.name}: 1 sign, {self.exponent_bits} exponent, {self.fraction_bits} fraction bits; "
            f"{self.smallest:.2g} to {self.largest:.3g}, steps of {self.epsilon:.2g} at 1"
        )

    def _repr_html_(self) -> str:
        return preformatted(str(self))


FLOAT_FORMATS: Mapping[Format, FloatFormat] = MappingProxyType(
    {
        "fp32": FloatFormat("fp32", 8, 23, 4, torch.float32),
        "tf32": FloatFormat("tf32", 8, 10, 4, torch.float32),
        "bf16": FloatFormat("bf16", 8, 7, 2, torch.bfloat16),
        "fp16": FloatFormat("fp16", 5, 10, 2, torch.float16),
    }
)


def float_format(name: str) -> FloatFormat:
    """The format of this name. Raises CourseError for another."""
    if name not in FLOAT_FORMATS:
        raise CourseError(f"The format {name!r} is not known: choose one of {', '.join(FLOAT_FORMATS)}.")
    return FLOAT_FORMATS[name]  # type: ignore[index]  # checked above


def rounded(tensor: Tensor, name: str) -> Tensor:
    """The tensor's numbers as this format would hold them, given back in float64 to lose no more.

    Rounds to the nearest, ties to even. tf32 is rounded by hand, as no tensor can hold it; the card does
    this to what it multiplies. Raises CourseError for an unknown format.
    """
    wanted = float_format(name)
    if name != "tf32":
        return tensor.detach().to(wanted.dtype).double()
    pattern = tensor.detach().float().view(torch.int32).long()
    dropped = 23 - wanted.fraction_bits
    keep_even = (pattern >> dropped) & 1
    pattern = (pattern + (1 << (dropped - 1)) - 1 + keep_even) >> dropped << dropped
    finite = tensor.isfinite()
    return torch.where(finite, pattern.int().view(torch.float32), tensor.detach().float()).double()


@dataclass(frozen=True)
class Bits:
    """A number as a format holds it: its bits as text ("0", "01111", ...), and what they stand for."""

    format: FloatFormat
    asked: float
    held: float
    sign: str
    exponent: str
    fraction: str

    def __str__(self) -> str:
        return f"{self.format.name}: {self.sign} {self.exponent} {self.fraction} = {self.held:.9g}"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def bits_of(value: float, name: str) -> Bits:
    """How a format holds `value`, bit by bit. Raises CourseError for an unknown format, and for no number."""
    form = float_format(name)
    if not isinstance(value, int | float):
        raise CourseError(f"Only a number has such bits; {value!r} is none.")
    held = rounded(
        torch.tensor(value, dtype=torch.float64).float()
        if name == "tf32"
        else torch.tensor(value, dtype=torch.float64),
        name,
    )
    whole = held.to(form.dtype).view({2: torch.int16, 4: torch.int32}[form.bytes]).item()
    text = format(int(whole) & (2 ** (8 * form.bytes) - 1), f"0{8 * form.bytes}b")
    end = 1 + form.exponent_bits
    return Bits(form, value, float(held), text[0], text[1:end], text[end : end + form.fraction_bits])
