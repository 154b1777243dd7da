"""Shares of global batches: nothing left out, nothing twice, the same batches for any number of ranks."""

from itertools import chain

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.train.ranks.global_batches import GlobalBatches


def shares(length: int, size: int, world_size: int, epoch: int = 0, start: int = 0) -> list[list[list[int]]]:
    found = []
    for rank in range(world_size):
        batches = GlobalBatches(range(length), size, rank=rank, world_size=world_size)
        batches.set_epoch(epoch, start)
        found.append(list(batches))
        assert len(found[-1]) == len(batches) == len(batches.scales())
    return found


sizes = st.tuples(st.integers(1, 200), st.integers(1, 50), st.integers(1, 6))


@given(sizes, st.integers(0, 5))
def test_every_sample_is_in_one_share_of_one_batch(setting: tuple[int, int, int], epoch: int) -> None:
    length, size, world_size = setting
    assume(size >= world_size and (length % size == 0 or length % size >= world_size))
    found = shares(length, size, world_size, epoch)
    assert sorted(i for rank in found for share in rank for i in share) == list(range(length))
    (alone,) = shares(length, size, 1, epoch)
    together = [sorted(chain(*parts)) for parts in zip(*found, strict=True)]
    assert together == [sorted(batch) for batch in alone], "the global batch does not depend on the ranks"
    assert all(max(map(len, parts)) - min(map(len, parts)) <= 1 for parts in zip(*found, strict=True))


@given(sizes)
def test_scaled_means_of_the_shares_give_the_mean_of_the_batch(setting: tuple[int, int, int]) -> None:
    length, size, world_size = setting
    assume(size >= world_size and (length % size == 0 or length % size >= world_size))
    found = shares(length, size, world_size)
    scales = [
        GlobalBatches(range(length), size, rank=r, world_size=world_size).scales() for r in range(world_size)
    ]
    for step, parts in enumerate(zip(*found, strict=True)):
        scaled = [scales[rank][step] * sum(part) / len(part) for rank, part in enumerate(parts)]
        everything = list(chain(*parts))
        assert sum(scaled) / world_size == pytest.approx(sum(everything) / len(everything))


def test_a_resumed_epoch_goes_on_where_it_was() -> None:
    whole, rest = shares(103, 10, 3, epoch=2), shares(103, 10, 3, epoch=2, start=4)
    assert [rank[4:] for rank in whole] == rest


def test_each_epoch_has_its_order_and_a_forgotten_set_epoch_repeats_it() -> None:
    first, second = shares(40, 8, 2, epoch=0), shares(40, 8, 2, epoch=1)
    assert first != second
    batches = GlobalBatches(range(40), 8, rank=0, world_size=2)
    assert list(batches) == list(batches) == first[0]


@pytest.mark.parametrize(
    ("length", "size", "rank", "world_size", "says"),
    [
        (10, 1, 0, 2, "leaves some of 2 ranks without a sample"),
        (11, 5, 0, 2, "last batch of 1 sample leaves"),
        (10, 5, 2, 2, "Rank 2 of 2 does not exist"),
    ],
)
def test_a_share_of_nothing_is_refused(length: int, size: int, rank: int, world_size: int, says: str) -> None:
    with pytest.raises(CourseError, match=says):
        GlobalBatches(range(length), size, rank=rank, world_size=world_size)


def test_an_epoch_that_does_not_exist_is_refused() -> None:
    batches = GlobalBatches(range(10), 5, rank=0, world_size=1)
    for epoch, start in ((-1, 0), (0, 3), (0, -1)):
        with pytest.raises(CourseError, match="does not exist"):
            batches.set_epoch(epoch, start)
    with pytest.raises(CourseError, match="seed"):
        GlobalBatches(range(10), 5, rank=0, world_size=1, seed=-1)
