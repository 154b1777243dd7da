from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.train.loading.memory import HostMemory
from course_lib.train.loading.model import ThroughputModel
from course_lib.train.loading.settings import LoaderSettings

SECONDS = st.floats(0.0001, 1)
MODELS = st.builds(
    ThroughputModel,
    make_s=SECONDS,
    read_s=st.just(0.0),
    share_s=st.floats(0, 0.01),
    cpu_s=SECONDS,
    step_s=SECONDS,
    step_cpu_s=st.floats(0, 0.1),
    hand_over_s=st.floats(0, 0.01),
    cores=st.integers(1, 64),
)


def model(**given: float) -> ThroughputModel:
    plain = {
        "make_s": 0.1, "read_s": 0.0, "share_s": 0.0, "cpu_s": 0.1, "step_s": 0.02, "step_cpu_s": 0.0,
        "hand_over_s": 0.001, "cores": 4,
    }  # fmt: skip
    return ThroughputModel(**{**plain, **given})  # type: ignore[arg-type]


@given(MODELS, st.integers(1, 30))
def test_more_workers_are_never_slower_and_no_loader_beats_the_step(
    one: ThroughputModel, workers: int
) -> None:
    assert one.batch_s(workers + 1) <= one.batch_s(workers)
    assert one.batch_s(workers) >= one.step_s
    assert one.batch_s(0) >= one.step_s + one.make_s


@given(MODELS)
def test_the_fewest_workers_are_nearly_the_fastest(one: ThroughputModel) -> None:
    choices = list(range(17))
    few = one.fewest(choices)
    best = min(one.batch_s(number) for number in choices)
    assert one.batch_s(few) <= 1.02 * best
    assert all(one.batch_s(number) > 1.02 * best for number in range(few))


def test_each_limit_is_named() -> None:
    assert model().limit(8) == "cores"
    assert model(cores=64).limit(2) == "workers"
    assert model(cores=64, read_s=0.09, cpu_s=0.01).limit(2) == "storage"
    assert model(cores=64).limit(8) == "step"
    assert model(cores=64, step_s=0.001, hand_over_s=0.05).limit(8) == "hand-over"
    assert model(make_s=0.0001, hand_over_s=0.001, step_s=0.001).limit(0) == "one process"
    assert model(make_s=0.0001).limit(0) == "step"
    assert model(cores=2).limit(0) == "cores"


def test_the_choice_follows_the_limit() -> None:
    assert model(make_s=0.0001, cpu_s=0.0001).fewest(range(9)) == 0
    assert model(cores=2, step_s=0.001).fewest(range(9)) == 2
    shared = model(make_s=0.002, share_s=0.02, cpu_s=0.022, step_s=0.0184, hand_over_s=0.0018, cores=2)
    assert shared.fewest(range(9)) == 0, "within 2 % of what two workers give"
    slower_here = shared.corrected({0: 0.0226})  # large batches of a memory map: one worker is not enough
    assert slower_here.fewest(range(9)) == 2
    assert slower_here.batch_s(2) == pytest.approx(0.0202)
    assert model(cpu_s=0.002, read_s=0.098, step_s=0.011, hand_over_s=0.0).fewest(range(17)) in (9, 10)


def test_a_trial_corrects_the_model() -> None:
    slower = model(cores=2).corrected({2: 0.1})
    assert slower.batch_s(2) == pytest.approx(0.1, rel=0.02)
    assert slower.batch_s(0) == model(cores=2).batch_s(0), "what no worker does is known already"
    fed = model(cores=64).corrected({8: 0.0225})
    assert fed.hand_over_s == pytest.approx(0.0025)
    busy = model(cores=64).corrected({8: 0.03})
    assert busy.hand_over_s == model().hand_over_s, (
        "10 ms are no hand-over: the workers are slower than thought"
    )
    assert busy.batch_s(8) == pytest.approx(0.03)
    assert busy.fewest(range(17)) > model(cores=64).fewest(range(17))
    assert model().corrected({0: 5.0}).batch_s(0) == pytest.approx(5.0)
    assert model().corrected({0: 5.0}).batch_s(2) == model().batch_s(2)
    assert model().corrected({0: 5.0, 2: 1.0}).batch_s(2) == pytest.approx(1.0)
    assert model().corrected({}) == model()
    assert replace(slower, scale=1.0) == model(cores=2)


def test_settings_that_do_not_fit_are_refused() -> None:
    memory = HostMemory(2**30, 2**26, worker_bytes=2**28, batch_bytes=2**22)
    assert memory.refusal(LoaderSettings(0)) is None
    assert memory.refusal(LoaderSettings(2)) is None
    assert "of the 1 GiB free" in str(memory.refusal(LoaderSettings(4)))
    assert "shared memory" in str(memory.refusal(LoaderSettings(2, prefetch_factor=8)))
    assert HostMemory(2**30, None, 2**20, 2**22).refusal(LoaderSettings(8)) is None
