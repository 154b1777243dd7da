import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from loading_data_sets import Everything, Sleeping, Stream, StuckInWorkers, slow_collate
from torch.utils.data import DataLoader, SequentialSampler

from course_lib.errors import CourseError
from course_lib.machine import usable_cores
from course_lib.train.emulate import EmulatedStep
from course_lib.train.loading import tune
from course_lib.train.loading.prefetch import Prefetcher
from course_lib.train.loading.probe import probe
from course_lib.train.loading.repeats import RepeatWatch
from course_lib.train.loading.rules import lightning_suggestion, pytorch_default, pytorch_limit
from course_lib.train.loading.search import Search
from course_lib.train.loading.settings import LoaderSettings, Source
from course_lib.train.loading.start_method import best_start_method, why_it_cannot_travel
from course_lib.train.loading.step_bench import StepBench
from course_lib.train.loading.trials import run_trial
from course_lib.train.loading.tuning import Trial

Children = Callable[[], set[int]]


def test_a_data_set_that_waits_gets_several_workers_and_leaves_none(children: Children) -> None:
    before, heard = children(), []
    tuned = tune(
        Sleeping(read_s=0.01),
        EmulatedStep(0.02),
        batch_size=8,
        budget_seconds=2,
        progress=lambda share, doing: heard.append(share),
    )
    assert children() <= before
    assert tuned.settings.num_workers >= 3
    assert tuned.settings.persistent_workers
    assert heard == sorted(heard)
    assert heard[-1] == 1
    fastest = max(trial.samples_per_second for trial in tuned.trials)
    assert 0.98 * fastest <= tuned.samples_per_second <= fastest
    assert tuned.settings in [trial.settings for trial in tuned.trials], (
        "what was not tried is not recommended"
    )
    told = json.loads(tuned.to_json())
    assert told["arguments"]["num_workers"] == tuned.settings.num_workers
    assert "worker" in str(tuned)
    assert "<table>" in tuned._repr_html_()
    assert tuned.memory.measured


def test_a_light_data_set_gets_no_worker() -> None:
    tuned = tune(Sleeping(), EmulatedStep(0.02), batch_size=4, budget_seconds=2, progress=False)
    assert tuned.trials[0].settings.num_workers == 0
    assert tuned.most_workers == max(8, 2 * usable_cores()), "more are for those who wait for storage"


def test_where_storage_is_waited_for_more_workers_are_tried_and_the_most_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("course_lib.train.loading.search.LONGEST_TRIAL_S", 0.3)
    monkeypatch.setattr("course_lib.train.loading.search.usable_cores", lambda: 2)
    monkeypatch.setattr("course_lib.train.loading.search.MOST_FOR_STORAGE", 12)
    slow = Sleeping(read_s=0.01)
    tuned = tune(slow, EmulatedStep(0.0005), batch_size=8, budget_seconds=20, progress=False)
    assert tuned.most_workers == 12
    assert max(trial.settings.num_workers for trial in tuned.trials) > 8
    capped = replace(tuned, most_workers=tuned.settings.num_workers, limit="storage")
    assert capped.sentence.endswith(f"{tuned.settings.num_workers} is the most that was tried.")
    assert "most that was tried" not in replace(capped, most_workers=32).sentence


def test_where_the_cores_are_far_slower_than_expected_no_worker_is_tried_too() -> None:
    """The seconds are made up: of a machine that was busy while the few batches were made."""
    source, bench = Source.of(Sleeping(), 4), StepBench(EmulatedStep(0.001), torch.device("cpu"))
    search = Search(
        source, bench, 60.0, most_workers=None, free_memory_bytes=None, tell=lambda share, doing: None
    )
    search.model = replace(search.model, make_s=0.1, read_s=0.0, cpu_s=0.1, step_s=0.01, cores=2)

    def try_out(settings: LoaderSettings, why: str) -> None:
        seconds = 0.09 if settings.num_workers else 0.03
        search.trials.append(Trial(settings, 4 / seconds, seconds, 0.1, None, why))

    search._try = try_out
    assert search.run().settings.num_workers == 0


@pytest.mark.parametrize(("length", "samples"), [(1, 1), (20, 20), (33, 32)])
def test_only_full_batches_are_compared_with_the_step_alone(length: int, samples: int) -> None:
    source = Source.of(Sleeping(length=length))
    assert probe(source.loader(LoaderSettings(), endless=True), most=5).samples == samples
    tuned = tune(Sleeping(length=length), EmulatedStep(0.005), budget_seconds=0.5, progress=False)
    assert tuned.batch_samples == pytest.approx(samples)
    assert tuned.alone_samples_per_second == pytest.approx(samples / tuned.model.step_s)
    assert ("fewer than 32" in str(tuned)) == (length < 32)


