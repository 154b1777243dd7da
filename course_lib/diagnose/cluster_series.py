"""How did the cards of one job do over time? Samples of several cards as arrays, [time, card].

NaN means "not in the text". Build one from what was pasted (``from_status``) or measured.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus
from course_lib.errors import CourseError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClusterSeries:
    """Samples of ``n`` cards at ``t`` moments.

    Arrays are [t, n]: utilisation and memory activity in percent, memory in MiB, power in W, clocks in MHz,
    temperature in °C; ``throttled`` is 1 where a reason of hardware or heat was active, 0 where none was. The
    limits and the link widths are [n]. ``processes`` is None where no list of processes was taken.
    """

    util: Array
    used_mib: Array
    power_w: Array
    memory_activity: Array
    sm_clock_mhz: Array
    temp_c: Array
    throttled: Array
    total_mib: Array
    power_cap_w: Array
    pcie_width: Array
    pcie_width_max: Array
    processes: tuple[GpuProcess, ...] | None = None
    gpus: tuple[int, ...] = ()
    names: tuple[str | None, ...] = field(default=())

    def __post_init__(self) -> None:
        shapes = {getattr(self, name).shape for name in _OVER_TIME}
        if len(shapes) != 1 or self.util.ndim != 2 or not self.util.size:
            raise CourseError(
                f"The arrays of a series must all be [time, card] and not empty; their shapes are {shapes}."
            )
        if not self.gpus:
            object.__setattr__(self, "gpus", tuple(range(self.util.shape[1])))

    def __str__(self) -> str:
        known = [name for name in _OVER_TIME if np.isfinite(getattr(self, name)).any()]
        return (
            f"{self.util.shape[0]} samples of {self.util.shape[1]} cards: {', '.join(known) or 'no figures'}"
        )

    @classmethod
    def from_status(cls, status: GpuStatus) -> "ClusterSeries":
        """From a dump with samples (dmon, CSV with -l, repeated tables).

        Raises CourseError where the dump names no cards.
        """
        by_card: dict[int, list[Gpu]] = {}
        unnumbered = all(sample.index is None for sample in status.samples)
        for place, sample in enumerate(status.samples):
            # Rows without a number: one moment of several cards, or one card over time.
            several = len(status.gpus) > 1
            number = sample.index if sample.index is not None else place if unnumbered and several else 0
            by_card.setdefault(number, []).append(sample)
        if not by_card:
            raise CourseError("The dump holds no samples of cards, so there is nothing to follow over time.")
        cards = [by_card[number] for number in sorted(by_card)]
        steps = min(len(samples) for samples in cards)
        cards = [samples[:steps] for samples in cards]

        def over_time(name: str) -> Array:
            return np.array([[_or_nan(getattr(s, name)) for s in samples] for samples in cards]).T

        def last(name: str) -> Array:
            return np.array([_or_nan(getattr(samples[-1], name)) for samples in cards])

        return cls(
            util=over_time("util_percent"),
            used_mib=over_time("used_mib"),
            power_w=over_time("power_w"),
            memory_activity=over_time("memory_activity_percent"),
            sm_clock_mhz=over_time("sm_clock_mhz"),
            temp_c=over_time("temp_c"),
            throttled=np.array([[_throttled(s) for s in samples] for samples in cards]).T,
            total_mib=last("total_mib"),
            power_cap_w=last("power_cap_w"),
            pcie_width=last("pcie_width"),
            pcie_width_max=last("pcie_width_max"),
            processes=status.processes,
            gpus=tuple(sorted(by_card)),
            names=tuple(samples[-1].name for samples in cards),
        )


_OVER_TIME = ("util", "used_mib", "power_w", "memory_activity", "sm_clock_mhz", "temp_c", "throttled")
# "sw_power_cap" is how a card at full work runs; these slow it down against its will.
_AGAINST_ITS_WILL = {
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
}


def _or_nan(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _throttled(sample: Gpu) -> float:
    if sample.throttle_reasons is None:
        return float("nan")
    return float(bool(_AGAINST_ITS_WILL & set(sample.throttle_reasons)))
