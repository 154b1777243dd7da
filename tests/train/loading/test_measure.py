import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loading_data_sets import Sleeping, Stream, pairs, slow_collate
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

from course_lib.errors import CourseError
from course_lib.train.emulate import EmulatedStep
from course_lib.train.loading.measure import measure, split_stall
from course_lib.train.loading.measurement import LoaderMeasurement, Rate
from course_lib.train.loading.probe import BatchCost, bytes_in, probe
from course_lib.train.loading.step_bench import Row, rates

Children = Callable[[], set[int]]
IN_FOURS = BatchSampler(SequentialSampler(range(40)), 4, False)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_delays_that_were_put_in_are_found_within_five_points(num_workers: int, children: Children) -> None:
    """Put in: 40 ms reading, 80 ms decoding, 40 ms collating a batch."""
    before = children()
    loader = DataLoader(Sleeping(0.01, 0.02), batch_size=4, collate_fn=slow_collate, num_workers=num_workers)
    put_in = {"reading": 0.25, "decoding": 0.5, "collating": 0.25}
    for _ in range(5):  # other work on the machine can hold up any part: look again
        found = measure(loader, EmulatedStep(0.01), budget_s=1.4, repeats=2)
        assert children() <= before
        assert found.stall is not None
        made = sum(found.stall[part] for part in put_in)
        shares = {part: found.stall[part] / made for part in put_in}
        if shares == pytest.approx(put_in, abs=0.05) and found.waiting > 0.6:
            break
    assert shares == pytest.approx(put_in, abs=0.05)
    assert found.largest == "decoding"
    assert found.waiting > 0.6
    assert found.of_alone < 0.4
    assert found.emulated
    assert sum(found.shares.values()) == pytest.approx(found.waiting, abs=0.05)


def test_where_no_delay_was_put_in_none_is_found() -> None:
    for _ in range(5):  # a process that is put aside while it makes a batch seems to load slowly: look again
        found = measure(DataLoader(Sleeping(), batch_size=4), EmulatedStep(0.03), budget_s=1.0)
        making = sum(found.shares[part] for part in ("reading", "decoding", "collating"))
        if making < 0.03:
            break
    assert making < 0.03


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream(), batch_size=4, num_workers=2),
        DataLoader(Sleeping(length=40), batch_size=4, num_workers=1, persistent_workers=True),
        DataLoader(Sleeping(length=40), collate_fn=pairs, batch_sampler=IN_FOURS),
        DataLoader(Sleeping(length=40), batch_size=None, sampler=range(40)),
        DataLoader(Sleeping(length=3), batch_size=4),
        DataLoader(Stream(3), batch_size=4),
        DataLoader(TensorDataset(torch.zeros(40, 2), torch.zeros(40)), batch_size=4, pin_memory=True),
        [(torch.zeros(4, 2), torch.zeros(4))] * 5,
    ],
    ids=["stream", "persistent", "dict", "no batching", "short", "short stream", "pinned", "a list"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
def test_every_kind_of_loader_is_measured_and_leaves_nobody_behind(loader: Any, children: Children) -> None:
    before = children()
    found = measure(loader, EmulatedStep(0.001), budget_s=0.2)
    assert children() <= before
    assert found.real.median > 0
    assert found.batches >= 1
    assert (found.stall is None) == isinstance(loader, list)
    assert json.loads(found.to_json())["waiting"] == found.waiting
    assert f"{found.real.unit}/s" in str(found)
    assert "<table>" in found._repr_html_()
    if getattr(loader, "persistent_workers", False):
        assert len(list(loader)) == 10, "the loader can be used afterwards"
        loader._iterator._shutdown_workers()


def test_workers_are_gone_when_the_step_fails(children: Children) -> None:
    before = children()

    def step(batch: Any) -> None:
        if len(children()) > len(before):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(DataLoader(Sleeping(), batch_size=4, num_workers=2), step, budget_s=0.2)
    assert children() <= before


def test_what_cannot_be_measured_is_told() -> None:
    loader = DataLoader(Sleeping(), batch_size=4)
    for settings in ({"budget_s": 0}, {"repeats": 0}, {"budget_s": "6"}):
        with pytest.raises(CourseError, match="cannot be"):
            measure(loader, EmulatedStep(0), **settings)
    for wrong in (Sleeping(), Stream(), TensorDataset(torch.zeros(4)), torch.zeros(4, 3), {"a": 1}, 3):
        with pytest.raises(CourseError, match="give a DataLoader"):
            measure(wrong, EmulatedStep(0))  # type: ignore[arg-type]
    with pytest.raises(CourseError, match=r"EmulatedStep\(0.02\)"):
        measure(loader, 0.02)  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="one argument"):
        measure(loader, lambda: 1)  # type: ignore[arg-type, misc]
    with pytest.raises(CourseError, match="used up"):
        measure((torch.zeros(4) for _ in range(2)), EmulatedStep(0), budget_s=0.01)
    with pytest.raises(CourseError, match="no batch"):
        measure(DataLoader(Sleeping(length=3), batch_size=4, drop_last=True), EmulatedStep(0), budget_s=0.1)
    with pytest.raises(CourseError, match="no batch"):
        measure([], EmulatedStep(0), budget_s=0.1)


