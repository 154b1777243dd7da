"""What do eight cards in one synchronous job look like from outside, healthy and with one known fault?

A model of what nvidia-smi shows of data-parallel training, for the guessing game of lesson 07 and for
testing health.py. A step ends when the slowest rank has ended. Until then the others spin in the all-reduce:
they read 100 % utilisation at low power. A rank that waits for data is idle instead, and reads less. Cards
differ a little by nature; jobs warm up, pause to evaluate (on rank 0 alone, sometimes) and to save.

This is a simulation and is called that wherever it is shown.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from course_lib.diagnose.cluster_series import Array, ClusterSeries
from course_lib.diagnose.smi.model import GpuProcess

Fault = Literal["straggler", "memory_imbalance", "throttling", "starved_rank", "contexts_on_first_card"]
FAULTS: tuple[Fault, ...] = (
    "straggler",
    "memory_imbalance",
    "throttling",
    "starved_rank",
    "contexts_on_first_card",
)
Range = tuple[float, float]
CARDS = 8


@dataclass(frozen=True)
class Ranges:
    """From where the parameters of a trace are drawn, evenly; shares of a step, of a limit, of a card."""

    samples: Range = (120, 360)
    power_cap_w: tuple[float, ...] = (300.0, 400.0, 700.0)
    total_mib: tuple[float, ...] = (24576.0, 40960.0, 81920.0)
    compute_power: Range = (0.6, 0.97)  # of the limit, while computing
    spin_power: Range = (0.28, 0.45)  # of the limit, while waiting in a collective
    idle_power: Range = (0.09, 0.16)
    communication: Range = (0.02, 0.25)
    input_wait: Range = (0.0, 0.3)  # that all ranks share
    memory_activity: Range = (15.0, 70.0)
    memory_fill: Range = (0.25, 0.88)
    power_spread: Range = (0.01, 0.035)  # from card to card
    work_spread: Range = (0.0, 0.02)
    clock_spread: Range = (0.004, 0.018)
    memory_spread: Range = (0.002, 0.035)
    first_card_extra: Range = (0.0, 0.13)  # of its memory: logging, evaluation, a desktop
    util_noise: Range = (2.0, 9.0)  # points, from sample to sample
    power_noise: Range = (0.02, 0.08)
    missing: Range = (0.0, 0.03)
    more_work: Range = (0.1, 0.8)  # straggler
    imbalance: Range = (0.15, 0.7)
    clock_loss: Range = (0.06, 0.55)  # throttling
    starved_wait: Range = (0.1, 0.9)  # of the step of the others
    guests: tuple[int, int] = (2, 7)
    guest_mib: Range = (250.0, 1400.0)
    onset: Range = (0.0, 0.4)  # of the run
    duty: Range = (0.55, 1.0)  # share of the time with the fault, after its onset


@dataclass(frozen=True)
class SimulatedCluster:
    """A trace and the truth about it: the fault and the card, or None and None for a healthy job.

    ``communication_share``: of its time, 0 to 1, the middle rank spends in the all-reduce, waiting included.
    nvidia-smi does not show it; a profiler of the job would.
    """

    series: ClusterSeries
    fault: Fault | None
    gpu: int | None
    size: float = 0.0
    communication_share: float = 0.0
    notes: tuple[str, ...] = field(default=())


def simulate(
    seed: int, fault: Fault | None, ranges: Ranges | None = None, *, healthy_blips: bool = True
) -> SimulatedCluster:
    """One job on eight cards. The same seed, fault and ranges give the same trace.

    ``healthy_blips``: short throttling of single samples on some card, which is no fault.
    """
    return _Trace(np.random.default_rng(seed), fault, ranges or Ranges(), healthy_blips).make()


class _Trace:
    """The parameters and arrays of one trace while it is made."""

    def __init__(self, random: np.random.Generator, fault: Fault | None, ranges: Ranges, blips: bool) -> None:
        self.random, self.fault, self.ranges, self.blips = random, fault, ranges, blips
        self.steps = int(self.draw(ranges.samples))
        self.gpu = 0 if fault == "contexts_on_first_card" else int(random.integers(CARDS))
        self.size = self.communication_share = 0.0
        self.cap = float(random.choice(ranges.power_cap_w))
        self.total = float(random.choice(ranges.total_mib))
        self.active = self.when_active()

    def draw(self, bounds: Range) -> float:
        return float(self.random.uniform(*bounds))

    def when_active(self) -> NDArray[np.bool_]:
        """The moments with the fault: from its onset on, in stretches."""
        start = int(self.draw(self.ranges.onset) * self.steps)
        stretch = max(int(self.draw((8, 30))), 1)
        on = self.random.random(self.steps // stretch + 2) < self.draw(self.ranges.duty)
        active = np.repeat(on, stretch)[: self.steps]
        active[:start] = False
        if not active.any():
            active[start:] = True
        return active

    def make(self) -> SimulatedCluster:
        ranges, random, shape = self.ranges, self.random, (self.steps, CARDS)
        work = np.ones(shape) * (1 + random.normal(0, self.draw(ranges.work_spread), CARDS))
        wait = np.ones(shape) * self.draw(ranges.input_wait)
        wait *= 1 + random.normal(0, 0.05, CARDS)
        clock_share = np.ones(shape) * (1 + random.normal(0, self.draw(ranges.clock_spread), CARDS))
        clock_share += random.normal(0, 0.006, shape)
        throttled = np.zeros(shape)
        hot = random.normal(0, 4, CARDS)
        self.add_compute_fault(work, wait, clock_share, throttled, hot)
        if self.blips and random.random() < 0.35:
            blip = random.random(self.steps) < self.draw((0.003, 0.03))
            throttled[blip, int(random.integers(CARDS))] = 1
        util, power, activity = self.step_shares(work, wait, clock_share)
        self.add_pauses(util, power, activity, clock_share, throttled)
        used, processes = self.memory()
        temperature = 38 + 38 * power / self.cap + hot + random.normal(0, 0.8, shape)
        series = ClusterSeries(
            util=self.with_gaps(np.round(util)),
            used_mib=self.with_gaps(np.round(used)),
            power_w=self.column(np.round(power, 2), 0.05),
            memory_activity=self.column(np.round(activity), 0.2),
            sm_clock_mhz=self.column(np.round(1980 * clock_share / 15) * 15, 0.06),
            temp_c=self.column(np.round(temperature), 0.05),
            throttled=self.column(throttled, 0.2),
            total_mib=np.full(CARDS, self.total),
            power_cap_w=np.full(CARDS, self.cap),
            pcie_width=np.full(CARDS, 16.0),
            pcie_width_max=np.full(CARDS, 16.0),
            processes=processes,
        )
        gpu = self.gpu if self.fault else None
        return SimulatedCluster(series, self.fault, gpu, self.size, self.communication_share)

    def add_compute_fault(self, work: Array, wait: Array, clock: Array, throttled: Array, hot: Array) -> None:
        ranges, when = self.ranges, self.active
        if self.fault == "straggler":
            self.size = self.draw(ranges.more_work)
            work[when, self.gpu] *= 1 + self.size * self.random.normal(1, 0.1, int(when.sum()))
        elif self.fault == "starved_rank":
            self.size = self.draw(ranges.starved_wait)
            wait[when, self.gpu] += self.size * self.random.normal(1, 0.15, int(when.sum())).clip(0.2, 2)
        elif self.fault == "throttling":
            self.size = self.draw(ranges.clock_loss)
            clock[when, self.gpu] *= 1 - self.size * self.random.normal(1, 0.08, int(when.sum())).clip(
                0.3, 1.4
            )
            throttled[when, self.gpu] = self.random.random(int(when.sum())) < self.draw((0.5, 1.0))
            hot[self.gpu] += self.draw((0, 14))

    def step_shares(self, work: Array, wait: Array, clock: Array) -> tuple[Array, Array, Array]:
        """Utilisation, power and memory activity from the shares of computing, spinning and idling."""
        ranges, random = self.ranges, self.random
        # The same work takes longer at a lower clock, though memory-bound parts do not mind.
        bound = self.draw((0.5, 0.95))
        compute = work * (bound / clock + 1 - bound)
        arrival = compute + wait
        step = arrival.max(axis=1, keepdims=True) + self.draw(ranges.communication)
        computing, idle = compute / step, wait / step
        spinning = 1 - computing - idle
        self.communication_share = float(np.median(spinning.mean(axis=0)))
        nature = 1 + random.normal(0, self.draw(ranges.power_spread), CARDS)
        level = self.draw(ranges.compute_power) * nature * clock ** (1.6 * bound)
        share = computing * level + spinning * self.draw(ranges.spin_power) * nature
        share += idle * self.draw(ranges.idle_power)
        drift = 1 + np.cumsum(random.normal(0, 0.002, (self.steps, 1)), axis=0)
        noise = random.normal(0, self.draw(ranges.power_noise), work.shape)
        power = self.cap * (share * drift * (1 + noise)).clip(0.05, 1.02)
        util = 100 * (1 - idle) + random.normal(0, self.draw(ranges.util_noise), work.shape)
        busy = self.draw(ranges.memory_activity)
        activity = busy * work / step * (1 + random.normal(0, 0.015, CARDS)) + 2 * spinning
        activity += random.normal(0, 0.04 * busy + 0.5, work.shape)
        return util.clip(0, 100), power, activity.clip(0, 100)

    def add_pauses(self, util: Array, power: Array, activity: Array, clock: Array, throttled: Array) -> None:
        """Warm-up, evaluations and checkpoints, in place."""
        random = self.random
        idle = self.cap * self.draw(self.ranges.idle_power)

        def rest(where: slice, cards: slice | list[int]) -> None:
            for array, value in ((util, 0.0), (power, idle), (activity, 0.0), (throttled, 0.0)):
                array[where, cards] = value
            clock[where, cards] *= self.draw((0.3, 1.0))

        warm_up = slice(0, int(self.draw((0.02, 0.12)) * self.steps))
        rest(warm_up, slice(None))
        util[warm_up] = random.uniform(0, 60, util[warm_up].shape)
        every = int(self.draw((0.18, 0.45)) * self.steps)
        length = max(int(self.draw((0.015, 0.055)) * self.steps), 1)
        kind = random.choice(["all", "first card, others spin", "first card, others idle", "save"])
        for start in range(warm_up.stop + every, self.steps - length, every):
            where = slice(start, start + length)
            if kind == "save":
                rest(where, slice(None))
            elif kind == "all":
                power[where] *= 0.75
                activity[where] *= 0.8
            elif kind == "first card, others idle":
                rest(where, list(range(1, CARDS)))
            else:
                others = list(range(1, CARDS))
                util[where, 1:] = 100
                power[where, 1:] = self.cap * self.draw(self.ranges.spin_power)
                activity[where, others] = 1

    def memory(self) -> tuple[Array, tuple[GpuProcess, ...] | None]:
        """Memory in use, [time, card], and the list of processes, if one was taken."""
        ranges, random = self.ranges, self.random
        base = self.draw(ranges.memory_fill) * self.total
        own = base * (1 + random.normal(0, self.draw(ranges.memory_spread), CARDS))
        own[0] += self.draw(ranges.first_card_extra) * base * (random.random() < 0.5)
        if self.fault == "memory_imbalance":
            self.size = self.draw(ranges.imbalance)
            own[self.gpu] = base * (1 + self.size)
        guests: list[float] = []
        if self.fault == "contexts_on_first_card":
            each = self.draw(ranges.guest_mib)
            count = int(random.integers(ranges.guests[0], ranges.guests[1] + 1))
            guests = [each * float(random.normal(1, 0.01)) for _ in range(count)]
            self.size = sum(guests) / base
        extra = np.zeros(CARDS)
        extra[0] = sum(guests)
        room = self.total - 400
        scale = min(1.0, float(room / (own + extra).max()))
        own *= scale
        grow = np.linspace(self.draw((0.9, 1.0)), 1.0, self.steps)[:, None]
        used = (own * grow + extra + 350) + random.normal(0, 3, (self.steps, CARDS))
        pids = [int(pid) for pid in self.draw((2000, 60000)) + np.arange(CARDS)]
        processes = [
            GpuProcess(gpu=card, pid=pids[card], kind="C", name="python", mib=float(own[card]))
            for card in range(CARDS)
        ]
        owners = random.permutation(np.arange(1, CARDS))[: len(guests)]
        processes += [
            GpuProcess(gpu=0, pid=pids[int(owner)], kind="C", name="python", mib=mib)
            for owner, mib in zip(owners, guests, strict=True)
        ]
        if random.random() < 0.3:  # a desktop or a notebook of somebody else
            kind = str(random.choice(["G", "C"]))
            processes.append(GpuProcess(gpu=0, pid=999, kind=kind, name="other", mib=self.draw((40, 500))))
        hidden = random.random() < (0.02 if guests else 0.25)
        return used, None if hidden else tuple(processes)

    def with_gaps(self, values: Array) -> Array:
        gaps = self.random.random(values.shape) < self.draw(self.ranges.missing)
        return np.where(gaps, np.nan, values)

    def column(self, values: Array, chance: float) -> Array:
        """The column with gaps, or, by chance, no column at all."""
        if self.random.random() < chance:
            return np.full(values.shape, np.nan)
        return self.with_gaps(values)
