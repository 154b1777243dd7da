"""The replayed allocator keeps the documented rules, and its own books."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.plan.allocator import (
    LARGE_BUFFER,
    MIB,
    SMALL_BUFFER,
    CachingAllocator,
    OutOfMemoryError,
    round_size,
    segment_size,
)
from course_lib.plan.expandable_allocator import ExpandableAllocator

KINDS = (CachingAllocator, ExpandableAllocator)


@pytest.mark.parametrize(
    ("size", "rounded"), [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)]
)
def test_sizes_are_rounded_to_512_bytes(size: int, rounded: int) -> None:
    assert round_size(size) == rounded


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_segments_have_the_documented_sizes(size: int, segment: int) -> None:
    assert segment_size(size) == segment
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert allocator.reserved == segment


def test_small_and_large_blocks_do_not_share_segments() -> None:
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(2 * MIB))
    allocator.allocate(512)
    assert allocator.reserved == LARGE_BUFFER + SMALL_BUFFER


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.release(large)
    allocator.release(small)
    assert allocator.allocate(30 * MIB) == small
    assert allocator.reserved == 70 * MIB


def test_a_large_block_is_split_only_if_more_than_a_mebibyte_remains() -> None:
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(20 * MIB))
    allocator.allocate(19 * MIB)
    assert allocator.allocated == 20 * MIB  # the last mebibyte stays with the block
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(20 * MIB))
    allocator.allocate(19 * MIB - 512)
    assert allocator.allocated == 19 * MIB - 512


def test_released_neighbours_join() -> None:
    allocator = CachingAllocator()
    first, second, third = (allocator.allocate(5 * MIB) for _ in range(3))
    for address in (first, third, second):
        allocator.release(address)
        allocator.check()
    assert allocator.largest_free() == LARGE_BUFFER
    assert allocator.empty_cache() == LARGE_BUFFER


def test_a_segment_with_one_live_block_is_kept_when_the_cache_is_emptied() -> None:
    allocator = CachingAllocator()
    first, second = allocator.allocate(5 * MIB), allocator.allocate(5 * MIB)
    allocator.release(first)
    assert allocator.empty_cache() == 0
    allocator.release(second)
    assert allocator.empty_cache() == LARGE_BUFFER
    assert allocator.reserved == 0
    assert allocator.reserved_peak == LARGE_BUFFER


def test_fragmentation_makes_the_reserved_grow_though_enough_is_free() -> None:
    allocator = CachingAllocator()
    addresses = [allocator.allocate(30 * MIB) for _ in range(4)]
    for address in addresses[::2]:
        allocator.release(address)
    allocator.allocate(60 * MIB)  # 60 MiB are free, in two pieces
    assert allocator.reserved == 180 * MIB
    assert allocator.stats().fragmentation == pytest.approx(60 / 180)


def test_expandable_segments_do_not_fragment_there() -> None:
    allocator = ExpandableAllocator()
    addresses = [allocator.allocate(30 * MIB) for _ in range(4)]
    allocator.release(addresses[2])
    allocator.release(addresses[3])
    allocator.allocate(60 * MIB)
    assert allocator.reserved == 120 * MIB


def test_the_cache_is_given_back_before_memory_is_out() -> None:
    allocator = CachingAllocator(capacity=100 * MIB)
    allocator.release(allocator.allocate(60 * MIB))
    allocator.allocate(80 * MIB)
    assert allocator.retries == 1
    assert allocator.reserved == 80 * MIB
    with pytest.raises(OutOfMemoryError) as raised:
        allocator.allocate(30 * MIB)
    assert raised.value.allocated == 80 * MIB
    allocator.check()


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_calls_are_refused(kind: type[CachingAllocator]) -> None:
    allocator = kind()
    address = allocator.allocate(100)
    allocator.release(address)
    with pytest.raises(ValueError, match="no allocated block"):
        allocator.release(address)
    with pytest.raises(ValueError, match="cannot have"):
        allocator.allocate(-1)


calls = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(0, 60 * MIB)),
        st.tuples(st.just("allocate"), st.integers(0, 2 * MIB)),
        st.tuples(st.just("release"), st.integers(0, 10**6)),
        st.tuples(st.just("empty"), st.just(0)),
    ),
    max_size=60,
)


@given(calls=calls, capacity=st.sampled_from([None, 50 * MIB, 200 * MIB]), kind=st.sampled_from(KINDS))
def test_the_books_are_right_after_any_calls(
    calls: list[tuple[str, int]], capacity: int | None, kind: type[CachingAllocator]
) -> None:
    allocator = kind(capacity=capacity)
    live: dict[int, int] = {}
    for call, number in calls:
        if call == "allocate":
            try:
                address = allocator.allocate(number)
            except OutOfMemoryError:
                assert capacity is not None
            else:
                assert address not in live
                assert all(address + number <= a or a + size <= address for a, size in live.items())
                live[address] = max(1, number)
        elif call == "release" and live:
            address = sorted(live)[number % len(live)]
            del live[address]
            allocator.release(address)
        elif call == "empty":
            allocator.empty_cache()
        allocator.check()
        assert sum(live.values()) <= allocator.allocated <= allocator.reserved <= allocator.reserved_peak
        assert capacity is None or allocator.reserved <= capacity
    for address in live:
        allocator.release(address)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (0, 0)


@given(size=st.integers(1, 40 * MIB), count=st.integers(1, 20))
def test_a_second_round_of_equal_blocks_needs_nothing_new(size: int, count: int) -> None:
    allocator = CachingAllocator()
    for _ in range(2):
        before = allocator.reserved
        for address in [allocator.allocate(size) for _ in range(count)]:
            allocator.release(address)
    assert allocator.reserved == before


def test_a_second_round_of_other_blocks_may_need_more() -> None:
    # The first block now takes the smaller free segment, so that the last one finds none that is large
    # enough.
    allocator = CachingAllocator()
    reserved = []
    for _ in range(3):
        for address in [allocator.allocate(size) for size in (4 * MIB, 8 * MIB + 1, 12 * MIB)]:
            allocator.release(address)
        reserved.append(allocator.reserved)
    assert reserved[0] < reserved[1] == reserved[2]
