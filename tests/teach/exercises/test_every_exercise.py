"""Each exercise of each lesson: right answers pass, wrong ones hear why, and nothing gives the answer away.

A new lesson adds its module to ``course_lib/teach/exercises``; these tests find it there.
"""

import ast
import contextlib
import inspect
import math
import re
import textwrap

import pytest

from course_lib.teach.exercises.checkers import Choice, Number, NumericFunction, WordFunction
from course_lib.teach.exercises.exercise import WrongAnswer
from course_lib.teach.exercises.registry import exercises_of, topics
from course_lib.teach.exercises.result import Outcome

EXERCISES = [exercise for topic in topics() for exercise in exercises_of(topic)]


def wrong_answers(exercise):
    """The author's wrong answers, and the known wrong formulas: each must hear exactly its diagnosis."""
    checker = exercise.checker
    known = [
        WrongAnswer(diagnosis.formula, diagnosis.says) for diagnosis in getattr(checker, "diagnoses", ())
    ]
    if isinstance(checker, Choice):
        known += [WrongAnswer(option, says) for option, says in checker.wrong.items()]
    if isinstance(checker, Number):
        known += [WrongAnswer(number, says) for number, says in checker.wrong]
    return [*known, *exercise.wrong_answers]


RIGHT = [
    pytest.param(exercise, answer, id=f"{exercise.id}-{number}")
    for exercise in EXERCISES
    for number, answer in enumerate(exercise.right_answers)
]
WRONG = [
    pytest.param(exercise, wrong, id=f"{exercise.id}-{number}-{wrong.hears[:30]}")
    for exercise in EXERCISES
    for number, wrong in enumerate(wrong_answers(exercise))
]
EACH = [pytest.param(exercise, id=exercise.id) for exercise in EXERCISES]


@pytest.mark.parametrize(("exercise", "answer"), RIGHT)
def test_a_right_answer_passes(exercise, answer):
    assessment = exercise.checker(answer)
    assert assessment.outcome is Outcome.CORRECT, assessment.message


@pytest.mark.parametrize(("exercise", "wrong"), WRONG)
def test_a_wrong_answer_hears_what_is_wrong_with_it(exercise, wrong):
    assessment = exercise.checker(wrong.answer)
    assert assessment.outcome is Outcome.NOT_YET
    assert wrong.hears.lower() in assessment.message.lower()
    assert assessment.message.endswith((".", "?", "`")), "a message is whole sentences"


@pytest.mark.parametrize(("exercise", "wrong"), WRONG)
def test_no_message_gives_the_answer_away(exercise, wrong):
    message = exercise.checker(wrong.answer).message
    holds_no_formula(message, exercise)
    if isinstance(exercise.checker, NumericFunction):
        own = re.sub(r"'[^']*'", "", message)  # text in quotes is what the learner's function returned
        for case in exercise.checker.cases:
            if str(case) in own:
                shown = {float(value) for value in case.arguments.values() if isinstance(value, int | float)}
                expected = exercise.checker.reference(**case.arguments)
                assert not any(near(number, expected) for number in numbers_in(own) - shown)


@pytest.mark.parametrize("exercise", EACH)
def test_neither_first_hint_nor_remark_nor_diagnosis_gives_the_answer_away(exercise):
    checker = exercise.checker
    texts = [exercise.hints[0], exercise.title]
    texts += [case.remark for case in getattr(checker, "cases", ())]
    texts += [diagnosis.says for diagnosis in getattr(checker, "diagnoses", ())]
    expected = []
    if isinstance(checker, NumericFunction):
        expected = [checker.reference(**case.arguments) for case in checker.cases]
    if isinstance(checker, Number):
        expected = [checker.expected]
    for text in texts:
        holds_no_formula(text, exercise)
        assert not any(near(number, one) for number in numbers_in(text) for one in expected)
    for hint in exercise.hints:
        holds_no_formula(hint, exercise)


@pytest.mark.parametrize("exercise", EACH)
def test_the_dots_of_the_learners_edition_are_not_attempted(exercise):
    assert exercise.checker(...).outcome is Outcome.NOT_ATTEMPTED
    if isinstance(exercise.checker, NumericFunction | WordFunction):
        assert exercise.checker(lambda *_: ...).outcome is Outcome.NOT_ATTEMPTED


@pytest.mark.parametrize("exercise", EACH)
@pytest.mark.parametrize(
    "nonsense", [None, object(), print, "", [], 1j, {}, math.nan, type, Ellipsis.__class__]
)
def test_nonsense_never_raises_and_never_passes(exercise, nonsense):
    with contextlib.redirect_stdout(None):
        assessment = exercise.checker(nonsense)
    assert assessment.outcome is Outcome.NOT_YET
    assert assessment.message


@pytest.mark.parametrize("exercise", EACH)
def test_it_is_complete(exercise):
    topic, _, name = exercise.id.partition(".")
    assert exercise in exercises_of(topic)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert 1 <= exercise.minutes <= 15
    assert exercise.dots.count("●") == exercise.difficulty
    assert len(exercise.hints) >= 2
    assert len(exercise.right_answers) >= 2
    assert len(wrong_answers(exercise)) >= 5
    assert all(text.endswith((".", "?")) for text in exercise.hints)


def test_ids_are_unique():
    assert EXERCISES
    assert len({exercise.id for exercise in EXERCISES}) == len(EXERCISES)


def near(number, expected):
    return math.isclose(number, expected, rel_tol=5e-3)


def numbers_in(text):
    return {float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)}


def holds_no_formula(text, exercise):
    squeezed = re.sub(r"\s", "", text)
    for formula in formulas(exercise):
        assert formula not in squeezed


def formulas(exercise):
    """What the reference and the right answers return, where it is more than a name, without spaces."""
    functions = [getattr(exercise.checker, "reference", None), *exercise.right_answers]
    for function in functions:
        if inspect.isfunction(function) and function.__name__ != "<lambda>":
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
                if isinstance(node, ast.Return) and isinstance(node.value, ast.BinOp | ast.Call):
                    yield ast.unparse(node.value).replace(" ", "")
