"""How long does one piece of work take on a card? The law, without any number fitted to it.

Three clocks run at once: arithmetic (operations over the card's peak in that precision), memory (bytes over
its bandwidth) and, for work of many small instructions, its cores (SMs times clock). The first two are
combined as the root of the sum of squares, which is the larger of the two where they differ, and 1.4 times
either where they are equal. A kernel reaches a share of each peak by its kind; a product whose sides are
short fills its tiles badly, which :func:`fill` tells; a kernel also takes a few microseconds to begin.

Source of the idea: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance
model", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from course_lib.accelerators import Accelerator
from course_lib.errors import CourseError
from course_lib.plan.work import Dims, Work


@dataclass(frozen=True)
class Rates:
    """What a device can do at most: bytes and operations a second.

    ``bandwidth``: bytes a second that programs see. ``peaks`` maps a precision (fp32, tf32, fp16, bf16) to
    dense floating-point operations a second; ``issue`` is SMs times clock, in 1/s; ``cache`` the bytes of its
    last-level cache; ``watts`` what it may draw. None where no source tells. ``clock_share``: how much of its
    clock the card holds when all units work; ``tensor_share``: what its generation's matrix units reach of
    their peak, beside that of newer ones.
    """

    name: str
    bandwidth: float
    peaks: Mapping[str, float]
    issue: float | None = None
    cache: float | None = None
    watts: float | None = None
    clock_share: float = 1.0
    tensor_share: float = 1.0

    def peak(self, precision: str) -> float:
        """Operations a second in ``precision``, or in the nearest one that the card has its own units for."""
        return self.peaks[self._unit(precision)]

    def _unit(self, precision: str) -> str:
        for name in (precision, *_INSTEAD[precision]):
            if self.peaks.get(name):
                return name
        raise CourseError(f"The table gives no peak rate of {self.name}, so no time can be predicted for it.")

    def sustained(self, precision: str) -> float:
        """Operations a second that the power of the card pays for, at most its peak.

        Professional cards have more units than they can feed at once: an L4 reaches 0.57 of its peak, a T4
        0.65, an A100 0.8 (public measurements of large matrix products).
        """
        unit = self._unit(precision)
        peak = self.peaks[unit]
        if unit == "fp32":
            return peak * self.clock_share
        peak *= self.tensor_share
        if not self.watts:
            return peak
        paid = FLOPS_A_WATT * self.watts * (1.0 if unit in ("fp16", "bf16") else 0.5)
        return float((peak**-2 + (self.tensor_share * paid) ** -2) ** -0.5)


FLOPS_A_WATT = 0.8e12  # 16-bit operations; between 0.3 (V100) and 1.3 (H100 PCIe) in those measurements

# Watts that a generation's chips would draw for 10**12 dense 16-bit operations a second at their full clock,
# by compute capability. From public measurements of large products: T4 0.65 of its peak; A6000, A40 and A4000
# 0.8; A100 0.78; L40S 0.73 and L4 0.57; H100 0.78 and H100 PCIe 0.62. Volta is made as Turing is, and
# Blackwell's small chips as Ada's.
FULL_CLOCK_WATTS = {
    "7.0": 2.3, "7.5": 2.3, "8.0": 1.4, "8.6": 2.2, "8.9": 1.5, "9.0": 1.0, "10.0": 1.0, "12.0": 1.5,
}  # fmt: skip

# What 16-bit kernels reach of the peak beside the same on the RTX 3090, which the shares are fitted on, by
# compute capability. Volta and Turing have no asynchronous copies to feed their matrix units: chosen on
# published training speeds. The P100 has no matrix units, and its products add up in float32: 8.4 of 18.7
# TFLOP/s in public measurements.
BESIDE_AMPERE = {"6.0": 0.45, "7.0": 0.8, "7.5": 0.8}

# A program on a card without inline error correction sees this share of the size on the box, or more.
_WHOLE = 0.95
_OVERHEAD = 0.985  # what it sees there in the mean: the driver keeps the rest

# A card without units for a number format computes in the next one: at most as fast as this.
_INSTEAD = {"bf16": ("fp32",), "fp16": ("fp32",), "tf32": ("fp32",), "fp32": ()}


def rates_of(card: Accelerator) -> Rates:
    """The rates of a card of the table. Raises CourseError if its bandwidth is not known."""
    if not card.bandwidth_gb_s:
        raise CourseError(
            f"The table gives no memory bandwidth of {card.name}, so no time can be predicted for it; "
            "`course calibrate` measures a device that is at hand."
        )
    peaks = {
        name: value * 1e12
        for name, value in (
            ("fp32", card.fp32_tflops), ("tf32", card.tf32_tflops),
            ("fp16", card.fp16_tflops), ("bf16", card.bf16_tflops),
        )
        if value
    }  # fmt: skip
    clock = clock_share(card)
    issue = (
        card.sm_count * card.boost_clock_mhz * 1e6 * clock if card.sm_count and card.boost_clock_mhz else None
    )
    return Rates(
        card.name,
        card.bandwidth_gb_s * 1e9 * data_share(card),
        peaks,
        issue,
        card.l2_mib * 2**20 if card.l2_mib else None,
        card.tdp_w,
        clock,
        BESIDE_AMPERE.get(card.compute_capability, 1.0),
    )


def clock_share(card: Accelerator) -> float:
    """How much of its boost clock a card holds under load, by its power for each operation of its peak.

    Power grows with about the cube of the clock where the voltage follows it, and in proportion below: with
    half the watts of its generation's full clock, a chip holds about two thirds of it. 1 where the table
    does not tell.
    """
    needed = FULL_CLOCK_WATTS.get(card.compute_capability)
    if card.vendor != "NVIDIA" or not (needed and card.tdp_w and card.fp16_tflops):
        return 1.0
    return float((1.0 + (needed * card.fp16_tflops / card.tdp_w) ** 2) ** -0.25)


def data_share(card: Accelerator) -> float:
    """The share of a card's traffic that is data: less than 1 where error correction stands in its memory.

    Cards with GDDR memory and error correction (T4, A10, L4, L40S) keep its bits among the data: about a
    sixteenth of the memory, and of what moves. HBM has lines of its own for them.
    """
    if card.vendor != "NVIDIA" or not card.usable_mib:
        return 1.0
    seen = card.usable_mib / 1024 / card.advertised_gb
    return seen / _OVERHEAD if seen < _WHOLE else 1.0


def fill(dims: Dims, tile: Dims) -> float:
    """By what factor a matrix product takes longer because its sides are short: 1 for very long ones.

    ``dims``: rows, columns, inner length; ``tile``: the length of each at which the time doubles.
    """
    factor = 1.0
    for side, length in zip(dims, tile, strict=True):
        if side:
            factor *= 1.0 + length / side
    return factor


def seconds(
    work: Work, compute_rate: float, memory_rate: float, tile: Dims, group_tile: Dims = (0.0, 0.0, 0.0)
) -> tuple[float, float]:
    """Seconds of one piece of work on the arithmetic and on the memory clock; :func:`together` combines
    them.

    ``group_tile``: the number of groups, and of columns in each, at which the bytes of a convolution that
    runs group by group take twice as long: few or narrow groups leave most of the card idle.
    """
    compute = work.flops / compute_rate * fill(work.dims, tile) if work.flops and compute_rate else 0.0
    moving = work.nbytes / memory_rate
    return compute, moving * fill((work.groups, work.dims[1], 0.0), group_tile) if work.groups else moving


def together(compute: float, memory: float, start: float) -> float:
    """The time of a kernel from its two clocks, and the seconds that it takes to begin."""
    return float((compute * compute + memory * memory) ** 0.5) + start
