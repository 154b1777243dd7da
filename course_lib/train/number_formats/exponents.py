"""How are the sizes of some numbers spread, and which of them would a format lose?

An `ExponentHistogram` counts numbers by the exponent of two: in bin e are those from 2^e to 2^(e+1). The
limits of a format and the scales of a GradScaler are powers of two as well, so what a format loses at a
scale can be read off the bins, without the numbers.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.train.number_formats.float_formats import float_format
from course_lib.train.preformatted import preformatted

LOWEST, HIGHEST = -149, 127  # the exponents of float32, subnormal numbers included


@dataclass(frozen=True)
class ExponentHistogram:
    """Counts of numbers by exponent: `counts[i]` are those from 2^(LOWEST + i) to twice that, sign aside."""

    counts: tuple[int, ...]
    zeros: int = 0
    not_finite: int = 0

    @property
    def nonzero(self) -> int:
        """How many finite numbers other than zero there are."""
        return sum(self.counts)

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return self.nonzero + self.zeros + self.not_finite

    def span(self) -> tuple[int, int]:
        """The exponents of the smallest and of the largest number. Raises CourseError when all are zero."""
        filled = self.by_exponent()
        if not filled:
            raise CourseError("There is no finite number other than zero here, so there is no range.")
        return min(filled), max(filled)

    def by_exponent(self) -> dict[int, int]:
        """The bins that are not empty: exponent to count."""
        return {LOWEST + i: count for i, count in enumerate(self.counts) if count}

    def becomes_zero(self, name: str, scale: float = 1.0) -> float:
        """Share of the nonzero numbers that are rounded to zero in this format, multiplied by `scale` before.

        These are the ones under half of the format's smallest number (half itself rounds to zero too: a
        single value, counted as kept). Raises CourseError for an unknown format, or a scale that is no
        power of two.
        """
        smallest = float_format(name).smallest
        return self._share_below(math.log2(smallest) - 1 - _exponent(scale))

    def loses_bits(self, name: str, scale: float = 1.0) -> float:
        """Share of the nonzero numbers that become subnormal there: not zero, but without a full fraction."""
        normal = math.log2(float_format(name).smallest_normal) - _exponent(scale)
        return self._share_below(normal) - self.becomes_zero(name, scale)

    def overflows(self, name: str, scale: float = 1.0) -> float:
        """Share of the nonzero numbers that become infinite there (those that round up to it not counted)."""
        first = math.log2(float_format(name).largest) // 1 + 1 - _exponent(scale)
        return 1.0 - self._share_below(first) if self.nonzero else 0.0

    def best_scale(self, name: str) -> float:
        """The largest power of two at which nothing overflows, with one more factor of two to spare.

        Raises CourseError when all numbers are zero.
        """
        limit = math.log2(float_format(name).largest) // 1
        return float(2.0 ** (limit - self.span()[1] - 1))

    def _share_below(self, exponent: float) -> float:
        inside = sum(self.counts[: max(0, int(exponent) - LOWEST)])
        return inside / self.nonzero if self.nonzero else 0.0

    def __add__(self, other: "ExponentHistogram") -> "ExponentHistogram":
        return ExponentHistogram(
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            self.zeros + other.zeros,
            self.not_finite + other.not_finite,
        )

    def __str__(self) -> str:
        if not self.nonzero:
            return f"{self.total:,} numbers, none of them finite and other than zero"
        low, high = self.span()
        return (
            f"{self.total:,} numbers from 2^{low} to 2^{high + 1}, {self.zeros:,} zeros, {self.not_finite:,} "
            f"not finite; fp16 makes {self.becomes_zero('fp16'):.1%} zero and {self.overflows('fp16'):.1%} "
            "infinite"
        )

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def histogram(tensors: Tensor | Iterable[Tensor]) -> ExponentHistogram:
    """Count the numbers of one tensor or of several by their exponent. They are read as float32."""
    counts = torch.zeros(HIGHEST - LOWEST + 1, dtype=torch.int64)
    zeros = not_finite = 0
    for tensor in (tensors,) if isinstance(tensors, Tensor) else tensors:
        numbers = tensor.detach().float().flatten()
        finite = numbers[numbers.isfinite()]
        nonzero = finite[finite != 0]
        not_finite += len(numbers) - len(finite)
        zeros += len(finite) - len(nonzero)
        exponents = torch.frexp(nonzero.double()).exponent - 1
        counts += torch.bincount((exponents - LOWEST).long().cpu(), minlength=len(counts))
    return ExponentHistogram(tuple(counts.tolist()), zeros, not_finite)


def _exponent(scale: float) -> int:
    fraction, exponent = math.frexp(scale) if math.isfinite(scale) else (0.0, 0)
    if fraction != 0.5:
        raise CourseError(f"A scale is a power of two, such as 1 or 65536, not {scale}.")
    return exponent - 1
