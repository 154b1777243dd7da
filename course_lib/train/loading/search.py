"""Which settings are tried, in which order, and which of them is chosen?

The model of the throughput says how many workers; each trial corrects it. The search ends where another trial
promises nothing, where the step is fed, or where the time is over.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from course_lib.errors import CourseError
from course_lib.machine import usable_cores
from course_lib.train.batch import to_device
from course_lib.train.loading.memory import HostMemory
from course_lib.train.loading.model import SAME, ThroughputModel
from course_lib.train.loading.probe import BatchCost, probe
from course_lib.train.loading.settings import LoaderSettings, Source, StartMethod
from course_lib.train.loading.start_method import best_start_method
from course_lib.train.loading.step_bench import StepBench
from course_lib.train.loading.trials import STUCK_S, run_trial
from course_lib.train.loading.tuning import NO_STEP_S, Trial, Tuning
from course_lib.units import format_seconds

Progress = Callable[[float, str], None]
LONGEST_TRIAL_S = 1.0
SHORT_S = 5.0  # what all may take however small the budget is: workers must start
MOST_TRIALS = 4  # of numbers of workers
USUAL_MOST, MOST_FOR_STORAGE = 8, 32  # workers; waiting for storage keeps no core busy
FAR_SLOWER = 1.5  # times what the model said: the few batches that were made here say little
FED = 0.985  # a share of the step alone that more trials would hardly beat
LONG_PREFETCH = 4
STUCK = 20  # times what a batch takes here: no worker that works is so slow
REPEATED = (
    "each worker goes through all of this stream, so that with {workers} of them an epoch holds each sample "
    "{workers} times. In __iter__ ask get_worker_info(), and let each worker take its own part; until then "
    "one worker is the most."
)
UNEVEN = 0.3  # batches that differ by more of their mean need more of them in store
BUSY_STEP = 0.3  # a step that uses the processor for more of its time competes with the workers


class Search:
    """One tuning: what is known, and the trials so far."""

    def __init__(
        self,
        source: Source,
        bench: StepBench,
        budget_s: float,
        *,
        most_workers: int | None,
        free_memory_bytes: int | None,
        tell: Progress,
    ) -> None:
        """Make a few batches here and run the step alone.

        Raises CourseError where not even one batch can be made in the budget.
        """
        self.begin = time.perf_counter()
        self.source, self.bench, self.budget_s, self.tell = source, bench, budget_s, tell
        self.asked_most = most_workers
        self.cores = usable_cores()
        self.method: StartMethod | None
        self.method, method_why = best_start_method(source)
        self.trials: list[Trial] = []
        self.refused: dict[int, str] = {}
        self.warnings: list[str] = []
        self.repeated = 0  # the number of workers with which each sample came several times
        tell(0.0, "making a few batches here")
        self.cost: BatchCost = probe(
            source.loader(self._settings(1), endless=True),
            budget_s=min(0.4, budget_s / 8),
            most=12,
            limit_s=max(budget_s, SHORT_S),
        )
        tell(0.1, "the step alone")
        self.step_s, step_cpu_s = bench.alone(
            to_device(self.cost.batches[0], bench.device), min(0.3, budget_s / 8)
        )
        self.model = ThroughputModel.of(self.cost, self.step_s, step_cpu_s, self.cores)
        self.busy_step = step_cpu_s > BUSY_STEP * self.step_s and bench.device.type == "cpu"
        self.memory = HostMemory.before_trials(
            self.cost.nbytes,
            forked=(self.method or torch.multiprocessing.get_start_method()) == "fork",
            free_bytes=free_memory_bytes,
        )
        self.reasons = {"start_method": method_why} if method_why else {}

    def run(self) -> Tuning:
        """Try what the model says, correct it, and try again while that promises more.

        Raises CourseError where a batch takes so long that the budget is too short for a single trial.
        """
        threads = torch.get_num_threads()
        try:
            self._try_workers()
            self._try_prefetch()
            self._try_threads()
        finally:
            torch.set_num_threads(threads)
        best = self._best()
        self.tell(1.0, "done")
        settings = self._finished(best)
        samples = best.samples_per_second * best.batch_s
        return Tuning(
            settings=settings,
            samples_per_second=best.samples_per_second,
            alone_samples_per_second=samples / self.step_s if self.step_s > NO_STEP_S else None,
            trials=tuple(self.trials),
            model=self.model,
            limit=self.model.limit(settings.num_workers),
            memory=self.memory,
            refused=self.refused,
            reasons=self.reasons,
            batch_samples=samples,
            unit="samples" if self.bench.counted else "steps",
            most_workers=self._most(),
            warnings=tuple(self.warnings),
            seconds=time.perf_counter() - self.begin,
            emulated=bool(getattr(self.bench.step, "emulated", False)),
        )

    def _try_workers(self) -> None:
        while not self._usable() or (len(self.trials) < MOST_TRIALS and not self._fed()):
            choices = self._that_fit()
            tried = {trial.settings.num_workers: trial.batch_s for trial in self._usable()}
            number = self._next(choices, tried)
            if tried and (number is None or len(self.trials) == MOST_TRIALS - 1) and self._doubtful():
                number = 0
            if number is None:
                return
            if tried and not self._time_is_left(number):
                self.reasons["num_workers"] = f"the time was over before a trial with {number}"
                return
            why = "the model's choice" if not tried else "the model's choice after the trials before"
            if tried and number == 0:
                why = "no worker, to compare"
            self._try(self._settings(number), why)
            self.model = self.model.corrected(
                {trial.settings.num_workers: trial.batch_s for trial in self._usable()}
            )

    def _usable(self) -> list[Trial]:
        """The trials in which each sample came once."""
        return [trial for trial in self.trials if not self.repeated or trial.settings.num_workers < 2]

    def _doubtful(self) -> bool:
        """Whether workers were far slower than batches made here let expect, and no worker was not tried."""
        numbers = {trial.settings.num_workers for trial in self._usable()}
        return (
            0 not in numbers and self.model.scale > FAR_SLOWER and self.model.limit(max(numbers)) == "cores"
        )

    def _most(self) -> int:
        """How many workers may be tried: more where a trial leaves waiting for storage as the limit."""
        usual = max(USUAL_MOST, 2 * self.cores)
        if self.asked_most is None and any(trial.settings.num_workers for trial in self.trials):
            usual = max(usual, MOST_FOR_STORAGE) if self.model.limit(usual) == "storage" else usual
        most = usual if self.asked_most is None else self.asked_most
        return min(most, 1) if self.repeated else most

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
        if self.cost.jitter < UNEVEN or self._fed() or not self._time_is_left(best.num_workers):
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
        if not (self.busy_step and best.num_workers and fewer < now and self._time_is_left(best.num_workers)):
            return
        self._try(self._settings(best.num_workers, best.prefetch_factor, fewer), "leave cores to the workers")
        self.reasons["threads"] = (
            "a core for each worker is taken from the step"
            if self._best().settings.threads
            else "sharing out the cores did not help"
        )

    def _try(self, settings: LoaderSettings, why: str) -> None:
        """Run a real loader with these settings beside the step, for a moment."""
        round_s = self._round_s(settings.num_workers)
        left_s = max(self._left_s(), SHORT_S - self._spent_s())
        if not self.trials and 2 * round_s > left_s:
            raise CourseError(
                f"One batch takes {format_seconds(self.cost.make_s)} to make, so that a single trial takes "
                f"about {format_seconds(2 * round_s)}, more than what is left of {self.budget_s:g} s: give "
                f"about {math.ceil(self._spent_s() + 10 * round_s):,} seconds, or a smaller batch."
            )
        doing = f"trying {settings.brief()}"
        if round_s > 2:
            doing += f"; one batch takes {format_seconds(self.cost.make_s)}, so this takes a while"
        self.tell(min(0.95, 0.2 + 0.2 * len(self.trials)), doing)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        run = run_trial(
            self.source,
            settings,
            self.bench,
            min(LONGEST_TRIAL_S, max(0.2, self._left_s()) / 4),
            rounds=2 if 3 * round_s <= left_s else 1,
            limit_s=max(self._left_s(), SHORT_S),
            stuck_s=max(STUCK_S, STUCK * self.cost.make_s),
        )
        if run.worker_bytes is not None:
            known = self.memory.worker_bytes if self.memory.measured else 0
            self.memory = replace(self.memory, worker_bytes=max(known, run.worker_bytes), measured=True)
        if run.repeated:
            self.repeated = settings.num_workers
            self.warnings.append(REPEATED.format(workers=self.repeated))
            why += f"; each sample came {self.repeated} times, and is counted once"
        self.trials.append(
            Trial(settings, run.samples_per_second, run.batch_s, run.first_batch_s, run.worker_bytes, why)
        )

    def _spent_s(self) -> float:
        return time.perf_counter() - self.begin

    def _left_s(self) -> float:
        return self.budget_s - self._spent_s()

    def _round_s(self, num_workers: int) -> float:
        """Seconds in which each of so many workers makes one batch."""
        return max(1, num_workers) * self.model.batch_s(num_workers)

    def _that_fit(self) -> list[int]:
        """The numbers of workers that memory allows, by what is known of a worker now; 0 always."""
        fit = [0]
        self.refused.clear()
        for number in range(1, self._most() + 1):
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
        usable = self._usable()
        fastest = max(trial.samples_per_second for trial in usable)
        equal = [trial for trial in usable if trial.samples_per_second >= fastest * (1 - SAME / 2)]
        return min(equal, key=lambda trial: (trial.settings.num_workers, -trial.samples_per_second))

    def _fed(self) -> bool:
        """Whether the step hardly waits any more, so that no trial can gain."""
        return self.step_s > 0 and self._best().batch_s * FED <= self.step_s

    def _time_is_left(self, num_workers: int) -> bool:
        """Whether a trial with so many workers can still end in time."""
        return self._spent_s() + 2 * self._round_s(num_workers) < self.budget_s * 0.8

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
