"""What a rank says of its end: `run` in this process, with errors that are really raised."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from course_lib.train.distributed import process_group
from course_lib.train.ranks.launch_rank import LONGEST_LINE, first_line, run
from course_lib.train.ranks.launch_target import LAUNCHES, within


class Photos(Dataset[int]):
    """One of its files cannot be read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise OSError("bad jpeg 3.")
        if index == 2:
            raise KeyError("image")
        return index


class OneOfTwo(nn.Module):
    """Half of its parameters take no part."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.used(inputs)
        return outputs


TARGETS = """
import sys
from test_launch_rank import Photos
from torch.utils.data import DataLoader, Subset

def load(index):
    for _ in DataLoader(Subset(Photos(), [index]), num_workers=1):
        pass

def leave(said):
    sys.exit(said)

def ask():
    input("name? ")
"""
NO_GUARD = """
from course_lib.train.ranks.launch import launch, launch_in_turn

def train():
    pass

{}
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def run_it(name: str, source: str, function: str, **arguments: Any) -> dict[str, Any]:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        assert run({"target": f"{name}:{function}", "arguments": arguments}, tmp_path / "report.json") == 1
        report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert report["state"] == "failed"
        return report

    return run_it


def test_the_error_of_a_worker_is_told_with_its_own_words_and_place(told: Any) -> None:
    photo = told("of_workers", TARGETS, "load", index=3)
    assert photo["text"] == "OSError: bad jpeg 3, in DataLoader worker process 0"
    assert photo["where"].startswith("test_launch_rank.py, line")
    assert photo["where"].endswith("in __getitem__")
    assert told("of_workers", TARGETS, "load", index=2)["text"].startswith("KeyError: 'image', in DataLoader")


def test_an_error_of_a_worker_that_torch_cannot_make_anew_keeps_its_name() -> None:
    frame = 'Original Traceback (most recent call last):\n  File "/me/d.py", line 3, in f\n    g()\n    ^^^\n'
    text = f"Caught Broken in DataLoader worker process 1.\n{frame}me.Broken: no: header\n"
    assert first_line(RuntimeError(text)) == "me.Broken: no: header, in DataLoader worker process 1"
    bare = f"Caught ValueError in DataLoader worker process 1.\n{frame}ValueError\n"
    assert first_line(ValueError(bare)) == "in DataLoader worker process 1"


def test_a_long_message_is_cut_between_sentences() -> None:
    with process_group(device="cpu") as ranks:
        model = ranks.wrap(OneOfTwo())
        model(torch.ones(1, 1)).sum().backward()
        with pytest.raises(RuntimeError) as raised:
            model(torch.ones(1, 1))
    text = first_line(raised.value)
    assert "finished reduction" in text
    assert text.endswith(".")
    assert len(text) <= LONGEST_LINE < len(str(raised.value))
    assert first_line(ValueError("word " * 100)).endswith("word ...")
    assert len(first_line(ValueError("word " * 100))) <= LONGEST_LINE + 4


def test_what_a_rank_leaves_with_is_quoted(told: Any) -> None:
    text = told("of_exits", TARGETS, "leave", said="I do not like this")["text"]
    assert text == "it ended with sys.exit('I do not like this')"


def test_a_question_is_answered_by_nobody(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open(encoding="utf-8") as nothing:  # as a rank's own input is
        monkeypatch.setattr("sys.stdin", nothing)
        assert "a rank has no keyboard" in told("of_questions", TARGETS, "ask")["text"]


@pytest.mark.parametrize(
    "call", ['launch("{}:train")', 'launch("{}")', 'launch_in_turn([("{}:train", dict())])']
)
def test_a_file_without_a_main_guard_does_not_launch_itself_again(
    told: Any, monkeypatch: pytest.MonkeyPatch, call: str, request: pytest.FixtureRequest
) -> None:
    name = f"no_guard_{request.node.callspec.indices['call']}"
    monkeypatch.setenv(LAUNCHES, within("outer", [name], {}))
    report = told(name, NO_GUARD.format(call.format(name)), "train")
    assert f"{name!r} is launched already" in report["text"]
    assert report["where"] == f"{name}.py, line 7, in <module>"
