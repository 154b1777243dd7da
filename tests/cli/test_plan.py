"""``course plan`` answers in a table or as JSON, and bad input with one sentence."""

import json
from pathlib import Path

import pytest

from course_lib.cli.main import main

KEYS = {
    "card", "batch_size", "allocated_mib", "reserved_mib", "total_mib", "safe_mib", "capacity_mib", "fits",
    "largest_batch",
}  # fmt: skip


def course(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["plan", *arguments])
    return int(left.value.code or 0)


def test_the_table_names_cards_and_says_whether_the_model_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert course("cnn", "--batch", "8") == 0
    shown = capsys.readouterr().out
    assert "RTX 3090" in shown
    assert "fits" in shown
    assert "docs/accuracy.md" in shown


def test_json_is_a_list_of_objects_with_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert course("cnn", "--batch", "8", "--on", "RTX 3090", "--on", "T4", "--largest-batch", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["card"] for row in rows] == ["RTX 3090", "T4"]
    for row in rows:
        assert set(row) >= KEYS
        assert row["batch_size"] == 8
        assert row["allocated_mib"] <= row["reserved_mib"] <= row["total_mib"] <= row["safe_mib"]
        assert row["fits"] is True
        assert row["largest_batch"] > 8
    assert rows[0]["largest_batch"] > rows[1]["largest_batch"]


def test_settings_reach_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    totals = {}
    for name, extra in {
        "plain": [],
        "half": ["--precision", "bf16"],
        "adam": ["--optimizer", "adamw"],
        "checkpointed": ["--checkpoint"],
        "short": ["--sequence", "32"],
        "accumulated": ["--accumulate", "4"],
    }.items():
        base = [] if name == "short" else ["--sequence", "256"]
        assert course("gpt", "--batch", "8", "--on", "T4", "--json", *base, *extra) == 0
        totals[name] = json.loads(capsys.readouterr().out)[0]["allocated_mib"]
    assert totals["adam"] > totals["plain"]
    assert totals["checkpointed"] < totals["plain"]
    assert totals["short"] < totals["plain"]
    assert totals["half"] != totals["plain"]


def test_the_learners_own_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_model_for_plan.py").write_text(
        "from torch import nn\n\n"
        "def make():\n"
        "    pool = nn.AdaptiveAvgPool2d(1)\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 3), pool, nn.Flatten(), nn.Linear(8, 5))\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    assert (
        course("own_model_for_plan:make", "--batch", "4", "--image-size", "32", "--on", "T4", "--json") == 0
    )
    assert json.loads(capsys.readouterr().out)[0]["model"] == "own_model_for_plan:make"
    assert course("own_model_for_plan:mak", "--on", "T4") == 2
    assert "did you mean make" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnt50"], "did you mean resnet50"),
        (["resnet50", "--on", "RTX 3091"], "RTX 3090"),
        (["resnet50", "--on", "A100"], "A100 40GB or A100 80GB"),
        (["cnn", "--optimizer", "adan"], "did you mean adam"),
        (["cnn", "--precision", "fp8"], "fp32, tf32, fp16, bf16"),
        (["cnn", "--batch", "0"], "0 is not in the range"),
        (["no_such_module:make"], "cannot be imported"),
        (["maskrcnn_resnet50_fpn"], "cannot be planned"),
        (["missing.json"], "not a transformers config.json"),
        ([""], "names no model"),
        (["timm:"], "names no model"),
        ([":make"], "names no model"),
        (["resnet18", "--sequence", "5"], "sequence length means nothing to resnet18"),
        (["gpt", "--image-size", "64"], "image size means nothing to gpt"),
        (["cnn", "--image-size", "64"], "28 pixels"),
        (["cnn", "--batch", "1000000000"], "not in the range"),
        (["cnn", "--accumulate", "99999999"], "not in the range"),
        (["cnn", "--samples", "5"], "give both"),
        (["cnn", "--samples", "5", "--epochs", "nan"], "not a finite number"),
        (["cnn", "--nodes", "2"], "with --gpus"),
        (["cnn", "--interconnect", "PCIe 4.0"], "with --gpus"),
        (["own_odd_for_plan:raises"], "made no model (KeyError: 'x')"),
        (["own_odd_for_plan:ends"], "made no model (SystemExit: 3)"),
        (["own_odd_for_plan:number"], "gave 5: it must give a torch.nn.Module or a Workload"),
        (["own_odd_for_plan:FIVE"], "is of the type int: give a function"),
        (["own_odd_for_plan:takes"], "must run without arguments"),
        (["own_broken_for_plan:make"], "cannot be imported (SyntaxError"),
        (["own_ending_for_plan:make"], "cannot be imported (SystemExit: 3)"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = "FIVE = 5\ndef raises(): raise KeyError('x')\ndef ends(): raise SystemExit(3)\n"
    odd += "def number(): return 5\ndef takes(a): return a\n"
    for name, code in (("odd", odd), ("broken", "def make(:"), ("ending", "raise SystemExit(3)")):
        (tmp_path / f"own_{name}_for_plan.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert course(*arguments) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert "Traceback" not in said.err + said.out


def test_a_module_that_says_its_own_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_input_for_plan.py").write_text(
        "import torch\ndef make():\n    model = torch.nn.Linear(7, 3)\n"
        "    model.example_input = torch.empty(2, 7)\n    return model\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert course("own_input_for_plan:make", "--on", "T4", "--batch", "64", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["batch_size"] == 64
    assert course("own_input_for_plan:make", "--on", "T4", "--image-size", "32") == 2
    assert "says itself what its input is" in capsys.readouterr().err


def test_prose_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert course("cnn", "--on", "RTX 3090") == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("Step times:"))
    assert len(lines[begin]) > 40
    assert all(len(line) <= 60 for line in lines[begin : begin + 5])
