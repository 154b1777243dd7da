import gc
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import Choice, Number, NumericFunction, WordFunction
from course_lib.teach.exercises.result import Outcome

CORRECT, NOT_YET, NOT_ATTEMPTED = Outcome.CORRECT, Outcome.NOT_YET, Outcome.NOT_ATTEMPTED


def area(width, height):
    return width * height


numeric = NumericFunction(
    reference=area,
    cases=(
        Case({"width": 2.0, "height": 7.0}),
        Case({"width": 3, "height": 5}),
        Case({"width": 4.0, "height": 0.0}, "A flat one."),
    ),
    diagnoses=(Diagnosis(lambda w, h: w + h, "You add."), Diagnosis(lambda w, h: w / h, "You divide.")),
    limit_s=30,
)


def first_letter(word):
    return frozenset(word[:1]) if word else frozenset("ab")


words = WordFunction(
    reference=first_letter,
    words=("a", "b"),
    cases=(Case({"word": "ape"}), Case({"word": "bee"}, "Think of honey."), Case({"word": ""})),
    diagnoses=(Diagnosis(lambda word: "b" if word == "ape" else "a", "The other way round."),),
    other_words={"c": "There is no c."},
)


@pytest.mark.parametrize(
    "answer",
    [
        area,
        lambda height, width: width * height,
        lambda w, h: np.float32(w) * np.float32(h),
        lambda w, h: torch.tensor(w) * torch.tensor(h),
        lambda w, h: Fraction(w) * Fraction(h),
        lambda w, h: Decimal(w) * Decimal(h),
        lambda w, h: np.array(w * h),
        lambda w, h: w * h * (1 + 1e-7),
        lambda w, h: print("working") or w * h,
    ],
)
def test_right_in_many_styles(answer):
    assert numeric(answer).outcome is CORRECT


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda w, h: w + h, "You add."),
        (lambda w, h: w / h, "You divide."),  # although the last case raises ZeroDivisionError
        (
            lambda w, h: w / h if h else 1,
            "`width=2`, `height=7` your function returned 0.285714, which is too small",
        ),
        (lambda w, h: w * h if h else 1 / h, "ZeroDivisionError"),
        (lambda w, h: w * h if h else 1 / h, "A flat one."),
        (lambda w, h: w * h if h else 1, "too large. A flat one."),
        (lambda w, h: w * h - 5, "`width=2`, `height=7` your function returned 9, which is too small"),
        (lambda w, h: 1000 * w * h, "which unit"),
        (lambda w, h: w * h / 3600, "which unit"),
        (lambda w, h: w * h * 1.001, "rounded"),
        (lambda w, h: -w * h, "too small"),
        (lambda w, h: None, "returned nothing"),
        (lambda w, h: print(w * h), "It prints"),
        (lambda w, h: math.nan, "nan (not a number)"),
        (lambda w, h: math.inf, "divided by zero"),
        (lambda w, h: np.float64("nan"), "nan (not a number)"),
        (lambda w, h: torch.tensor(float("inf")), "divided by zero"),
        (lambda w, h: True, "yes-or-no"),
        (lambda w, h: str(w * h), "text ('14.0')"),
        (lambda w, h: complex(w * h), "a complex number"),
        (lambda w, h: [w * h], "a list"),
        (lambda w, h: np.array([w * h]), "shape (1,)"),
        (lambda w, h: (x for x in [w * h]), "yield"),
        (lambda w, h: area, "a function"),
        (lambda w: w * 7, "it must take width, height"),
        (14.0, "without parentheses"),
        (None, "without parentheses"),
        ("area", "without quotes"),
        (int, "the class `int`"),
    ],
)
def test_wrong_in_many_ways(answer, words):
    assessment = numeric(answer)
    assert assessment.outcome is NOT_YET
    assert words in assessment.message
    assert ".." not in assessment.message.replace("...", "")
    assert "?." not in assessment.message


def test_a_coroutine_is_closed_and_told(recwarn):
    async def later(area):
        return area

    assert "async" in numeric(lambda w, h: later(w * h)).message
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_an_endless_loop_in_a_later_case_is_told():
    def loop(w, h):
        while not h:
            pass
        return w * h

    assert "loop that never ends" in replace(numeric, limit_s=0.3)(loop).message


def test_what_it_printed_comes_with_it():
    assert numeric(lambda w, h: print("w is", w) or 1).printed == "w is 2.0\n"


