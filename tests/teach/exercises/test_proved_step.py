"""A learner's step is put to the proof: it hears what was seen, and never what to write."""

import pytest

from course_lib.teach.exercises import proved_step
from course_lib.teach.exercises.accumulation import WHOLE_STEP
from course_lib.teach.exercises.proved_step import ProvedStep
from course_lib.teach.exercises.result import Outcome
from course_lib.train.equivalence import Reference
from course_lib.train.equivalence.catalogue import CATALOGUE


def prints(model, loader, optimizer, criterion):
    print("training")
    for x, y in loader:
        criterion(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_no_remedy_is_told_and_printing_is_kept() -> None:
    assessment = WHOLE_STEP.checker(prints)
    assert assessment.outcome is Outcome.NOT_YET
    assert "training" in assessment.printed
    for _, remedy in CATALOGUE.values():
        assert remedy not in assessment.message


def test_a_step_that_is_right_for_one_reference_must_be_for_all() -> None:
    only_even = ProvedStep(("model", "loader", "optimizer", "criterion"), (Reference(micro_batches=8),))
    popular = WHOLE_STEP.wrong_answers[0].answer
    assert only_even(popular).outcome is Outcome.CORRECT
    assert WHOLE_STEP.checker(popular).outcome is Outcome.NOT_YET


def test_a_step_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proved_step, "_LIMIT_S", 0.3)

    def endless(model, loader, optimizer, criterion):
        while True:
            pass

    assessment = WHOLE_STEP.checker(endless)
    assert assessment.outcome is Outcome.NOT_YET
    assert "loop without end" in assessment.message
