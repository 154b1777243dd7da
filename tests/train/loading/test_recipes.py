import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loading_data_sets import Sleeping

from course_lib.errors import CourseError
from course_lib.train.emulate import EmulatedStep
from course_lib.train.loading import memory
from course_lib.train.loading.gains import Gain
from course_lib.train.loading.measurement import Rate
from course_lib.train.loading.recipes import MEANINGS, SetUp, climb, gain_of, recipes, way_up
from course_lib.train.loading.settings import LoaderSettings
from course_lib.train.loading.timeline import record_timeline
from course_lib.train.photographs import Photographs, write_photographs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("p"), 8, width=280, height=240, progress=False)


def test_recipes_and_the_way_up_can_be_made(folder: Path) -> None:
    made = recipes(folder, cores=2)
    assert {"workers", "prefetch", "persistent workers", "uint8 over the wire", "memory map"} <= set(made)
    for before, after in made.values():
        assert before.dataset[0] if hasattr(before.dataset, "__getitem__") else next(iter(before.dataset))
        assert (before.settings, before.dataset) != (after.settings, after.dataset)
    assert len({set_up.name for set_up in way_up(folder, cores=2)}) == 9


def test_a_gain_is_measured_and_a_spread_that_overlaps_is_no_effect(folder: Path) -> None:
    heard: list[tuple[float, str]] = []
    gain = gain_of(
        "__getitems__",
        folder,
        EmulatedStep(0),
        batch_size=4,
        budget_s=0.2,
        progress=lambda share, doing: heard.append((share, doing)),
    )
    turns = ["one by one", "a batch at once"]
    assert heard == [*zip((0.0, 0.25, 0.5, 0.75), 2 * turns, strict=True), (1.0, "done")]
    assert gain.before.median > 0
    assert gain.factor > 0
    none = Gain("x", Rate(100, 98, 102, 3), Rate(101, 99, 103, 3))
    unsure = Gain("x", Rate(100, 60, 110, 3), Rate(105, 95, 130, 3))
    far = Gain("x", Rate(100, 90, 110, 3), Rate(205, 195, 215, 3))
    small = Gain("x", Rate(100, 99, 101, 3), Rate(94, 93, 95, 3))
    small_or_not = Gain("x", Rate(100, 97, 110, 3), Rate(93, 90, 95, 3))
    assert small.told_apart
    assert small.effect == "less than a tenth: x 0.92 to 0.96"
    assert "less than a tenth (0.92 to 0.96 times as fast)" in str(small)
    assert small_or_not.told_apart
    assert small_or_not.effect == "x 0.82 to 0.98"
    assert (none.effect, far.effect) == ("no effect: x 0.97 to 1.05", "x 2.05")
    assert unsure.effect == "not certain: x 0.86 to 2.17"
    assert "no effect (0.97 to 1.05" in str(none)
    assert "not certain" in str(unsure)
    assert "2.05 times as fast" in str(far)


RATES = st.lists(st.floats(1, 1e6), min_size=1, max_size=5).map(Rate.of)


@given(RATES, RATES)
def test_a_large_difference_is_never_called_no_effect(before: Rate, after: Rate) -> None:
    gain = Gain("x", before, after)
    low, high = gain.between
    assert low <= gain.factor * (1 + 1e-9)
    assert gain.factor <= high * (1 + 1e-9)
    assert gain.certain + gain.little <= 1
    if gain.certain:
        assert not 0.91 <= gain.factor <= 1.09
        assert gain.told_apart
    if gain.little:
        assert 0.9 <= gain.factor <= 1.11


