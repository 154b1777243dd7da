import math
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from course_lib.train.rescue.batch_search import TRUST, Bounds, Trial, best_of, line_through, next_batch_size

MIB = 2**20
sizes = st.integers(1, 500)


def search(needs: Callable[[int], float], bounds: Bounds, *, most: float = float("inf")) -> list[Trial]:
    """A whole search on a device that knows what a batch needs, and refuses more than the limit or `most`."""
    assert bounds.limit is not None
    trials: list[Trial] = []
    while (size := next_batch_size(trials, bounds)) is not None:
        fits = size <= most and needs(size) <= bounds.limit
        trials.append(
            Trial(size, int(needs(size)) if fits else None, None, 0.0, None if fits else "out of memory")
        )
        assert len(trials) < 100
    return trials


@settings(max_examples=300)
@example(fixed=1304, sample=0.5, capacity=10_000, wobble=0.01, start=1)
@example(fixed=6204, sample=0.5, capacity=28_181, wobble=0.01, start=1)
@given(
    fixed=st.integers(0, 8000),
    sample=st.floats(0.5, 900),
    capacity=st.integers(10_000, 80_000),
    wobble=st.floats(0, 0.01),
    start=st.integers(1, 64),
)
def test_a_line_is_found_in_few_trials(
    fixed: int, sample: float, capacity: int, wobble: float, start: int
) -> None:
    """What the samples take lies up to 1 % beside the line. A line is followed at most 8 times the distance
    of its two trials, so a start far below the largest batch costs a trial for each factor of 8.
    """

    def needs(batch_size: int) -> float:
        return MIB * (fixed + sample * batch_size * (1 + wobble * (batch_size * 7919 % 13 / 6 - 1)))

    trials = search(needs, Bounds(capacity * MIB, fixed * MIB // 2, start))
    best = best_of(trials)
    most = (capacity - fixed) / sample
    if best is None:
        assert needs(1) > capacity * MIB
        return
    ooms = sum(not trial.fits for trial in trials)
    assert best.batch_size >= min(0.9 * most, most - 2)
    assert ooms <= (2 if start <= 0.9 * most else 8)
    assert len(trials) <= 6 + math.ceil(math.log(max(1.0, most / start), TRUST)) + ooms


@pytest.mark.parametrize(("limit", "sample"), [(40_000, 90), (80_000, 90), (16_000, 700)])
def test_a_perfect_line_takes_two_probes_and_one_confirmation(limit: int, sample: int) -> None:
    trials = search(lambda size: MIB * (1000 + sample * size), Bounds(limit * MIB, 0, 4))
    assert [trial.fits for trial in trials] == [True] * 3
    assert trials[-1].batch_size >= 0.96 * (limit - 1000) // sample
    line = line_through(trials)
    assert line is not None
    assert line.at(10) == pytest.approx(MIB * (1000 + sample * 10))


@settings(max_examples=300)
@given(
    slopes=st.lists(st.floats(0, 3), min_size=13, max_size=13),
    most=st.integers(1, 5000),
    multiple_of=st.integers(1, 9),
    largest=st.none() | st.integers(10, 3000),
    start=st.integers(1, 40),
)
def test_any_rising_memory_ends_with_a_batch_that_ran(
    slopes: list[float], most: int, multiple_of: int, largest: int | None, start: int
) -> None:
    """Jumps, flat stretches, bends: never 0, never the same size twice, within the cap."""

    def needs(batch_size: int) -> float:
        doublings = batch_size.bit_length() - 1
        past = sum(slope * 2**i for i, slope in enumerate(slopes[:doublings]))
        return past + slopes[min(doublings, 12)] * (batch_size - 2**doublings)

    limit = max(1, int(needs(most)) + 1)
    trials = search(needs, Bounds(limit, 0, start, largest, multiple_of), most=most)
    tried = [trial.batch_size for trial in trials]
    assert len(tried) == len(set(tried)) <= 20
    assert all(size % multiple_of == 0 and size <= (largest or size) for size in tried)
    best = best_of(trials)
    if best is None:
        assert tried[-1] == multiple_of > most


@settings(max_examples=300)
@given(st.dictionaries(sizes, st.none() | st.integers(1, 10**6), max_size=15), st.integers(1, 10**6))
def test_the_next_size_lies_between_best_and_failure(past: dict[int, int | None], limit: int) -> None:
    smallest_failure = min((size for size, peak in past.items() if peak is None), default=501)
    trials = [
        Trial(size, peak, None, 0.0, None if peak else "no")
        for size, peak in past.items()
        if peak is None or size < smallest_failure
    ]
    best = best_of(trials)
    chosen = next_batch_size(trials, Bounds(limit, 0, 4))
    if chosen is not None:
        assert chosen > (best.batch_size if best else 0)
        assert chosen < smallest_failure or smallest_failure == 501


def test_what_the_first_trial_cost_once_is_not_taken_for_granted() -> None:
    """Gradients and states are much, activations little: the second probe still goes far enough."""
    trials = search(lambda size: 8000 * MIB + 2 * MIB * size, Bounds(12_000 * MIB, 2000 * MIB, 4))
    assert not any(not trial.fits for trial in trials)
    assert trials[-1].batch_size >= 0.9 * 2000
