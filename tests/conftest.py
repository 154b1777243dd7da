"""Forces a start method on all child processes: COURSE_START_METHOD=forkserver, spawn or fork."""

import multiprocessing
import os

import pytest


def pytest_configure() -> None:
    method = os.environ.get("COURSE_START_METHOD")
    if not method:
        return
    known = multiprocessing.get_all_start_methods()
    if method not in known:
        raise pytest.UsageError(f"COURSE_START_METHOD={method}: this system knows {', '.join(known)}")
    multiprocessing.set_start_method(method, force=True)
