"""A job's costs, read off the cards that it was timed on, tell the card that it was not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.transfer import Costs, clocks, fit_costs, speed_on

NAMES = ("V100 16GB", "A100 40GB", "A100 80GB", "RTX A6000", "RTX 4090", "H100 80GB")
CARDS: dict[str, Accelerator] = {name: find_accelerator(name) for name in NAMES}


@given(
    arithmetic=st.floats(1e9, 1e12), moving=st.floats(1e7, 1e10), left_out=st.sampled_from(NAMES),
)  # fmt: skip
def test_costs_that_made_the_speeds_are_found_again(arithmetic: float, moving: float, left_out: str) -> None:
    true = Costs(arithmetic, moving, 0.0)
    speeds = {name: speed_on(card, true, "fp16") for name, card in CARDS.items() if name != left_out}
    told = speed_on(CARDS[left_out], fit_costs(speeds, CARDS, "fp16"), "fp16")
    assert told == pytest.approx(speed_on(CARDS[left_out], true, "fp16"), rel=0.3)


def test_one_measurement_is_met_and_moved_by_the_clocks() -> None:
    costs = fit_costs({"A100 40GB": 1000.0}, CARDS, "fp16")
    assert speed_on(CARDS["A100 40GB"], costs, "fp16") == pytest.approx(1000, rel=0.01)
    assert speed_on(CARDS["H100 80GB"], costs, "fp16") > 1500
    assert speed_on(CARDS["V100 16GB"], costs, "fp16") < 700


def test_no_cost_is_negative() -> None:
    # As fast on the slow card as on the fast one: neither arithmetic nor bytes explain it.
    costs = fit_costs({"V100 16GB": 500.0, "H100 80GB": 500.0, "A100 40GB": 500.0}, CARDS, "fp16")
    assert min(costs.arithmetic, costs.moving, costs.issuing) >= 0


def test_power_bounds_the_arithmetic() -> None:
    ada = find_accelerator("RTX 6000 Ada")
    assert clocks(ada, "fp16")[0] < 0.7 * 364.2e12
    assert clocks(find_accelerator("RTX 3090"), "fp16")[0] > 0.9 * 71e12


def test_nonsense_is_refused() -> None:
    for speeds in ({}, {"A100 40GB": 0.0}, {"A100 40GB": -5.0}):
        with pytest.raises(CourseError, match="measured speed"):
            fit_costs(speeds, CARDS, "fp16")
