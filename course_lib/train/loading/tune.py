"""With which settings does this data set load fastest beside this step, on this machine?

    tune(dataset, step)

Making a few batches here and running the step alone tells most of it (`model`). A few trials with real
workers correct the model and decide; what was not tried is not recommended.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.machine import available_memory_bytes, usable_cores
from course_lib.train.batch import to_device
from course_lib.train.loading.memory import GUESS_FORKED, GUESS_STARTED, HostMemory, free_shared_bytes
from course_lib.train.loading.model import SAME, ThroughputModel
from course_lib.train.loading.probe import BatchCost, probe
from course_lib.train.loading.settings import LoaderSettings, Source, StartMethod
from course_lib.train.loading.start_method import best_start_method
from course_lib.train.loading.step_bench import Step, StepBench, mean
from course_lib.train.loading.trials import run_trial
from course_lib.train.loading.tuning import Trial, Tuning

Progress = Callable[[float, str], None]

LONGEST_TRIAL_S = 1.0
MOST_TRIALS = 4  # of numbers of workers
FED = 0.985  # a share of the step alone that more trials would hardly beat
LONG_PREFETCH = 4
UNEVEN = 0.3  # batches that differ by more of their mean need more of them in store
BUSY_STEP = 0.3  # a step that uses the processor for more of its time competes with the workers


def tune(
    dataset: Any,
    step: Step,
    *,
    batch_size: int | None = None,
    collate_fn: Callable[[Any], Any] | None = None,
    budget_seconds: float = 60.0,
    most_workers: int | None = None,
    free_memory_bytes: int | None = None,
    device: str | torch.device | None = None,
    progress: bool | Progress = True,
) -> Tuning:
    """Choose the settings of a `DataLoader` for this data set beside this step, by a few short trials.

    Args:
        dataset: a data set, or a `DataLoader`, whose sampler, batches and collating are then kept.
        step: takes a batch on its device: a TrainingStep, an EmulatedStep, or any function.
        batch_size: samples in a batch; by default the `DataLoader`'s, else 32.
        collate_fn: makes a batch of samples; by default the `DataLoader`'s, else PyTorch's own.
        budget_seconds: time for all trials. Most data sets need a few seconds.
        most_workers: how many workers may be tried; by default twice the usable cores, 8 at least.
        free_memory_bytes: what workers may take together; by default what is free now.
        device: where batches go; by default where the step is, else the CPU.
        progress: whether to show a bar, or who hears how far it is, from 0 to 1, and what is tried.

    Returns:
        The settings, the trials, and what the throughput is limited by. No process is left behind.

    Raises:
        CourseError: nothing can be loaded, or an argument makes no sense. What the data set raises is passed
            on.
    """
    number_in(budget_seconds, "The time for tuning, in seconds,", 0.01, 86_400)
    if most_workers is not None:
        whole_in(most_workers, "The largest number of workers", 0, 1024)
    source = Source.of(dataset, batch_size, collate_fn)
    _check_size(source.dataset, batch_size)
    where = torch.device(device if device is not None else getattr(step, "device", "cpu"))
    with _listener(progress) as tell:
        search = _Search(source, StepBench(step, where), budget_seconds, free_memory_bytes, tell)
        return search.run(most_workers)


class _Search:
    """One tuning: what is known, and the trials so far."""

    def __init__(
        self, source: Source, bench: StepBench, budget_s: float, free_memory_bytes: int | None, tell: Progress
    ) -> None:
        self.begin = time.perf_counter()
        self.source, self.bench, self.budget_s, self.tell = source, bench, budget_s, tell
        self.cores = usable_cores()
        self.method: StartMethod | None
        self.method, method_why = best_start_method(source)
        self.trials: list[Trial] = []
        self.refused: dict[int, str] = {}
        tell(0.0, "making a few batches here")
        self.cost: BatchCost = probe(
            source.loader(self._settings(1)), budget_s=min(0.4, budget_s / 8), most=12
        )
        tell(0.1, "the step alone")
        self.step_s, step_cpu_s = self._alone()
        self.model = ThroughputModel.of(self.cost, self.step_s, step_cpu_s, self.cores)
        self.busy_step = step_cpu_s > BUSY_STEP * self.step_s and bench.device.type == "cpu"
        forked = (self.method or torch.multiprocessing.get_start_method()) == "fork"
        self.memory = HostMemory(
            free_bytes=available_memory_bytes() if free_memory_bytes is None else free_memory_bytes,
            shared_free_bytes=free_shared_bytes(),
            worker_bytes=GUESS_FORKED if forked else GUESS_STARTED,
            batch_bytes=self.cost.nbytes,
        )
        self.reasons = {"start_method": method_why} if method_why else {}

    def run(self, most_workers: int | None) -> Tuning:
        """Try what the model says, correct it, and try again while that promises more."""
        most = max(8, 2 * self.cores) if most_workers is None else most_workers
        threads = torch.get_num_threads()
        try:
            self._try_workers(most)
            self._try_prefetch()
            self._try_threads()
        finally:
            torch.set_num_threads(threads)
        best = self._best()
        self.tell(1.0, "done")
        settings = self._finished(best)
        return Tuning(
            settings=settings,
            samples_per_second=best.samples_per_second,
            alone_samples_per_second=self.cost.samples / self.step_s if self.step_s else 0.0,
            trials=tuple(self.trials),
            model=self.model,
            limit=self.model.limit(settings.num_workers),
            memory=self.memory,
            refused=self.refused,
            reasons=self.reasons,
            batch_samples=self.cost.samples,
            seconds=time.perf_counter() - self.begin,
            emulated=bool(getattr(self.bench.step, "emulated", False)),
        )

    def _try_workers(self, most: int) -> None:
        while len(self.trials) < MOST_TRIALS and (not self.trials or self._time_is_left()):
            choices = self._that_fit(most)
            tried = {trial.settings.num_workers: trial.batch_s for trial in self.trials}
            if tried and self._fed():
                return
            number = self._next(choices, tried)
            if number is None:
                return
            why = "the model's choice" if not tried else "the model's choice after the trials before"
            if tried and number == 0:
                why = "no worker, to compare"
            self._try(self._settings(number), why)
            self.model = self.model.corrected(
                {trial.settings.num_workers: trial.batch_s for trial in self.trials}
            )

    def _next(self, choices: list[int], tried: dict[int, float]) -> int | None:
        """The model's choice, or a number beside the best so far that may be as good; else None.

        Beside none stands the number that the model likes best, since one worker alone may be too few.
        """
        choice = self.model.fewest(choices)
        if choice not in tried:
            return choice
        best = min(tried, key=tried.__getitem__)
        some = [n for n in choices if n]
        liked = self.model.fewest(some) if some and not best else best - 1
        near = [n for n in (liked, best + 1, 0) if n in choices and n not in tried]
        hopeful = [n for n in near if self.model.batch_s(n) < tried[best] * (1 + SAME)]
        return min(hopeful, key=self.model.batch_s, default=None)

    def _try_prefetch(self) -> None:
        """Where batches take unequal times, a larger store evens them out, if there are workers enough."""
        best = self._best().settings
        if not best.num_workers:
            return
        if self.cost.jitter < UNEVEN or self._fed() or not self._time_is_left():
            self.reasons["prefetch_factor"] = "PyTorch's own 2 is enough"
            if self.cost.jitter < UNEVEN:
                self.reasons["prefetch_factor"] += ": batches take about equally long"
            return
        more = self._settings(best.num_workers, prefetch_factor=LONG_PREFETCH)
        if self.memory.refusal(more) is None:
            self._try(more, "batches take unequal times: keep more of them ready")
            chosen = self._best().settings.prefetch_factor
            self.reasons["prefetch_factor"] = (
                "a larger store evens out unequal batches" if chosen else "a larger store did not help"
            )

    def _try_threads(self) -> None:
        """A step that computes on the processor may be faster with its cores shared out."""
        best = self._best().settings
        now = torch.get_num_threads()
        fewer = max(1, self.cores - best.num_workers)
        if not (self.busy_step and best.num_workers and fewer < now and self._time_is_left()):
            return
        self._try(self._settings(best.num_workers, best.prefetch_factor, fewer), "leave cores to the workers")
        self.reasons["threads"] = (
            "a core for each worker is taken from the step"
            if self._best().settings.threads
            else "sharing out the cores did not help"
        )

    def _try(self, settings: LoaderSettings, why: str) -> None:
        """Run a real loader with these settings beside the step, for a moment."""
        self.tell(min(0.95, 0.2 + 0.2 * len(self.trials)), f"trying {settings.brief()}")
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        left = max(0.2, self.budget_s - (time.perf_counter() - self.begin))
        run = run_trial(self.source, settings, self.bench, min(LONGEST_TRIAL_S, left / 4))
        if run.worker_bytes is not None:
            known = self.memory.worker_bytes if self.memory.measured else 0
            self.memory = HostMemory(
                self.memory.free_bytes,
                self.memory.shared_free_bytes,
                max(known, run.worker_bytes),
                self.memory.batch_bytes,
                measured=True,
            )
        self.trials.append(
            Trial(settings, run.samples_per_second, run.batch_s, run.first_batch_s, run.worker_bytes, why)
        )

    def _alone(self) -> tuple[float, float]:
        """Seconds of the step alone, and its processor time."""
        batch = to_device(self.cost.batches[0], self.bench.device)
        self.bench.step(batch)  # warms up
        cpu = time.process_time()
        rows = self.bench.run(cycle([batch]), min(0.3, self.budget_s / 8), at_least=2)
        used = time.process_time() - cpu
        return mean(rows, "step_s"), used / len(rows)

    def _that_fit(self, most: int) -> list[int]:
        """The numbers of workers that memory allows, by what is known of a worker now; 0 always."""
        fit = [0]
        self.refused.clear()
        for number in range(1, most + 1):
            why = self.memory.refusal(self._settings(number))
            if why is None:
                fit.append(number)
            else:
                self.refused[number] = why
        return fit

    def _settings(
        self, num_workers: int, prefetch_factor: int | None = None, threads: int | None = None
    ) -> LoaderSettings:
        return LoaderSettings(
            num_workers=num_workers,
            prefetch_factor=prefetch_factor if num_workers else None,
            persistent_workers=num_workers > 0,
            pin_memory=self.bench.device.type == "cuda",
            threads=threads,
            start_method=self.method if num_workers else None,
        )

    def _best(self) -> Trial:
        """The fastest trial; of those that are as fast, the one with the fewest workers."""
        fastest = max(trial.samples_per_second for trial in self.trials)
        equal = [trial for trial in self.trials if trial.samples_per_second >= fastest * (1 - SAME / 2)]
        return min(equal, key=lambda trial: (trial.settings.num_workers, -trial.samples_per_second))

    def _fed(self) -> bool:
        return self.step_s > 0 and self._best().batch_s * FED <= self.step_s

    def _time_is_left(self) -> bool:
        return time.perf_counter() - self.begin < self.budget_s * 0.8

    def _finished(self, best: Trial) -> LoaderSettings:
        """The best trial's settings, with a reason for each that was not tried."""
        settings = best.settings
        if settings.num_workers:
            self.reasons["persistent_workers"] = (
                f"an epoch's first batch comes after {best.first_batch_s:.2g} s; kept workers pay that once"
            )
        self.reasons["pin_memory"] = (
            "an NVIDIA card copies from pinned memory while the program goes on"
            if settings.pin_memory
            else f"only copies to an NVIDIA card gain by it, and the batches stay on {self.bench.device.type}"
        )
        return settings


def _check_size(dataset: Any, batch_size: int | None) -> None:
    """A batch that was asked for is no larger than the data set. Raises CourseError."""
    samples = len(dataset) if hasattr(dataset, "__len__") else None
    if batch_size is not None and samples is not None and batch_size > samples:
        raise CourseError(
            f"The data set has {samples:,} samples, fewer than a batch of {batch_size:,}: give a smaller one."
        )


@contextmanager
def _listener(progress: bool | Progress) -> Iterator[Progress]:
    if callable(progress):
        yield progress
        return
    from tqdm.auto import tqdm

    with tqdm(total=100, disable=not progress, bar_format="{desc} |{bar}|") as bar:

        def tell(share: float, doing: str) -> None:
            bar.set_description_str(f"tuning: {doing}", refresh=False)
            bar.update(round(100 * share) - bar.n)

        yield tell
