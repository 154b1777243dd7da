"""Memory is counted, time is measured, and the update is the same whatever the cut."""

import json

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.train.update_cost import IMAGE_SIZE, one_update, update_cost


def test_memory_falls_with_the_micro_batch_and_steady_memory_does_not() -> None:
    large, small = (update_cost(32, size, budget_s=0.01) for size in (32, 8))
    assert (large.accumulation_steps, small.accumulation_steps) == (1, 4)
    assert large.kept_bytes == pytest.approx(4 * small.kept_bytes, rel=0.02)
    assert large.steady_bytes == small.steady_bytes > 0
    assert large.kept_bytes > 32 * 4 * 32 * IMAGE_SIZE**2, "the first convolution's output alone"
    assert small.seconds > 0
    assert json.loads(small.to_json())["accumulation_steps"] == 4
    assert str(small).startswith("4 x 8: ")
    assert str(small) in small._repr_html_()


def test_an_uneven_cut_has_one_part_more() -> None:
    assert update_cost(10, 4, budget_s=0.01).accumulation_steps == 3


def test_an_update_returns_its_loss() -> None:
    torch.manual_seed(0)
    assert one_update(6, 2) == pytest.approx(2.3, abs=0.7), "ln 10 for a network that knows nothing"


def test_progress_ends_at_one() -> None:
    heard: list[float] = []
    update_cost(4, 4, budget_s=0.01, progress=lambda share, doing: heard.append(share))
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((0, 0), "The global batch cannot be 0: give a whole number from 1 to 16,384"),
        ((4, 0), "The micro-batch cannot be 0: give a whole number from 1 to 16,384"),
        ((4, 8), "4 cannot be cut into micro-batches of 8: take 1 to 4 samples"),
        ((10**9, 8), "The global batch cannot be 1e"),
        ((4.5, 2), "The global batch cannot be 4.5"),
        (("8", 2), "The global batch cannot be '8'"),
    ],
)
def test_a_cut_that_cannot_be_made_is_told(sizes: tuple[int, int], told: str) -> None:
    with pytest.raises(CourseError, match=told):
        update_cost(*sizes)


def test_no_time_is_told() -> None:
    with pytest.raises(CourseError, match="The time to measure, in seconds, cannot be 0: give"):
        update_cost(4, 2, budget_s=0.0)
