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
    """The living child processes; under forkserver its server, which stays, is started first."""
    if multiprocessing.get_start_method() == "forkserver":
        from multiprocessing import forkserver  # not on Windows

        forkserver.ensure_running()

    def living() -> set[int]:
        found = psutil.Process().children(recursive=True)
        return {child.pid for child in found if child.is_running() and child.status() != psutil.STATUS_ZOMBIE}

    return living
