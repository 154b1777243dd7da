"""How does throughput depend on the number of workers?

Without workers, making a batch and the step take turns. With W workers, the time from one batch to the next
is the longest of three:

    step + hand-over             the training process is busy all the time
    (making + sharing) / W       the workers are
    processor time / cores       the cores are: workers, hand-over and step share them

All of these are measured before the first trial. A trial tells more: what making costs in the training
process, what the hand-over costs, and by how much workers that share cores are slower than one process
alone. `corrected` takes these in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from course_lib.train.loading.probe import BatchCost

Limit = Literal["step", "one process", "storage", "workers", "cores", "hand-over"]

HAND_OVER_S = 0.0006  # a queue, and a socket on which the memory of the batch is told
BYTES_A_SECOND = 8e9  # mapping a batch of another process
LONG_HAND_OVER_S, LONG_HAND_OVER = 0.002, 0.15  # seconds, and a share of the step: more is no hand-over
SAME = 0.02  # times nearer than this are not told apart


@dataclass(frozen=True)
class ThroughputModel:
    """What one batch and one step need. Seconds; `cores` that the whole training may use.

    `make_s` is making a batch in one process, of which `read_s` is waiting for storage; `share_s` comes on
    top in a worker. `cpu_s` is the processor time of both, `step_cpu_s` that of the step. `hand_over_s` is
    what a batch costs the training process. `scale` is what trials say of the time in which workers make
    batches, over what one process needed. `make_here_s` is what a trial without workers says of `make_s`
    there, where memory is used again and more threads may help; None before there was one.
    """

    make_s: float
    read_s: float
    share_s: float
    cpu_s: float
    step_s: float
    step_cpu_s: float
    hand_over_s: float
    cores: int
    scale: float = 1.0
    make_here_s: float | None = None

    @classmethod
    def of(cls, cost: BatchCost, step_s: float, step_cpu_s: float, cores: int) -> "ThroughputModel":
        """The model before any trial."""
        return cls(
            make_s=cost.make_s,
            read_s=cost.read_s,
            share_s=cost.share_s,
            cpu_s=cost.cpu_s,
            step_s=step_s,
            step_cpu_s=step_cpu_s,
            hand_over_s=HAND_OVER_S + cost.nbytes / BYTES_A_SECOND,
            cores=max(1, cores),
        )

    def bounds(self, num_workers: int) -> dict[Limit, float]:
        """Seconds from one batch to the next that each part needs at least."""
        if num_workers == 0:
            return {"one process": self._making_here_s + self.step_s}
        made_s = (self.make_s + self.share_s) / num_workers
        busy: Limit = "storage" if self.read_s > self.make_s / 2 else "workers"
        main: Limit = "hand-over" if self.hand_over_s > self.step_s else "step"
        cpu_s = self.cpu_s + self.hand_over_s + self.step_cpu_s
        return {
            main: self.step_s + self.hand_over_s,
            busy: made_s * self.scale,
            "cores": cpu_s / self.cores * self.scale,
        }

    def batch_s(self, num_workers: int) -> float:
        """Seconds from one batch to the next."""
        return max(self.bounds(num_workers).values())

    def limit(self, num_workers: int) -> Limit:
        """What the time is limited by."""
        if num_workers == 0:
            if self._making_here_s <= SAME * self.step_s:
                return "step"
            # Where workers would gain by being more, and were no faster, they lack what one process has too.
            few = self._making_here_s <= 2 * self.hand_over_s
            return "one process" if few else self.limit(self.cores)
        bounds = self.bounds(num_workers)
        return max(bounds, key=bounds.__getitem__)

    def fewest(self, choices: Sequence[int], within: float = SAME) -> int:
        """The fewest workers that are as fast as the fastest, within a share of its time."""
        best = min(self.batch_s(number) for number in choices)
        return next(number for number in sorted(choices) if self.batch_s(number) <= best * (1 + within))

    @property
    def _making_here_s(self) -> float:
        return self.make_s if self.make_here_s is None else self.make_here_s

    def corrected(self, measured: Mapping[int, float]) -> "ThroughputModel":
        """The model after trials: seconds from batch to batch by number of workers.

        What a trial without workers took beyond the step is making there. What the fastest one with workers
        took beyond it is its hand-over, if it is little. Else the workers need longer than the model says,
        for all their numbers.
        """
        if 0 in measured:
            return replace(self, make_here_s=max(0.0, measured[0] - self.step_s)).corrected(
                {number: seconds for number, seconds in measured.items() if number}
            )
        if not measured:
            return self
        fastest = min(measured, key=measured.__getitem__)
        beyond_s = measured[fastest] - self.step_s
        if beyond_s <= max(LONG_HAND_OVER_S, LONG_HAND_OVER * self.step_s, self.hand_over_s):
            return replace(self, hand_over_s=max(0.0, beyond_s))
        bounds = replace(self, scale=1.0, step_s=0.0, hand_over_s=0.0).bounds(fastest)
        return replace(self, scale=max(1.0, measured[fastest] / max(bounds.values())))