def test_a_right_function_that_changes_its_input_is_told():
    total = NumericFunction(
        reference=total_of, cases=(Case({"numbers": [1, 2, 3]}), Case({"numbers": [4.5]}))
    )

    def emptying(numbers):
        result = 0
        while numbers:
            result += numbers.pop()
        return result

    assert "changes `numbers`" in total(emptying).message
    assert total(lambda numbers: emptying(list(numbers))).outcome is CORRECT


def total_of(numbers):
    return sum(numbers)


def half_done(w, h):
    factor = ...
    return factor * w * h


@pytest.mark.parametrize(
    "answer",
    [
        ...,
        lambda w, h: ...,
        half_done,
        lambda w, h: {"area": ...},
        lambda w, h: (..., 1),
        [...],
        {"area": ...},
    ],
)
def test_dots_are_not_attempted(answer):
    assert numeric(answer).outcome is NOT_ATTEMPTED
    assert words(answer if not callable(answer) else lambda word: ...).outcome is NOT_ATTEMPTED


@given(
    st.floats(min_value=-1e6, max_value=1e6).filter(lambda x: abs(x - 1) > 1e-3),
    st.floats(min_value=-100, max_value=100),
)
def test_no_other_straight_line_passes(slope, offset):
    identity = NumericFunction(
        reference=the_same, cases=(Case({"x": 1.0}), Case({"x": -3.0}), Case({"x": 0.5}))
    )
    assert identity(lambda x: slope * x + offset).outcome is NOT_YET


def the_same(x):
    return x


@pytest.mark.parametrize("if_empty", ["a", "b"])
def test_right_words_and_either_after_a_tie(if_empty):
    assert words(lambda word: word[0] if word else if_empty).outcome is CORRECT
    assert words(lambda word: np.str_(word[0] if word else if_empty)).outcome is CORRECT


@pytest.mark.parametrize(
    ("answer", "hears"),
    [
        (lambda word: "a", "returned 'a', and that is not it. Think of honey."),
        (lambda word: "b" if word == "ape" else "a", "The other way round."),
        (lambda word: "c", "There is no c."),
        (lambda word: "A", 'written as here, one of "a", "b"'),
        (lambda word: " a", "written as here"),
        (lambda word: "x" * 10**6, "..."),
        (lambda word: 1, "a number: a word is wanted"),
        (lambda word: ["a"], "a list: a word is wanted"),
        (lambda word: word[0], "IndexError"),
        (lambda word: None, "returned nothing"),
    ],
)
def test_wrong_words(answer, hears):
    assessment = words(answer)
    assert assessment.outcome is NOT_YET
    assert hears in assessment.message
    assert len(assessment.message) < 500


number = Number(29.0, wrong=((28.0, "The last batch counts too."),))


@pytest.mark.parametrize("answer", [29, 29.0, np.int64(29), torch.tensor(29)])
def test_a_right_number(answer):
    assert number(answer).outcome is CORRECT


@pytest.mark.parametrize(
    ("answer", "hears"),
    [
        (28, "The last batch counts too."),
        (28.5, "28.5 is too small"),
        (30, "30 is too large"),
        ("29", "You handed in text ('29'): a number is wanted, without quotes"),
        (True, "yes-or-no"),
        (None, "nothing"),
        (math.nan, "nan (not a number)"),
        (lambda: 29, "a function"),
    ],
)
def test_a_wrong_number(answer, hears):
    assessment = number(answer)
    assert assessment.outcome is NOT_YET
    assert hears in assessment.message
    assert "?." not in assessment.message


choice = Choice("b", {"a": "That is the loader.", "c": "That is the card."})


@pytest.mark.parametrize(
    ("answer", "outcome", "hears"),
    [
        ("b", CORRECT, ""),
        (" B ", CORRECT, ""),
        ("a", NOT_YET, "That is the loader."),
        ("c", NOT_YET, "That is the card."),
        ("d", NOT_YET, 'one of "a", "b", "c"'),
        ("", NOT_YET, 'one of "a", "b", "c"'),
        (2, NOT_YET, "in quotes"),
        (None, NOT_YET, "in quotes"),
        (["b"], NOT_YET, "a list"),
        (..., NOT_ATTEMPTED, ""),
    ],
)
def test_a_choice(answer, outcome, hears):
    assessment = choice(answer)
    assert assessment.outcome is outcome
    assert hears in assessment.message


def test_number_and_choice_know_the_dots():
    assert number(...).outcome is NOT_ATTEMPTED
    assert choice(...).outcome is NOT_ATTEMPTED