def test_where_there_are_no_batches_steps_are_counted() -> None:
    plain = DataLoader(TensorDataset(torch.zeros(40, 7)), batch_size=None)
    found = measure(plain, EmulatedStep(0.001), budget_s=0.2)
    assert found.alone.unit == found.real.unit == "steps"
    assert found.real.median <= 1000, "not seven times as many"
    assert "steps/s" in str(found)


def test_the_global_random_state_stays() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    measure(DataLoader(Sleeping(), batch_size=4, shuffle=True), EmulatedStep(0), budget_s=0.01)
    assert torch.equal(torch.get_rng_state(), before)


@given(st.tuples(*[st.floats(0, 1)] * 7))
def test_the_parts_are_the_whole(seconds: tuple[float, ...]) -> None:
    """Also where the step was faster with its loader than alone."""
    read_s, decode_s, share_s, wait_s, transfer_s, step_s, alone_s = seconds
    made = cost(read_s=read_s, decode_s=decode_s, share_s=share_s)
    rate = Rate(1, 1, 1, 1)
    for in_process in (False, True):
        stall = split_stall(made, wait_s, transfer_s, step_s - alone_s, in_process=in_process)
        found = LoaderMeasurement(
            rate, rate, rate, step_s, alone_s, wait_s, transfer_s, stall, (), 1, 0, "cpu", emulated=True
        )
        assert sum(stall.values()) == pytest.approx(found.stall_s, abs=1e-9)


def cost(**seconds: float) -> BatchCost:
    given = {"read_s": 0.0, "decode_s": 0.0, "collate_s": 0.0, "share_s": 0.0, "cpu_s": 0.0, "samples": 4}
    return BatchCost(**{**given, **seconds}, nbytes=100, each_s=(1.0,))  # type: ignore[arg-type]


def test_no_part_is_waited_for_longer_than_it_takes() -> None:
    stall = split_stall(cost(read_s=0.001, decode_s=0.001), wait_s=0.1, transfer_s=0.01, slower_s=-1)
    assert stall["reading"] == 0.001
    assert stall["transfer"] == pytest.approx(0.108)
    assert stall["slower step"] == 0
    assert sum(stall.values()) == pytest.approx(0.11)
    assert split_stall(cost(), 0.1, 0, 0)["transfer"] == 0.1
    proportional = split_stall(cost(read_s=0.3, decode_s=0.1), wait_s=0.2, transfer_s=0, slower_s=0)
    assert (proportional["reading"], proportional["decoding"]) == pytest.approx((0.15, 0.05))


def test_without_workers_nothing_is_handed_over_also_where_making_takes_longer_than_in_the_probe() -> None:
    made = cost(read_s=0.03, decode_s=0.01)
    alone = split_stall(made, wait_s=0.12, transfer_s=0.001, slower_s=0, in_process=True)
    assert (alone["reading"], alone["decoding"]) == pytest.approx((0.09, 0.03))
    assert alone["transfer"] == pytest.approx(0.001)


def test_a_batch_that_is_fetched_at_once_is_fetched_at_once_by_the_probe() -> None:
    class AtOnce(Sleeping):
        def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
            return [torch.tensor([-1.0]) for _ in indices]

    made = probe(DataLoader(AtOnce(), batch_size=4), budget_s=0.05)
    assert made.batches[0].flatten().tolist() == [-1.0] * 4
    assert (made.samples, made.nbytes) == (4, 16)


def test_the_bytes_of_a_nested_batch_are_counted() -> None:
    zeros = torch.zeros(4)
    assert bytes_in({"a": zeros, "b": [zeros, (zeros, "text", 3)]}) == 48


def test_windows_hold_whole_rounds_since_batches_of_several_workers_come_in_bursts() -> None:
    burst = [Row(0.3, 0, 0.01, 4), Row(0.0, 0, 0.01, 4), Row(0.0, 0, 0.01, 4)] * 4
    assert max(rates(burst, 5)) > 3 * min(rates(burst, 5)), "what one window of a burst would say"
    told = rates(burst, 3, round_of=3)
    assert told == pytest.approx([12 / 0.33] * 3)
    assert len(rates(burst[:6], 3, round_of=3)) == 2
    assert rates(burst[:2], 3, round_of=3) == pytest.approx([8 / 0.32]), "less than a round is one window"


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 8))
def test_each_step_is_in_one_window(steps: int, repeats: int, round_of: int) -> None:
    rows = [Row(1.0, 0.0, 0.0, 1)] * steps
    found = rates(rows, repeats, round_of=round_of)
    assert found == pytest.approx([1.0] * len(found))
    assert 1 <= len(found) <= repeats
