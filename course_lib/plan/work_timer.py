"""How long do pieces of work take on one device, by the law of ``roofline.py`` and fitted shares?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from course_lib.accelerators import find_accelerator
from course_lib.plan.coefficients import Coefficients
from course_lib.plan.roofline import Rates, rates_of, seconds, together
from course_lib.plan.step_time import Share
from course_lib.plan.work import Work


class WorkTimer:
    """Seconds of pieces of work on one device, in one precision."""

    def __init__(self, precision: str, rates: Rates, table: Coefficients) -> None:
        self.rates, self.table = rates, table
        self._half = precision if precision in ("fp16", "bf16") else "fp16"
        # PyTorch lets convolutions of float32 use TF32 units by default; matrix products only if asked.
        self._single = {"convolution": "tf32", "grouped": "tf32"}
        if precision == "tf32":
            self._single |= {"matmul": "tf32", "attention": "tf32"}
        self._peaks: dict[str, float] = {}
        self._bandwidths: dict[float, float] = {}

    def peak(self, work: Work) -> float:
        """The rate that the arithmetic of a piece of work has at most, in operations a second."""
        name = self._half if work.half else self._single.get(work.family, "fp32")
        if name not in self._peaks:
            self._peaks[name] = self.rates.sustained(name)
        return self._peaks[name]

    def bandwidth(self, issue: float) -> float:
        """Bytes a second of a kind that follows SMs times clock by the share ``issue``, from card to card."""
        if issue not in self._bandwidths:
            rate = self.rates.bandwidth
            if issue and self.rates.issue and self.rates.name != self.table.reference:
                known = rates_of(find_accelerator(self.table.reference))
                if known.issue:
                    rate = known.bandwidth * (rate / known.bandwidth) ** (1 - issue)
                    rate *= (self.rates.issue / known.issue) ** issue
            self._bandwidths[issue] = rate
        return self._bandwidths[issue]

    def time(self, work: Work) -> tuple[float, float, float, bool]:
        """Seconds in all, on the arithmetic and on the memory clock, and whether the kind was calibrated."""
        share, known = self.table.of(work)
        rate = self.bandwidth(share.issue) * share.memory
        if self.rates.cache and work.nbytes < 1.2 * self.rates.cache:
            rate *= self.table.cache_gain
        peak = self.peak(work) if work.flops else 0.0
        compute, memory = seconds(work, peak * share.compute, rate, share.tile, share.group_tile)
        return together(compute, memory, self.table.start_seconds * work.kernels), compute, memory, known


@dataclass(frozen=True)
class Timed:
    """One piece of work as often as it runs: seconds in all, and on each clock."""

    work: Work
    phase: str
    module: str
    count: int
    seconds: float
    compute: float
    memory: float
    known: bool


class Parts:
    """The timed pieces of a step, and sums over them."""

    def __init__(self, timer: WorkTimer) -> None:
        self.timer = timer
        self.timed: list[Timed] = []

    def add(self, work: Work, phase: str, module: str, count: int) -> None:
        """Time one piece that runs ``count`` times."""
        total, compute, memory, known = self.timer.time(work)
        self.timed.append(
            Timed(work, phase, module, count, total * count, compute * count, memory * count, known)
        )

    def seconds(self, phase: str | None = None) -> float:
        """The sum, of one phase or of all."""
        return math.fsum(part.seconds for part in self.timed if phase in (None, part.phase))

    def bound(self) -> str:
        """What most of the time goes to: kernels that arithmetic holds up, or those that bytes do."""
        by_compute = math.fsum(part.seconds for part in self.timed if part.compute > part.memory)
        return "compute" if by_compute > self.seconds() / 2 else "memory"

    def share_of(self, family: str) -> float:
        """The share of the time that one family of kinds takes."""
        spent = math.fsum(part.seconds for part in self.timed if part.work.family == family)
        return spent / self.seconds() if self.timed else 0.0

    def unknown(self) -> dict[str, float]:
        """The share of the time of each family's kinds that were not calibrated, the longest first."""
        found: dict[str, float] = {}
        whole = self.seconds() or 1.0
        for part in self.timed:
            if not part.known:
                found[part.work.family] = found.get(part.work.family, 0.0) + part.seconds / whole
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def shares(self, key: str, scale: float) -> tuple[Share, ...]:
        """The parts by ``module`` or by ``kind``, the longest first, their seconds times ``scale``."""
        sums: dict[str, list[float]] = {}
        for part in self.timed:
            entry = sums.setdefault(part.module if key == "module" else part.work.kind, [0.0] * 5)
            values = (
                part.seconds, part.compute, part.memory, part.work.flops * part.count,
                part.work.nbytes * part.count,
            )  # fmt: skip
            for place, value in enumerate(values):
                entry[place] += value
        made = [
            Share(name, total * scale, "compute" if compute > memory else "memory", flops, nbytes)
            for name, (total, compute, memory, flops, nbytes) in sums.items()
        ]
        return tuple(sorted(made, key=lambda share: -share.seconds))
