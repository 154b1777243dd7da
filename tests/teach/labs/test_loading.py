from pathlib import Path

import psutil
import pytest
import torch

from course_lib.errors import CourseError
from course_lib.teach.labs import loading
from course_lib.teach.labs.frame import Answer
from course_lib.teach.labs.loading import (
    CARDS,
    SAMPLES_A_SECOND_3090,
    WITHIN_REACH,
    FedCard,
    lab,
    measure_rate,
    plot_answers,
    rate_of_one_core,
)
from course_lib.train.loading.measurement import Rate
from course_lib.train.photographs import write_photographs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("p"), 8, width=240, height=240, progress=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_rate_is_measured_also_where_the_batch_is_larger_than_the_folder(
    folder: Path, workers: int
) -> None:
    before, heard = len(psutil.Process().children(recursive=True)), []
    rate = measure_rate(
        16, workers, folder=folder, budget_s=0.1, progress=lambda share, doing: heard.append(share)
    )
    assert rate.median > 0
    assert heard == sorted(heard)
    assert heard[-1] == 1
    assert len(psutil.Process().children(recursive=True)) <= before + 1  # a forkserver may have come


def test_what_cannot_be_measured_is_told(folder: Path) -> None:
    for wrong, told in (
        ({"batch_size": 0}, "The batch size cannot be 0: give a whole number from 1"),
        ({"num_workers": -1}, "The number of workers cannot be -1: give a whole number from 0"),
        ({"card": "mine"}, "no card 'mine'"),
        ({"budget_s": 0}, "The time to measure, in seconds, cannot be 0"),
    ):
        with pytest.raises(CourseError, match=told):
            measure_rate(folder=folder, **wrong)


def test_the_curve_holds_only_what_can_be_compared() -> None:
    first, second = CARDS
    rate = FedCard(Rate(100, 90, 110, 3), 130.0)
    answers = [
        Answer({"batch_size": size, "num_workers": n, "card": card}, rate)
        for size, n, card in [(8, 0, first), (16, 0, first), (16, 2, second), (16, 2, first)]
    ]
    alt = plot_answers(answers).alt
    assert "0 workers 100, 2 workers 100." in alt


@pytest.mark.parametrize(("cores", "most"), [(1, 2), (2, 4), (6, 10), (64, 68)])
def test_the_lab_reaches_more_workers_than_cores(
    cores: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "usable_cores", lambda: cores)
    controls = lab().controls
    assert set(controls) == {"batch_size", "num_workers", "card"}
    assert controls["num_workers"].max == most
    assert most > cores


def test_one_card_is_within_reach_of_the_cores_at_hand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    assert rate_of_one_core(folder) == rate_of_one_core(folder) > 0  # measured once
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(loading, "rate_of_one_core", lambda folder: 100.0)
    slow = measure_rate(4, card=WITHIN_REACH, folder=folder, budget_s=0.1)
    assert slow.card_rate == pytest.approx(130)
    assert slow.median < 135  # the card itself is the limit at the latest
    assert "the card could use 130" in str(slow)
    fast = measure_rate(4, folder=folder, budget_s=0.1)
    assert fast.card_rate == SAMPLES_A_SECOND_3090
    assert plot_answers([Answer({"batch_size": 4, "num_workers": 0, "card": WITHIN_REACH}, slow)]).alt