def test_waiting_beside_each_other_is_a_gain_and_a_thread_hides_loading(
    children: Callable[[], set[int]],
) -> None:
    before = children()
    slow = Sleeping(read_s=0.02, length=400)
    for _ in range(5):  # other work on the machine can hold up any of them: look again
        up = climb(
            [
                SetUp("alone", slow),
                SetUp("a thread", slow, thread=True),
                SetUp("4 workers", slow, LoaderSettings(4)),
                SetUp("epochs", Sleeping(length=8), epochs=True),
            ],
            EmulatedStep(0.04),
            batch_size=2,
            budget_s=0.5,
        )
        assert children() <= before
        alone, thread, workers, _ = (rung.rate.median for rung in up.rungs)
        if min(thread, workers) > 1.3 * alone:
            break
    assert thread > 1.3 * alone
    assert workers > 1.3 * alone
    assert json.loads(up.to_json())["of_alone"]["alone"] == up.rungs[0].of_alone
    assert "emulated" in str(up)
    assert "<table>" in up._repr_html_()


def test_what_is_not_known_is_told(folder: Path) -> None:
    with pytest.raises(CourseError, match="There is no recipe"):
        gain_of("magic", folder, EmulatedStep(0))
    with pytest.raises(CourseError, match="at least one"):
        climb([], EmulatedStep(0))
    with pytest.raises(CourseError, match="The number of cores cannot be 0"):
        way_up(folder, cores=0)
    for wrong in ({"cores": 0}, {"budget_s": 0}, {"batch_size": 0}, {"batch_size": "8"}):
        with pytest.raises(CourseError, match="cannot be"):
            gain_of("workers", folder, EmulatedStep(0), **wrong)
        if "cores" not in wrong:
            with pytest.raises(CourseError, match="cannot be"):
                climb(
                    [SetUp("x", Sleeping(length=8))],
                    EmulatedStep(0),
                    **wrong,
                )


def test_each_recipe_is_explained_in_a_line(folder: Path) -> None:
    made = recipes(folder, cores=2)
    assert set(made) <= set(MEANINGS)
    assert set(MEANINGS) - set(made) <= {"pinned memory"}  # it takes an NVIDIA card
    assert max(len(name) + len(meaning) for name, meaning in MEANINGS.items()) < 100


def test_what_does_not_fit_the_shared_memory_is_left_out_and_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_shared_bytes", lambda: 2**20)
    ups = [SetUp("none", Sleeping(length=8)), SetUp("2 workers", Photographs(folder), LoaderSettings(2))]
    up = climb(ups, EmulatedStep(0), batch_size=4, budget_s=0.01)
    assert [rung.name for rung in up.rungs] == ["none"]
    assert "2 workers would keep 13.8 MiB of batches in shared memory" in up.left_out["2 workers"]
    assert "Left out, 2 workers" in str(up)
    assert "Left out, 2 workers" in up._repr_html_()
    with pytest.raises(CourseError, match="--shm-size"):
        climb(ups[1:], EmulatedStep(0), batch_size=4, budget_s=0.01)
    with pytest.raises(CourseError, match="--shm-size"):
        gain_of("workers", folder, EmulatedStep(0), batch_size=4)


def test_a_timeline_tells_who_made_which_batch(children: Callable[[], set[int]]) -> None:
    before = children()
    alone = record_timeline(Sleeping(0.005), EmulatedStep(0.02), LoaderSettings(0), batch_size=2, batches=3)
    helped = record_timeline(Sleeping(0.005), EmulatedStep(0.02), LoaderSettings(2), batch_size=2, batches=4)
    assert children() <= before
    assert alone.rows == ["loading", "step"]
    assert helped.rows == ["worker 0", "worker 1", "step"]
    assert [s.batch for s in helped.spans if s.row == "worker 0"] == [0, 2]
    for line in (alone, helped):
        for number in range(line.batches):
            made, stepped = (s for s in line.spans if s.batch == number)
            assert 0 <= made.begin_s <= made.end_s <= stepped.begin_s <= stepped.end_s
    assert alone.waited_s >= 2 * 0.01
    for length, batch, batches, told in (
        (8, 2, 1, "The number of batches cannot be 1"),
        (8, 0, 2, "The batch size cannot be 0"),
        (3, 3, 50, "3 samples are too few for batches of 3. Choose a batch of 1 or less"),
        (1, 1, 2, "fewer than two samples"),
    ):
        with pytest.raises(CourseError, match=told):
            record_timeline(
                Sleeping(length=length), EmulatedStep(0), LoaderSettings(0), batch_size=batch, batches=batches
            )
