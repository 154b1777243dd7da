"""Is the start method that COURSE_START_METHOD forces the one that loaders and processes really use?"""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_loader_gives_the_same_batches_from_workers():
    from torch.utils.data import DataLoader

    from course_lib.train.data import Digits

    data = Digits("test")
    alone, helped = (
        [images for images, _ in DataLoader(data, batch_size=256, num_workers=workers)] for workers in (0, 2)
    )
    assert all(a.equal(b) for a, b in zip(alone, helped, strict=True))


def test_the_forced_method_is_in_force():
    wanted = os.environ.get("COURSE_START_METHOD")
    if not wanted:
        pytest.skip("COURSE_START_METHOD is not set; the test below sets it")
    assert multiprocessing.get_start_method() == wanted


@pytest.mark.skipif(bool(os.environ.get("COURSE_START_METHOD")), reason="is the run below")
def test_another_method_than_the_default_can_be_forced():
    methods = multiprocessing.get_all_start_methods()
    others = [method for method in methods if method != multiprocessing.get_start_method()]
    if not others:
        pytest.skip(f"this system knows {methods[0]} only")
    done = run(others[-1])
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_an_unknown_method_is_refused():
    done = run("thread")
    assert done.returncode == 4
    assert "COURSE_START_METHOD=thread: this system knows" in done.stdout


def run(method):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            __file__,
            "-k",
            "in_force",
        ],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"COURSE_START_METHOD": method},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=300,
    )
