import math
import subprocess
import sys
from copy import deepcopy
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teach.exercises.values import NotANumberError, as_number, brief, kind, same


class Level(IntEnum):
    HIGH = 2


class Rude:
    def __repr__(self):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        Fraction(4, 2),
        Decimal("2.0"),
        Level.HIGH,
        np.float32(2),
        np.int64(2),
        np.array(2.0),
        torch.tensor(2.0),
        torch.tensor(2, dtype=torch.int64),
        torch.tensor(2.0, requires_grad=True),
        torch.tensor(2.0, dtype=torch.bfloat16),
    ],
)
def test_one_real_number_is_a_number(value):
    number = as_number(value)
    assert type(number) is float
    assert number == 2.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "yes-or-no"),
        (np.bool_(True), "yes-or-no"),
        (torch.tensor(True), "yes-or-no"),
        ("2.0", "text ('2.0')"),
        (np.str_("2.0"), "text"),
        (2 + 0j, "complex"),
        (np.complex64(2), "complex"),
        ((1, 2), "several values"),
        ([2.0], "a list"),
        ({"a": 2.0}, "a dictionary"),
        (np.array([2.0]), "an array of shape (1,)"),
        (torch.zeros(3), "an array of shape (3,)"),
        (torch.tensor(2.0, device="meta"), "without a value"),
        (None, "nothing"),
        (len, "a function"),
        (lambda: 2, "a function"),
        (int, "the class `int`"),
        ((x for x in [2]), "yield"),
        (Rude(), "a `Rude`"),
        (IndexError(), "an `IndexError`"),
    ],
)
def test_anything_else_is_named(value, words):
    with pytest.raises(NotANumberError) as caught:
        as_number(value)
    assert words in str(caught.value)


def test_a_number_too_large_for_a_float_is_infinite():
    assert as_number(10**400) == math.inf
    assert as_number(-(10**400)) == -math.inf
    assert math.isnan(as_number(Decimal("sNaN")))


@given(st.floats() | st.integers() | st.fractions() | st.decimals())
def test_every_number_gives_a_float(value):
    assert type(as_number(value)) is float


def test_brief_is_short_in_the_order_given_and_calls_no_repr_of_the_learner():
    assert brief(1 / 3) == "0.333333"
    assert brief(1_281_167) == "1281167"
    assert brief(10**10_000) == "inf"
    assert brief({"b": np.float32(0.5), "a": [1, (2,)]}) == "{'b': 0.5, 'a': [1, (2,)]}"
    assert brief(list(range(10**6))) == "[0, 1, 2, 3, 4, 5, 6, 7, ...]"
    assert brief([Rude(), {1: Rude()}]) == "[a `Rude`, {1: a `Rude`}]"
    assert len(brief("x" * 10**6)) < 80
    endless = []
    endless.append(endless)
    assert len(brief(endless)) < 80


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=10,
)


@given(nested)
def test_a_deep_copy_is_the_same(value):
    assert same(value, deepcopy(value))


@given(nested)
def test_a_change_at_any_depth_is_seen(value):
    assert not same({"a": [value]}, {"a": [[value]]})
    assert not same([value, 1], [value, True])
    assert not same([value], [value, value])


def test_arrays_are_compared_by_what_they_hold():
    array = np.array([[1.0, math.nan]])
    assert same(array, array.copy())
    assert not same(array, array.T)
    assert not same(np.zeros(3), np.ones(3))
    assert same(torch.zeros(2), torch.zeros(2))
    assert not same(torch.zeros(2), torch.ones(2))
    assert not same([1, 2], (1, 2))


def test_numpy_and_torch_are_not_imported_for_it():
    code = """if True:
        import sys
        from course_lib.teach.exercises.values import as_number, kind
        as_number(2), kind(object())
        print({"numpy", "torch"} & set(sys.modules))
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_a_coroutine_is_named():
    async def wait():
        return 1

    coroutine = wait()
    assert "async" in kind(coroutine)
    coroutine.close()
