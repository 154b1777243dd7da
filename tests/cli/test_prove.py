"""``course prove``: the verdict on top, the exit status, and what cannot be used."""

import json
import sys
from pathlib import Path

import pytest

from course_lib.cli.main import main

STEP = (
    "from torch.nn.functional import cross_entropy\n"
    "def train(model, loader, optimizer):\n"
    "    for i, (x, y) in enumerate(loader, start=1):\n"
    "        (cross_entropy(model(x), y) / K).backward()\n"
    "        if i % K == 0:\n"
    "            optimizer.step()\n"
    "            optimizer.zero_grad()\n"
)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["prove", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_fault_is_on_top_and_gives_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dropping_step.py").write_text("K = 3\n" + STEP, encoding="utf-8")
    target = f"{tmp_path / 'dropping_step.py'}:train"
    assert run(target, "--accumulate", "3", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert [fault["id"] for fault in answer["faults"]] == ["last_window_dropped"]
    assert answer["verdict"] == "Not the same: the last window of an epoch is lost."


def test_a_right_step_gives_status_0_and_the_files_own_reference_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "from course_lib.train.equivalence import Reference\nreference = Reference(1, micro_batches=5)\n"
    (tmp_path / "plain_step.py").write_text(own + "K = 1\n" + STEP, encoding="utf-8")
    assert run(str(tmp_path / "plain_step.py")) == 0
    told = capsys.readouterr().out
    assert told.startswith("The same as the large batch.\n")
    assert "updates: 10," in told
    assert "plain_step" not in sys.modules, "it ran in a process of its own"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.py"], "There is no file nowhere.py"),
        (["x.py", "--ranks", "a,b"], "as in 7,5"),
        (["x.py", "--ranks", "4"], "2 to 8 ranks"),
        (["x.py", "--accumulate", "0"], "0 is not in the range"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


def test_a_folder_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "steps.py").mkdir()
    assert run(str(tmp_path / "steps.py")) == 2
    assert "steps.py is a folder" in capsys.readouterr().err
