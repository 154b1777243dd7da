import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.train.split import PHASES, StepSplit

seconds = st.floats(0, 1e3, allow_subnormal=False)
steps = st.lists(st.tuples(*[seconds] * len(PHASES)), min_size=1, max_size=20)


@given(steps, st.integers(0, 10_000))
def test_shares_add_up_and_no_number_is_lost(rows: list[tuple[float, ...]], samples: int) -> None:
    split = StepSplit.from_steps(rows, samples=samples)
    whole = math.fsum(math.fsum(row) for row in rows)
    assert math.isclose(split.step.mean_s * split.steps, whole, rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(math.fsum(split.seconds.values()), split.step.mean_s, rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(math.fsum(split.shares.values()), 1 if whole else 0, abs_tol=1e-9)
    assert split.seconds[split.dominant] == max(split.seconds.values())
    for spread in (*split.phases.values(), split.step):
        assert spread.low_s <= spread.median_s <= spread.high_s
    if samples and whole:
        assert math.isclose(split.samples_per_second or 0, samples / whole, rel_tol=1e-9)
    else:
        assert split.samples_per_second is None


def test_a_split_made_by_hand_tells_throughput_and_bottleneck() -> None:
    split = StepSplit.from_seconds(data=0.06, forward=0.01, backward=0.02, optimizer=0.01, batch_size=64)
    assert split.dominant == "data"
    assert split.shares["data"] == pytest.approx(0.6)
    assert split.samples_per_second == pytest.approx(640)
    assert "60.0 %" in str(split)
    assert "Measured" not in str(split)  # nothing was


def test_mean_and_median_part_where_a_wait_comes_now_and_then() -> None:
    rows = [[0.0, 0, 0.01, 0, 0, 0]] * 7 + [[0.16, 0, 0.01, 0, 0, 0]]
    split = StepSplit.from_steps(rows, samples=8)
    assert split.phases["data"].median_s == 0
    assert split.phases["data"].mean_s == pytest.approx(0.02)
    assert split.shares["data"] == pytest.approx(2 / 3)
    assert split.spread == 0  # the middle half of the steps is even


def test_json_holds_all_of_it() -> None:
    split = StepSplit.from_steps([[1, 2, 3, 4, 5, 6], [2, 2, 3, 4, 5, 6]], samples=10, warmup=3)
    told = json.loads(split.to_json())
    assert told["phases"]["data"]["mean_s"] == 1.5
    assert list(told["phases"]) == list(PHASES)
    assert told["samples_per_second"] == pytest.approx(10 / 43)
    assert (told["steps"], told["warmup"], told["dominant"]) == (2, 3, "rest")


def test_the_page_escapes_and_names_every_phase() -> None:
    split = StepSplit.from_steps([[1.0] * 6], samples=0, device="<b>", method="a & b")
    page = split._repr_html_()
    assert "<b>" not in page
    assert "a &amp; b" in page
    assert all(f">{name}</th>" in page for name in PHASES)


@pytest.mark.parametrize("rows", [[], [[1.0] * 5], [[1.0] * 5 + [-0.1]], [[1.0] * 5 + [math.nan]]])
def test_what_is_no_step_is_refused(rows: list[list[float]]) -> None:
    with pytest.raises(CourseError):
        StepSplit.from_steps(rows, samples=0)


def test_a_phase_that_does_not_exist_is_named() -> None:
    wrong: dict[str, Any] = {"loading": 0.1}
    with pytest.raises(CourseError, match=r"loading.*data, transfer"):
        StepSplit.from_seconds(**wrong)