def test_a_stream_of_which_each_worker_gives_all_is_told_and_gets_no_second_worker() -> None:
    tuned = tune(Everything(), EmulatedStep(0.001), batch_size=4, budget_seconds=2, progress=False)
    assert tuned.settings.num_workers <= 1
    assert str(tuned).startswith("Careful: each worker goes through all of this stream")
    assert "get_worker_info" in tuned._repr_html_()


@pytest.mark.parametrize(
    ("batches", "repeated"),
    [
        ([[0, 1], [0, 1], [2, 3], [2, 3]], True),
        ([[0, 1], [2, 3], [4, 5], [6, 7]], False),
        ([[0, 0], [0, 0], [0, 0], [0, 0]], False),
        ([[0], [0], [1], [1]], True),
        ([[0, 1]], False),
    ],
)
def test_two_workers_that_give_the_same_are_noticed(batches: list[list[int]], repeated: bool) -> None:
    watch = RepeatWatch(iter([{"x": (torch.tensor(one), "text")} for one in batches]), 2)
    assert len(list(watch)) == len(batches)
    assert watch.repeated == repeated


def test_a_worker_that_never_answers_is_an_error(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.train.loading.workers.GRACE_S", 1.0)
    source, bench = Source.of(StuckInWorkers(), 4), StepBench(EmulatedStep(0), torch.device("cpu"))
    before = children()
    with pytest.raises(CourseError, match="With 2 workers the loader gave no batch for 500 ms"):
        run_trial(source, LoaderSettings(2), bench, 0.1, stuck_s=0.5)
    assert children() <= before


def test_batches_that_take_too_long_for_the_budget_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(0.0, 1.0).__next__
    loader = DataLoader(Sleeping(), batch_size=32)
    with pytest.raises(CourseError, match=r"takes about 1 min .*4 of 32 .* give about 600 seconds"):
        probe(loader, limit_s=5.5, clock=lambda: 1.5 * seconds())
    assert len(probe(loader, budget_s=1, clock=seconds).each_s) == 1, "a second one would take as long"
    monkeypatch.setattr("course_lib.train.loading.search.SHORT_S", 0.1)
    with pytest.raises(CourseError, match=r"One batch takes .*: give about \d+ seconds, or a smaller batch"):
        tune(Sleeping(0.02), EmulatedStep(0), batch_size=8, budget_seconds=0.2, progress=False)


def test_what_the_data_set_raises_names_its_sample() -> None:
    class Broken(Sleeping):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise ValueError("no picture")

    with pytest.raises(ValueError, match="no picture") as raised:
        tune(DataLoader(Broken(), batch_size=4), EmulatedStep(0), progress=False)
    assert raised.value.__notes__ == ["Raised by dataset[0]."]


def test_the_global_random_state_stays() -> None:
    before = torch.get_rng_state()
    tune(Sleeping(), EmulatedStep(0), batch_size=4, budget_seconds=0.1, most_workers=0, progress=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_does_not_fit_is_left_out_and_said() -> None:
    tuned = tune(
        Sleeping(read_s=0.01), EmulatedStep(0.001), batch_size=8, budget_seconds=1, progress=False,
        free_memory_bytes=0,
    )  # fmt: skip
    assert tuned.settings.num_workers == 0
    assert "would take" in tuned.refused[1]
    assert "Left out" in str(tuned)


@pytest.mark.parametrize(
    "dataset",
    [
        DataLoader(Sleeping(length=64), batch_size=4, collate_fn=slow_collate),
        DataLoader(Sleeping(length=64), batch_size=None, sampler=SequentialSampler(range(64))),
        Stream(),
    ],
    ids=["loader", "no batching", "stream"],
)
def test_other_sources_are_tuned(dataset: Any, children: Children) -> None:
    before = children()
    tuned = tune(dataset, EmulatedStep(0.001), budget_seconds=1, most_workers=1, progress=False)
    assert children() <= before
    assert tuned.samples_per_second > 0


def test_an_interrupt_leaves_nobody(children: Children) -> None:
    before = children()

    def step(batch: Any) -> None:
        time.sleep(0.001)
        if len(children()) > len(before):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(Sleeping(read_s=0.02), step, batch_size=8, budget_seconds=2, progress=False)
    assert children() <= before


def test_what_cannot_be_tuned_is_told() -> None:
    step = EmulatedStep(0)
    for wrong in ([], "text", 3, iter([])):
        with pytest.raises(CourseError, match=r"cannot be loaded|is empty"):
            tune(wrong, step, progress=False)
    for size in (0, 1.5, "8"):
        with pytest.raises(CourseError, match="batch size cannot be"):
            tune(Sleeping(), step, batch_size=size, progress=False)
    with pytest.raises(CourseError, match=r"EmulatedStep\(0.02\) takes that many seconds"):
        tune(Sleeping(), 0.02, progress=False)
    with pytest.raises(CourseError, match="must take one argument"):
        tune(Sleeping(), lambda: 1, progress=False)
    with pytest.raises(CourseError, match="collate_fn must be a function"):
        tune(Sleeping(), step, collate_fn=3, progress=False)
    with pytest.raises(CourseError, match="device 'nowhere' cannot be used here"):
        tune(Sleeping(), step, device="nowhere", progress=False)
    with pytest.raises(CourseError, match="time for tuning, in seconds, cannot be 0"):
        tune(Sleeping(), step, budget_seconds=0, progress=False)
    with pytest.raises(CourseError, match="number of workers cannot be -1"):
        tune(Sleeping(), step, most_workers=-1, progress=False)
    with pytest.raises(CourseError, match="fewer than a batch of 1,000"):
        tune(Sleeping(length=64), step, batch_size=1000, progress=False)


def test_settings_are_arguments_of_a_loader() -> None:
    settings = LoaderSettings(2, prefetch_factor=4, persistent_workers=True)
    loader = Source.of(Sleeping(), 4).loader(settings)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 4, True)
    assert LoaderSettings(0, prefetch_factor=4, persistent_workers=True).arguments() == {
        "num_workers": 0, "pin_memory": False,
    }  # fmt: skip
    assert "num_workers=2" in str(settings)


def test_an_endless_loader_goes_on_where_an_epoch_ends() -> None:
    batches = iter(Source.of(Sleeping(length=5), 2).loader(LoaderSettings(), endless=True))
    assert sum(len(next(batches)) for _ in range(12)) > 20


def test_the_rules_of_others() -> None:
    assert (pytorch_default(), pytorch_limit(8)) == (0, 8)
    assert [lightning_suggestion(cores) for cores in (1, 2, 8)] == [1, 1, 7]
    assert lightning_suggestion(16, devices=4) == 3
    with pytest.raises(CourseError, match="1 or more"):
        lightning_suggestion(0)


@pytest.mark.slow  # importing Lightning takes seconds
def test_lightning_itself_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pytest.importorskip("lightning.fabric.utilities.data")
    for cores, devices in [(1, 1), (2, 1), (8, 2), (16, 4)]:
        monkeypatch.setattr(data, "_num_cpus_available", lambda cores=cores: cores)
        assert lightning_suggestion(cores, devices) == data.suggested_max_num_workers(devices)


def test_what_cannot_travel_to_a_new_process_is_found() -> None:
    assert why_it_cannot_travel(Source.of(Sleeping(), 4)) is None
    assert "collate_fn" in str(why_it_cannot_travel(Source.of(Sleeping(), 4, lambda samples: samples)))
    method, _ = best_start_method(Source.of(Sleeping(), 4))
    assert method is None


def test_the_start_method_of_a_loader_is_kept() -> None:
    loader = DataLoader(Sleeping(), num_workers=2, multiprocessing_context="spawn")
    assert best_start_method(Source.of(loader)) == ("spawn", "your loader asks for it")
    assert best_start_method(Source.of(loader, batch_size=4))[0] == "spawn"
    loader = DataLoader(
        Sleeping(), num_workers=2, multiprocessing_context="spawn", collate_fn=lambda samples: samples
    )
    with pytest.raises(CourseError, match="starts its workers by spawn"):
        tune(loader, EmulatedStep(0), progress=False)


class TestPrefetcher:
    def test_it_gives_what_the_loader_gives(self) -> None:
        assert list(Prefetcher([1, 2, 3], ahead=1)) == [1, 2, 3]
        assert len(Prefetcher([1, 2, 3])) == 3

    def test_it_works_while_the_loop_works(self) -> None:
        second_is_made = threading.Event()

        def batches() -> Any:
            yield 1
            second_is_made.set()
            yield 2

        for batch in Prefetcher(batches()):
            assert second_is_made.wait(30), f"nobody makes the next batch while batch {batch} is used"

    def test_an_error_reaches_the_loop(self) -> None:
        def broken() -> Any:
            yield 1
            raise ValueError("late")

        batches = iter(Prefetcher(broken()))
        assert next(batches) == 1
        with pytest.raises(ValueError, match="late"):
            next(batches)

    def test_its_thread_ends_when_the_loop_is_left(self) -> None:
        before = threading.active_count()
        for _ in Prefetcher(iter(int, 1)):  # endless
            break
        assert threading.active_count() <= before

    def test_bad_input(self) -> None:
        with pytest.raises(CourseError, match="ahead"):
            Prefetcher([], ahead=0)


def test_a_step_on_the_processor_is_tuned(children: Children) -> None:
    before = children()
    weight = torch.randn(300, 300)

    def step(batch: Any) -> None:
        for _ in range(10):
            weight @ weight

    tuned = tune(Sleeping(read_s=0.005), step, batch_size=8, budget_seconds=2, most_workers=2, progress=False)
    assert children() <= before
    assert not tuned.emulated
    assert tuned.model.step_cpu_s > 0
