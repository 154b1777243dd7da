"""``course plan`` also tells time: a step's seconds, what bounds it, several cards, and this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from course_lib.cli.main import main
from course_lib.plan.calibrate import calibrate
from course_lib.plan.calibration_nets import CalibrationNet


def course(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return int(left.value.code or 0)


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_each_card_has_its_time_and_what_bounds_it(capsys: pytest.CaptureFixture[str]) -> None:
    cards = ["--on", "T4", "--on", "RTX 4090"]
    assert course("plan", "gpt", "--batch", "64", "--precision", "fp16", *cards, "--json") == 0
    slow, fast = rows(capsys)
    for row in (slow, fast):
        assert row["bound"] in ("compute", "memory", "launch")
        assert row["step_seconds"] * row["samples_per_second"] == pytest.approx(64)
        assert row["step_seconds_low"] < row["step_seconds"] < row["step_seconds_high"]
    assert slow["step_seconds"] > fast["step_seconds"]


def test_a_card_of_unknown_speed_still_has_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert course("plan", "cnn", "--on", "TPU v4", "--json") == 0
    (row,) = rows(capsys)
    assert row["step_seconds"] is None
    assert "TPU v4" in str(row["untimed"])
    assert row["total_mib"] > 0
    assert course("plan", "cnn", "--on", "TPU v4") == 0
    assert "TPU v4" in capsys.readouterr().out


def test_several_cards_are_scaled_over_a_named_link_or_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    base = ["plan", "resnet18", "--batch", "64", "--gpus", "4", "--on", "V100 16GB"]
    told = {}
    for name, extra in {
        "own": [],
        "slow": ["--interconnect", "Ethernet 1G"],
        "nodes": ["--nodes", "2", "--network", "Ethernet 10G"],
    }.items():
        assert course(*base, "--json", *extra) == 0
        told[name] = rows(capsys)[0]["scaled"]
    assert told["own"]["gpus"] == 4
    assert told["own"]["interconnect"] == "NVLink 2"
    assert told["own"]["efficiency"] > told["nodes"]["efficiency"] > told["slow"]["efficiency"]
    assert course(*base) == 0
    assert "4 cards" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "4", "--interconnect", "carrier pigeon"], "interconnect 'carrier pigeon'"),
        (["--gpus", "4", "--nodes", "3", "--network", "Ethernet 10G"], "cannot be shared out"),
        (["--gpus", "4", "--nodes", "2"], "network"),
        (["--gpus", "0"], "0 is not in the range"),
    ],
)
def test_links_that_make_no_sense_get_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert course("plan", "cnn", "--on", "T4", *arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_this_machine_is_predicted_once_it_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path))
    assert course("plan", "cnn", "--on", "this machine") == 2
    assert "course calibrate" in capsys.readouterr().err
    from course_lib.models.zoo import DigitsCNN

    net = CalibrationNet("own", DigitsCNN, (1, 28, 28))
    calibrate("cpu", batch_size=4, seconds=10, nets=[net]).save(tmp_path)
    assert course("plan", "cnn", "--on", "this machine", "--json") == 0
    (row,) = rows(capsys)
    assert str(row["card"]).startswith("this machine")
    assert row["step_seconds"] > 0
    assert course("plan", "cnn", "--on", "this machine") == 0
    assert "this machine" in capsys.readouterr().out


def test_calibrate_refuses_what_this_torch_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert course("calibrate", "--device", "tpu") == 2
    assert "no device 'tpu'" in capsys.readouterr().err
    assert course("calibrate", "--seconds", "1") == 2
