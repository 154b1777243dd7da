import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from course_lib.cli.main import main

NO_SIGNALS = pytest.mark.skipif(os.name != "posix", reason="this system kills without a signal")
DATA = """
import os, time, torch
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.zeros(3)
train_set = Slow()
class Broken(Slow):
    def __getitem__(self, index): raise ValueError("7.jpg is no picture\\nat all")
class Exits(Slow):
    def __getitem__(self, index): raise SystemExit(3)
class BrokenInWorkers(Slow):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info(): raise KeyError("late")
        return super().__getitem__(index)
class KilledInWorkers(Slow):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info(): os.kill(os.getpid(), 9)
        return super().__getitem__(index)
class ExitsInWorkers(Slow):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info(): os._exit(9)
        return super().__getitem__(index)
class Nothing(Slow):
    def __getitem__(self, index): return None
class Talks(Slow):
    def __getitem__(self, index):
        os.write(1, b"from a worker\\n" if torch.utils.data.get_worker_info() else b"from here\\n")
        print("a sample", flush=True)
        return super().__getitem__(index)
class Stuck(Slow):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info():
            open(f"{os.getpid()}.stuck", "w").close()
            time.sleep(1e6)
        return super().__getitem__(index)
class Sizes(Slow):
    def __getitem__(self, index): return torch.zeros(index + 1)
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(())
number = 3
def broken(): raise ValueError("no disk")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tune_data.py").write_text(DATA, encoding="utf-8")
    (tmp_path / "tune_leaves.py").write_text("raise SystemExit(4)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    # The short times are for the trials: a batch that comes late on a busy machine is no reason to give up.
    monkeypatch.setattr("course_lib.train.loading.search.SHORT_S", 120.0)
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["tune", *arguments])
    return int(ended.value.code or 0)


def test_the_whole_answer_comes_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(4):  # other work on the machine can hold up the trial with workers alone: look again
        assert run("tune_data:Slow", "--batch", "4", "--step-ms", "10", "--seconds", "2", "--json") == 0
        told = json.loads(capsys.readouterr().out)
        if told["settings"]["num_workers"] >= 1:
            break
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
        ("tune_data:number", "is of type int"),
        ("nowhere/tune_data.py:train_set", "There is no file nowhere/tune_data.py"),
        ("tune_leaves:train_set", "cannot be imported here (it called sys.exit(4))"),
        ("os:sep", "type str cannot be loaded from"),
    ],
)
def test_what_names_no_data_set_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    assert run(name) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "Broken",
            "raised ValueError (7.jpg is no picture) in tune_data.py, line 10: raised by dataset[",
        ),
        ("Exits", "raised SystemExit (it called sys.exit(3)) in tune_data.py, line 12"),
        ("BrokenInWorkers", "raised KeyError ('late') in tune_data.py, line 15: raised in a worker; num"),
        ("Nothing", "raised while one batch was made of its samples (collate_fn)"),
        pytest.param("KilledInWorkers", "was ended without a word", marks=NO_SIGNALS),
        pytest.param("ExitsInWorkers", "ended by itself, with exit status 9", marks=NO_SIGNALS),
        ("Sizes", "must be cut or padded to one"),
        ("Stream", "gave no batch"),
    ],
)
def test_what_a_data_set_raises_is_one_sentence(
    folder: Path, capfd: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    assert run(f"tune_data:{name}", "--batch", "4", "--seconds", "1") == 2
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("course:")]
    assert len(told) == 1
    assert says in told[0]


def test_a_batch_larger_than_the_data_set_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune_data:train_set", "--batch", "1000000") == 2
    assert "has 100 samples, fewer than a batch of 1,000,000" in capsys.readouterr().err


def test_what_the_file_prints_does_not_stand_in_the_answer(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ("--batch", "4", "--step-ms", "20", "--seconds", "1", "--most-workers", "1", "--json")
    assert run("tune_data:Talks", *options) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["most_workers"] == 1
    for said in ("from here", "from a worker", "a sample"):
        assert said in told.err


def test_a_path_names_a_file_in_another_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tune_elsewhere.py").write_text(DATA, encoding="utf-8")
    (folder / "inside").mkdir()
    monkeypatch.chdir(folder / "inside")
    wanted = f"{folder / 'tune_elsewhere.py'}:train_set"
    assert run(wanted, "--batch", "4", "--seconds", "1", "--most-workers", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["alone_samples_per_second"] is None, "the step takes no time"


@pytest.mark.skipif(os.name != "posix", reason="this system ends a process without asking it")
def test_a_command_that_is_asked_to_end_leaves_no_worker(folder: Path) -> None:
    command = [sys.executable, "-m", "course_lib", "tune", "tune_data:Stuck", "--batch", "4"]
    asked = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(folder.glob("*.stuck")):  # the import of torch starts a process too, which is no worker
        assert time.monotonic() < deadline and asked.poll() is None, "no worker was started"  # noqa: PT018
        time.sleep(0.02)
    workers = psutil.Process(asked.pid).children(recursive=True)
    asked.terminate()
    assert asked.wait(120) == 128 + signal.SIGTERM
    _, left = psutil.wait_procs(workers, timeout=120)
    assert left == []


@pytest.mark.skipif(os.name != "posix", reason="this system ends a process without asking it")
def test_a_command_that_is_asked_to_end_while_it_still_starts(folder: Path) -> None:
    (folder / "tune_data.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "utf-8")
    command = [sys.executable, "-m", "course_lib", "tune", "tune_data:Stuck", "--batch", "4"]
    asked = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert asked.returncode == 128 + signal.SIGTERM
    assert asked.stderr == ""


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert "Example: course tune my_data:train_set --batch 64 --step-ms 18" in capsys.readouterr().out
