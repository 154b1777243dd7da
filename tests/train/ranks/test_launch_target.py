"""No launch starts itself again: a rank knows what it is a rank of."""

import json

import pytest

from course_lib.errors import CourseError
from course_lib.train.ranks.launch_target import CALL_IN_TURN, LAUNCHES, modules_of, within


def test_a_launch_of_another_module_within_a_launch_is_one_more() -> None:
    outer = {LAUNCHES: within("a", ["train"], {})}
    assert json.loads(outer[LAUNCHES]) == [["a", ["train"]]]
    assert json.loads(within("b", ["measure"], outer)) == [["a", ["train"]], ["b", ["measure"]]]


def test_a_module_is_not_launched_by_its_own_ranks() -> None:
    outer = {LAUNCHES: within("a", ["measure", "train"], {})}
    with pytest.raises(CourseError, match=r"'train' is launched already.*if __name__ == \"__main__\""):
        within("b", ["train"], outer)


def test_under_another_name_it_ends_after_the_second_launch() -> None:
    first = {LAUNCHES: within("a", ["train"], {})}
    second = {LAUNCHES: within("b", ["code.train"], first)}
    with pytest.raises(CourseError, match="a launch within 2 others"):
        within("c", ["me.code.train"], second)


def test_of_calls_in_turn_each_module_counts() -> None:
    assert modules_of("train:main", {"steps": 2}) == ["train"]
    assert modules_of("train", None) == ["train"]
    assert modules_of(CALL_IN_TURN, {"calls": [("train:main", {}), ("measure:run", {})]}) == [
        "train",
        "measure",
    ]
