"""`course plan --samples --epochs`: hours and cost of a whole training, on every card."""

import json

import pytest

from course_lib.accelerators import accelerators
from course_lib.cli.main import main


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "cnn", "--batch", "64", *arguments])
    return int(ended.value.code or 0)


def test_hours_and_cost_stand_beside_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--samples", "60000", "--epochs", "10", "--on", "3090", "--on", "M2", "--json"]) == 0
    known, unknown = json.loads(capsys.readouterr().out)
    assert known["hours"] == pytest.approx(600_000 / known["samples_per_second"] / 3600)
    assert known["hours_low"] < known["hours"] < known["hours_high"]
    assert known["cost"] == pytest.approx(min(known["cost_own"], known["cost_rent"]))
    assert known["cost_currency"] == "USD"
    assert "Vast.ai" in known["cost_basis"] or "eBay" in known["cost_basis"]
    assert (unknown["hours"], unknown["cost"]) == (None, None)
    assert unknown["untimed"]


def test_it_looks_at_every_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--samples", "60000", "--epochs", "10"]) == 0
    out = " ".join(capsys.readouterr().out.split())  # prose is broken to fit the terminal
    assert all(card.name in out for card in accelerators())
    assert "Not known well enough to be timed:" in out
    assert "Own: written off over 3 years" in out


def test_cards_that_are_too_small_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    cards = ["--on", "T4", "--on", "H200"]
    assert run(["--batch", "40000", "--samples", "500000", "--epochs", "1", *cards]) == 0
    out = capsys.readouterr().out
    assert "Too little memory for this batch: T4." in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--samples", "5"],
        ["--epochs", "5"],
        ["--samples", "0", "--epochs", "1"],
        ["--samples", "5", "--epochs", "0"],
    ],
)
def test_half_a_question_ends_in_one_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert not told.out
    assert len(told.err.strip().splitlines()) == 1
