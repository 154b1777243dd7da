"""What is let through as a number, and what the sentence says when it is not."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError

NO_NUMBERS = ["8", "", None, True, [], b"8", 1j, math.nan, math.inf, -math.inf, 1e300, -1, 10**400]


@given(st.floats(0, 100) | st.integers(0, 100))
def test_a_number_within_is_itself(value: float) -> None:
    assert number_in(value, "It", 0, 100) == value
    assert number_in(np.float64(value), "It", 0, 100) == value


@given(st.floats(min_value=100, exclude_min=True) | st.floats(max_value=0, exclude_max=True))
def test_a_number_outside_is_refused(value: float) -> None:
    with pytest.raises(CourseError, match=r"^It cannot be .*: give a number from 0 to 100\.$"):
        number_in(value, "It", 0, 100)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("checked", [number_in, whole_in])
def test_the_sentence_names_the_limits_and_stays_short(checked: Any, value: object) -> None:
    with pytest.raises(CourseError) as caught:
        checked(value, "The hours", 0, 10**9)
    said = str(caught.value)
    assert said.startswith("The hours cannot be ")
    assert said.endswith("from 0 to 1,000,000,000.")
    assert len(said) < 120


def test_whole_numbers_are_whole() -> None:
    assert whole_in(np.int64(7), "It", 1, 8) == 7
    for value in (1.5, 7.0, 0, 9):
        with pytest.raises(CourseError, match="whole number from 1 to 8"):
            whole_in(value, "It", 1, 8)


def test_a_long_text_is_cut() -> None:
    with pytest.raises(CourseError) as caught:
        number_in("x" * 10_000, "It", 0, 1)
    assert len(str(caught.value)) < 130
