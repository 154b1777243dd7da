"""Two settings of a test run, from its environment.

COURSE_START_METHOD=forkserver, spawn or fork forces that start method on all child processes. With CI set,
hypothesis draws the same examples each time, so that a red run is the change's own; without it, new ones.
"""

import multiprocessing
import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)


def pytest_configure() -> None:
    if os.environ.get("CI"):
        settings.load_profile("ci")
    method = os.environ.get("COURSE_START_METHOD")
    if not method:
        return
    known = multiprocessing.get_all_start_methods()
    if method not in known:
        raise pytest.UsageError(f"COURSE_START_METHOD={method}: this system knows {', '.join(known)}")
    multiprocessing.set_start_method(method, force=True)
