"""Every kind of fault for real: what it says is found, and no process is left."""

import json
import re
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from course_lib.errors import CourseError
from course_lib.train.loading import faults
from course_lib.train.loading.faults import KINDS, NOT_HERE, ProvokedFault, provoke, what_it_says
from course_lib.train.loading.faulty_child import KINDS as MADE


def started_here() -> set[int]:
    """Processes of a faulty child, also those that lost their parent."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        if "faulty_child" in " ".join(process.info["cmdline"] or ()):
            found.add(process.pid)
    return found


FEW = ("killed_worker", "small_shared_memory", "same_augmentations", "broken_sample")


def let_happen(kinds: Iterable[str]) -> dict[str, ProvokedFault]:
    with ThreadPoolExecutor(3) as pool:  # most of a child's time is importing torch
        return {fault.kind: fault for fault in pool.map(provoke, kinds)}


@pytest.fixture(
    scope="module", params=[FEW, pytest.param(tuple(KINDS), marks=pytest.mark.slow)], ids=["few", "all"]
)
def provoked(request: pytest.FixtureRequest) -> dict[str, ProvokedFault]:
    return let_happen(request.param)


def test_they_happen_and_are_explained(provoked: dict[str, ProvokedFault]) -> None:
    happened = [fault for fault in provoked.values() if fault.happened]
    impossible = [fault for fault in provoked.values() if fault.said.startswith(NOT_HERE)]
    assert len(happened) + len(impossible) == len(provoked)
    assert len(happened) >= 10 or len(provoked) < 10 or impossible
    for fault in provoked.values():
        assert fault.happened or fault.said.startswith(NOT_HERE)
        assert fault.why
        assert fault.cure
        assert " ".join(fault.said.split()) in " ".join(str(fault).split())
        assert max(map(len, str(fault).splitlines())) <= 90 or max(map(len, fault.said.split())) > 70
        assert "<table>" in fault._repr_html_()
        assert json.loads(fault.to_json())["title"] == KINDS[fault.kind].title


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("lambda_under_spawn", "pickle"),
        ("class_of_a_notebook", "MyDataset"),
        ("no_main_guard", "An attempt has been made to start a new process before the current process has"),
        ("same_augmentations", "32 different"),
        ("repeated_samples", "2 times"),
        ("different_sizes", "equal size"),
        ("stuck_worker", "timed out after 1 seconds"),
        ("broken_sample", "FileNotFoundError: [Errno 2] No such file or directory: 'photographs/00032.jpg'"),
    ],
)
def test_what_pytorch_says_is_passed_on(provoked: dict[str, ProvokedFault], kind: str, says: str) -> None:
    if kind in provoked:
        assert says in provoked[kind].said


def test_a_killed_worker_is_told_by_its_end(provoked: dict[str, ProvokedFault]) -> None:
    # Killed at its first sample: the loader has nothing to fetch from it, and finds no broken connection. On
    # a very busy machine it may not listen for signals yet, and then finds only that the worker is gone.
    if hasattr(signal, "SIGKILL"):
        end = r"worker \(pid(?:\(s\))? \d+\) (?:is killed by signal: Killed|exited unexpectedly)"
        assert re.search(end, provoked["killed_worker"].said)


BROKEN_CONNECTION = """\
Traceback (most recent call last):
  File "connection.py", line 399, in _recv
    raise EOFError
EOFError

During handling of the above exception, another exception occurred:
"""
RAISED_AGAIN = """\
FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "mine.py", line 88, in __getitem__
    raise FileNotFoundError("No such file or directory: here")
FileNotFoundError: No such file or directory: here.jpg
"""
PARAGRAPHS = """\
RuntimeError:\x20
        An attempt has been made before the
        current process has finished its bootstrapping phase.

        This probably means that you are not using fork.
"""


@pytest.mark.parametrize(
    ("output", "signs", "said"),
    [
        (BROKEN_CONNECTION, ("killed", "EOFError"), "EOFError"),
        (RAISED_AGAIN, ("No such file", "Caught"), "FileNotFoundError: No such file or directory: here.jpg"),
        (
            RAISED_AGAIN,
            ("Caught",),
            "FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 0.",
        ),
        (
            PARAGRAPHS,
            ("bootstrapping",),
            "RuntimeError: An attempt has been made before the current process has finished its "
            "bootstrapping phase.",
        ),
        ("64 samples, 32 different\nbatch 0\n", (r"\d different",), "64 samples, 32 different"),
        ("it worked\n", ("Error",), None),
    ],
)
def test_a_whole_message_is_told_not_a_line_of_code(
    output: str, signs: tuple[str, ...], said: str | None
) -> None:
    assert what_it_says(output, signs) == said


def test_each_kind_is_made_and_explained() -> None:
    assert list(KINDS) == list(MADE)
    assert len(KINDS) >= 10


def test_no_process_is_left(provoked: dict[str, ProvokedFault], children: Callable[[], set[int]]) -> None:
    assert provoked
    assert children() & started_here() == set()


def test_a_child_that_is_not_done_in_time_is_ended_with_its_workers(children: Callable[[], set[int]]) -> None:
    before = children()
    with pytest.raises(CourseError, match="not done after"):
        provoke("stuck_worker", time_limit_s=0.3)
    assert children() <= before


def test_an_unknown_kind_is_told() -> None:
    with pytest.raises(CourseError, match="choose one of lambda_under_spawn"):
        provoke("bad_luck")


def test_a_child_that_does_something_else_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_run_child", lambda kind, limit: "all went well\n")
    with pytest.raises(CourseError, match="did not fail as expected, it said: all went well"):
        provoke("stuck_worker")
