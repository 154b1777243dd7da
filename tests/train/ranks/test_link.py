"""The fit behind a link: exact on exact times, sensible on noisy ones, and refused where there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.train.ranks.link import LinkBenchmark, fit_ring, ring_seconds
from course_lib.train.ranks.ranks_timing import median_interval

SIZES = (4096, 65536, 2**20, 2**24)


@given(st.floats(1e-6, 1e-2), st.floats(1e6, 1e12), st.integers(2, 64))
def test_exact_times_give_back_latency_and_bandwidth(latency: float, bandwidth: float, n: int) -> None:
    times = [ring_seconds(size, n, latency, bandwidth) for size in SIZES]
    found = fit_ring(SIZES, times, n)
    for size in (10_000, 10_000_000):
        assert ring_seconds(size, n, *found) == pytest.approx(
            ring_seconds(size, n, latency, bandwidth), rel=1e-4
        )


def test_a_large_size_does_not_drown_the_latency() -> None:
    times = [
        ring_seconds(size, 2, 1e-4, 1e9) * factor for size, factor in zip(SIZES, (1, 1, 1, 1.2), strict=True)
    ]
    latency, bandwidth = fit_ring(SIZES, times, 2)
    assert latency == pytest.approx(1e-4, rel=0.2)
    assert bandwidth == pytest.approx(1e9, rel=0.25)


@pytest.mark.parametrize("disturbed", range(len(SIZES) - 1))
def test_a_disturbed_size_does_not_spoil_the_fit(disturbed: int) -> None:
    times = [ring_seconds(size, 2, 1e-4, 1e9) for size in SIZES]
    times[disturbed] = 1.0  # the process was off its core for a second
    latency, bandwidth = fit_ring(SIZES, times, 2)
    assert bandwidth == pytest.approx(1e9, rel=0.3)
    assert ring_seconds(SIZES[-1], 2, latency, bandwidth) == pytest.approx(times[-1], rel=0.3)


def test_times_that_do_not_grow_are_refused() -> None:
    with pytest.raises(CourseError, match="do not grow"):
        fit_ring(SIZES, [4e-3, 3e-3, 2e-3, 1e-9], 2)


def test_one_rank_sends_nothing() -> None:
    assert ring_seconds(2**30, 1, 1e-3, 1e9) == 0


def test_a_link_predicts_other_numbers_of_ranks_and_prints() -> None:
    link = LinkBenchmark(2, "gloo", (4096, 2**20), (1e-4, 1e-3), (1e-4, 1e-3), (1e-4, 2e-3), 5e-5, 1e9)
    assert link.predict_s(10**9) == pytest.approx(1 + 1e-4)
    assert link.predict_s(10**9, 4) == pytest.approx(1.5 + 3e-4)
    assert "1 GB/s" in str(link)
    assert "2 ranks over gloo" in link._repr_html_()


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_interval_holds_the_median(values: list[float]) -> None:
    low, middle, high = median_interval(values)
    assert min(values) <= low <= middle <= high <= max(values)


def test_a_median_of_nothing_is_refused() -> None:
    with pytest.raises(CourseError, match="needs a value"):
        median_interval([])
