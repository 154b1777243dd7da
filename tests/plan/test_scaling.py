"""A ring moves what the formula says, buckets hold every byte, and n cards never beat n times one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.accelerators import accelerators
from course_lib.errors import CourseError
from course_lib.plan.interconnects import Interconnect, find_interconnect, interconnect_of, interconnects
from course_lib.plan.scaling import buckets, ring_all_reduce, scale
from course_lib.plan.step_time import StepTime

FAST = Interconnect("fast", 100e9, 5e-6, False, "")
SLOW = Interconnect("slow", 1e9, 50e-6, False, "")
NETWORK = Interconnect("network", 1e9, 30e-6, True, "")


def step(
    seconds: float = 0.1, mib: int = 100, tensors: int = 50, accumulate: int = 1, batch_size: int = 32
) -> StepTime:
    gradients = tuple(((place + 1) / tensors, mib * 2**20 // tensors) for place in range(tensors))
    return StepTime(
        "model",
        "card",
        batch_size,
        "fp16",
        accumulate,
        seconds,
        seconds,
        seconds,
        "compute",
        1e12,
        1e14,
        seconds / 3,
        seconds * 0.6,
        seconds * 0.07,
        gradients,
        (),
        (),
        "made up",
    )


def test_the_ring_by_hand() -> None:
    # Four cards: 6 hops, and 6/4 of the bytes through each link.
    assert ring_all_reduce(400e6, 4, FAST) == pytest.approx(6 * 5e-6 + 1.5 * 400e6 / 100e9)
    assert ring_all_reduce(400e6, 1, FAST) == 0


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 2**26)), min_size=1, max_size=60), st.floats(0.5, 100)
)
def test_buckets_hold_every_byte_and_end_with_the_last_gradient(
    gradients: list[tuple[float, int]], cap: float
) -> None:
    made = buckets(gradients, cap)
    assert sum(nbytes for _, nbytes in made) == sum(nbytes for _, nbytes in gradients)
    assert [ready for ready, _ in made] == sorted(ready for ready, _ in made)
    assert made[-1][0] == max(ready for ready, _ in gradients)
    assert all(nbytes >= min(cap, 1.0) * 2**20 for _, nbytes in made[:-1])


def test_the_first_bucket_is_small_so_that_the_exchange_begins_early() -> None:
    made = buckets(step().gradients)
    assert made[0][1] < 5 * 2**20 < 25 * 2**20 <= made[1][1]


@given(
    cards=st.integers(1, 64),
    seconds=st.floats(1e-3, 2),
    mib=st.integers(50, 4000),
    bandwidth=st.floats(1e8, 1e12),
)
def test_no_more_than_n_times_one_card_and_hiding_never_costs(
    cards: int, seconds: float, mib: int, bandwidth: float
) -> None:
    link = Interconnect("link", bandwidth, 5e-6, False, "")
    hidden = scale(step(seconds, mib), cards, link)
    plain = scale(step(seconds, mib), cards, link, overlap=False)
    assert 0 < hidden.efficiency <= 1 + 1e-12
    assert hidden.seconds <= plain.seconds * (1 + 1e-12)
    assert plain.exposed == pytest.approx(plain.exchange)
    assert hidden.speedup == pytest.approx(cards * hidden.efficiency)
    assert hidden.samples_per_second == pytest.approx(hidden.global_batch_size / hidden.seconds)


def test_one_card_loses_nothing() -> None:
    alone = scale(step(), 1, SLOW)
    assert alone.efficiency == 1
    assert alone.exchange == alone.exposed == alone.waiting == 0


def test_a_slow_link_hurts_a_fast_one_hardly_and_a_larger_batch_helps() -> None:
    assert scale(step(), 8, FAST).efficiency > 0.93
    slow = scale(step(), 8, SLOW).efficiency
    assert slow < 0.6
    assert scale(step(seconds=0.8, batch_size=256), 8, SLOW).efficiency > slow + 0.2


def test_accumulated_steps_exchange_once() -> None:
    once = scale(step(seconds=0.1), 8, SLOW)
    four = scale(step(seconds=0.4, accumulate=4), 8, SLOW)
    assert four.exchange == pytest.approx(once.exchange)
    assert four.efficiency > once.efficiency


def test_computers_share_out_their_cards_and_need_a_network() -> None:
    inside = scale(step(), 8, FAST)
    two = scale(step(), 8, FAST, nodes=2, network=NETWORK)
    assert two.exchange > inside.exchange
    assert two.efficiency < inside.efficiency
    with pytest.raises(CourseError, match="network"):
        scale(step(), 8, FAST, nodes=2)
    with pytest.raises(CourseError, match="cannot be shared out"):
        scale(step(), 9, FAST, nodes=2, network=NETWORK)
    with pytest.raises(CourseError, match="holds nothing"):
        scale(step(), 8, FAST, bucket_cap_mb=0)


def test_a_network_given_as_the_link_means_one_card_a_computer() -> None:
    made = scale(step(), 4, NETWORK)
    assert made.nodes == 4
    assert made.exchange > scale(step(), 4, FAST).exchange


def test_every_link_has_a_source_and_a_date_and_is_found_by_each_of_its_names() -> None:
    assert len(interconnects()) >= 10
    for link in interconnects():
        assert link.bandwidth > 0
        assert link.latency > 0
        assert link.source.startswith("https://")
        assert all(find_interconnect(alias) is link for alias in link.aliases)
    with pytest.raises(CourseError, match="NVLink 4"):
        find_interconnect("nvlnk 4")


def test_the_cards_of_the_table_name_links_that_are_known() -> None:
    named = [card for card in accelerators() if card.vendor == "NVIDIA" and card.interconnect]
    assert len(named) > 40
    for card in named:
        assert interconnect_of(card).bandwidth > 0


def test_it_prints_and_turns_into_json() -> None:
    made = scale(step(), 8, SLOW)
    assert "8 x card over slow" in str(made)
    assert made.to_json()["efficiency"] == made.efficiency
    assert "<" not in made._repr_html_().replace("<br>", "")
