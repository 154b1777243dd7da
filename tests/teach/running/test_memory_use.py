import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from course_lib.teach.running.memory_use import MemoryWatch, memory_of

MIB = 2**20


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that says "ready" when it has done ``code``, and then waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", code + "\nprint('ready', flush=True); import time; time.sleep(120)"],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        yield process
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.communicate()


def fill(mib: int) -> str:
    return f"x = bytearray({mib * MIB}); x[::4096] = b'1' * len(x[::4096])"


def test_what_a_process_takes_is_seen() -> None:
    with running("pass") as small, running(fill(150)) as large:
        difference = memory_of(psutil.Process(large.pid))[0] - memory_of(psutil.Process(small.pid))[0]
    assert 145 * MIB < difference < 160 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the proportional set size")
def test_pages_that_processes_share_count_once() -> None:
    fork = (
        "import os\nchildren = [os.fork() for _ in range(2)]\nif 0 in children: import time; time.sleep(120)"
    )
    with running(f"{fill(150)}\n{fork}") as process, MemoryWatch(process.pid) as watch:
        together = watch.sample()
        resident = sum(
            p.memory_info().rss
            for p in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        )
    assert watch.kind == "PSS"
    assert resident > 450 * MIB
    assert 150 * MIB < together < 200 * MIB


def test_the_peak_outlives_what_caused_it_and_a_mark_begins_anew() -> None:
    grow_and_shrink = f"{fill(100)}; input(); del x; import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", grow_and_shrink], stdin=subprocess.PIPE)
    try:
        with MemoryWatch(process.pid, seconds_between=0.05) as watch:
            deadline = time.monotonic() + 120
            while watch.peak_bytes < 100 * MIB:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert process.stdin is not None
            process.stdin.write(b"shrink\n")
            process.stdin.flush()
            while watch.sample() > 50 * MIB:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            watch.mark()
            watch.sample()
            assert watch.peak_since_mark < 50 * MIB
        assert watch.peak_bytes > 100 * MIB
    finally:
        process.kill()
        process.communicate()


def test_descendants_are_ended_also_when_their_parent_is_gone() -> None:
    grandchild = (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'])"
    )
    with running(grandchild) as process:
        with MemoryWatch(process.pid) as watch:
            watch.sample()
        (left,) = psutil.Process(process.pid).children(recursive=True)
        assert watch.end_descendants() == 1
        assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE
        assert watch.end_descendants() == 0


def test_a_process_that_has_ended_takes_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with MemoryWatch(process.pid) as watch:
        peak = watch.peak_bytes
        process.communicate(b"\n")
        assert watch.sample() == 0
    assert peak > 0
    assert watch.peak_bytes >= peak


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the dead until their parent asks")
def test_a_dead_child_does_not_change_what_is_counted() -> None:
    dead = (
        "import os, subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', ''])\n"
        "os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays dead, and is not collected"
    )
    with running(dead) as process, MemoryWatch(process.pid) as watch:
        (child,) = psutil.Process(process.pid).children()
        assert child.status() == psutil.STATUS_ZOMBIE
        assert memory_of(child) == (0, "PSS")
        watch.sample()
    assert watch.kind == "PSS"
