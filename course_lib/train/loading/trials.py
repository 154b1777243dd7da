"""How fast does a source load with one choice of settings, beside a step?"""

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

from course_lib.errors import CourseError
from course_lib.train.loading.measurement import Rate
from course_lib.train.loading.repeats import RepeatWatch
from course_lib.train.loading.settings import LoaderSettings, Source
from course_lib.train.loading.step_bench import Row, StepBench, mean, rates
from course_lib.train.loading.workers import Epochs, private_bytes
from course_lib.units import format_seconds

STUCK_S = 60.0  # without a batch: longer than the start of workers on a busy machine


@dataclass(frozen=True)
class TrialRun:
    """Steps in the steady state, the seconds to the first batch, and what a worker has for itself (bytes).

    `repeated` says that each worker of a stream gave all of it: every sample came once for each.
    """

    rows: tuple[Row, ...]
    first_batch_s: float
    worker_bytes: int | None
    num_workers: int
    repeated: bool = False

    @property
    def batch_s(self) -> float:
        """Mean seconds from one batch to the next."""
        return mean(self.rows, "total_s")

    @property
    def samples_per_second(self) -> float:
        """Throughput; steps a second where batches do not tell their samples. Repeated ones count once."""
        times = self.num_workers if self.repeated else 1
        return statistics.fmean(row.samples or 1 for row in self.rows) / self.batch_s / times

    def rates(self, repeats: int = 3) -> list[float]:
        """Throughput in windows of whole rounds of the workers."""
        return rates(self.rows, repeats, round_of=max(1, self.num_workers))

    def rate(self, repeats: int = 3) -> Rate:
        """Throughput with its spread over windows."""
        return Rate.of(self.rates(repeats))


def run_trial(
    source: Source,
    settings: LoaderSettings,
    bench: StepBench,
    budget_s: float,
    *,
    rounds: int = 2,
    limit_s: float = math.inf,
    stuck_s: float = STUCK_S,
) -> TrialRun:
    """Load and step for `budget_s` seconds, in whole rounds of the workers, after one round to warm up.

    At least so many `rounds` are measured, where there are so many batches; but `limit_s` seconds after the
    first batch no other one is asked for.

    The sampler begins anew where an epoch ends, so that only the steady state counts; a stream has none, and
    its epochs begin anew. The workers have ended when this returns.

    Raises CourseError when there is no batch, and when workers give none for `stuck_s` seconds.
    """
    round_of = max(1, settings.num_workers)
    begin = time.perf_counter()
    try:
        with Epochs(source.loader(settings, endless=True, timeout_s=stuck_s)) as epochs:
            batches: Any = epochs.batches()
            if isinstance(source.dataset, IterableDataset) and round_of > 1:
                batches = RepeatWatch(batches, round_of)
            first = bench.run(batches, 0.0, at_least=1)
            if not first:
                raise CourseError("The loader gave no batch: check the data set's length and drop_last.")
            end = time.perf_counter() + limit_s
            first_batch_s = time.perf_counter() - begin - first[0].step_s
            warm = []
            if round_of > 1:
                warm = bench.run(batches, 0.0, at_least=round_of - 1, round_of=round_of - 1, limit_s=limit_s)
            rows = bench.run(
                batches,
                budget_s,
                at_least=rounds * round_of,
                round_of=round_of,
                limit_s=end - time.perf_counter(),
            )
            worker_bytes = private_bytes(epochs.pids())
    except RuntimeError as error:
        if "DataLoader timed out" not in str(error):
            raise
        waited = format_seconds(source.arguments.get("timeout") or stuck_s)
        raise CourseError(
            f"With {settings.brief()} the loader gave no batch for {waited}: a worker waits for something "
            "that it does not get, such as a server or a lock. num_workers=0 loads without workers."
        ) from error
    repeated = isinstance(batches, RepeatWatch) and batches.repeated
    return TrialRun(tuple(rows or warm or first), first_batch_s, worker_bytes, settings.num_workers, repeated)
