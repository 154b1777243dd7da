"""How fast does a source load with one choice of settings, beside a step?"""

import statistics
import time
from dataclasses import dataclass

from course_lib.errors import CourseError
from course_lib.train.loading.measurement import Rate
from course_lib.train.loading.settings import LoaderSettings, Source
from course_lib.train.loading.step_bench import Row, StepBench, mean, rates
from course_lib.train.loading.workers import Epochs, private_bytes


@dataclass(frozen=True)
class TrialRun:
    """Steps in the steady state, the seconds to the first batch, and what a worker has for itself (bytes)."""

    rows: tuple[Row, ...]
    first_batch_s: float
    worker_bytes: int | None
    num_workers: int

    @property
    def batch_s(self) -> float:
        """Mean seconds from one batch to the next."""
        return mean(self.rows, "total_s")

    @property
    def samples_per_second(self) -> float:
        """Throughput; steps a second where batches do not tell their samples."""
        return statistics.fmean(row.samples or 1 for row in self.rows) / self.batch_s

    def rates(self, repeats: int = 3) -> list[float]:
        """Throughput in windows of whole rounds of the workers."""
        return rates(self.rows, repeats, round_of=max(1, self.num_workers))

    def rate(self, repeats: int = 3) -> Rate:
        """Throughput with its spread over windows."""
        return Rate.of(self.rates(repeats))


def run_trial(
    source: Source, settings: LoaderSettings, bench: StepBench, budget_s: float, *, rounds: int = 2
) -> TrialRun:
    """Load and step for `budget_s` seconds, in whole rounds of the workers, after one round to warm up.

    At least so many `rounds` are measured, where there are so many batches.

    The sampler begins anew where an epoch ends, so that only the steady state counts; a stream has none, and
    its epochs begin anew. The workers have ended when this returns.

    Raises CourseError when there is no batch.
    """
    round_of = max(1, settings.num_workers)
    begin = time.perf_counter()
    with Epochs(source.loader(settings, endless=True)) as epochs:
        batches = epochs.batches()
        first = bench.run(batches, 0.0, at_least=1)
        if not first:
            raise CourseError("The loader gave no batch: check the data set's length and drop_last.")
        first_batch_s = time.perf_counter() - begin - first[0].step_s
        warm = bench.run(batches, 0.0, at_least=round_of - 1, round_of=round_of - 1) if round_of > 1 else []
        rows = bench.run(batches, budget_s, at_least=rounds * round_of, round_of=round_of)
        worker_bytes = private_bytes(epochs.pids())
    return TrialRun(tuple(rows or warm or first), first_batch_s, worker_bytes, settings.num_workers)
