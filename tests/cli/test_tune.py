import json
from pathlib import Path

import pytest

from course_lib.cli.main import main

DATA = """
import time, torch
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.zeros(3)
train_set = Slow()
number = 3
def broken(): raise ValueError("no disk")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tune_data.py").write_text(DATA, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["tune", *arguments])
    return int(ended.value.code or 0)


def test_the_whole_answer_comes_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune_data:Slow", "--batch", "4", "--step-ms", "10", "--seconds", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["num_workers"] >= 1
    assert told["sentence"]
    assert told["trials"]


def test_the_settings_stand_on_top(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune_data:train_set", "--batch", "4", "--seconds", "1") == 0
    assert capsys.readouterr().out.startswith("DataLoader(..., num_workers=")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tune_data", 'write "module:dataset"'),
        ("nowhere:train_set", "cannot be imported here (No module named 'nowhere')"),
        ("tune_data:trainset", "There is no 'trainset' in tune_data"),
        ("tune_data:broken", "made no data set (no disk)"),
        ("tune_data:number", "is a int"),
        ("os:sep", "A str cannot be loaded from"),
    ],
)
def test_what_names_no_data_set_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    assert run(name) == 2
    assert says in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert "Example: course tune my_data:train_set --batch 64 --step-ms 18" in capsys.readouterr().out
