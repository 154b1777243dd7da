"""The data sets of these tests stand in a module of their own, which workers can import."""

import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def children() -> Callable[[], set[int]]:
    """The living child processes; under forkserver its server, which stays, is started first.

    What a test must not leave is one more than before: those of earlier tests may end at any moment.
    """
    if multiprocessing.get_start_method() == "forkserver":
        from multiprocessing import forkserver  # not on Windows

        forkserver.ensure_running()

    def living() -> set[int]:
        return {child.pid for child in psutil.Process().children(recursive=True) if runs(child)}

    return living


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it ended just now
        return False


@pytest.fixture(autouse=True)
def a_busy_machine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' short budgets are for the trials: a batch that comes late is no reason to give up."""
    monkeypatch.setattr("course_lib.train.loading.search.SHORT_S", 120.0)
