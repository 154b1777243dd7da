"""Real processes: those of a launch are found and ended, also when their parent is gone, and no others."""

import contextlib
import os
import subprocess
import sys

import psutil
import pytest

from course_lib.train.ranks.launch_family import family, kill_family
from course_lib.train.ranks.launch_target import LAUNCHES, within

SLEEP = "import time; print(flush=True); time.sleep(600)"
LEAVE = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid)
"""


def start(program: str, run_id: str) -> subprocess.Popen[str]:
    environment = os.environ | {LAUNCHES: within(run_id, ["train"], {})}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS may hide the environment of its own programs")
def test_a_process_whose_parent_is_gone_ends_with_its_launch_and_another_launch_goes_on() -> None:
    other = start(SLEEP, "other launch")
    try:
        assert other.stdout is not None
        other.stdout.readline()
        gone = start(LEAVE, "this launch")
        orphan = int(gone.communicate()[0])
        assert [process.pid for process in family("this launch")] == [orphan]
        kill_family("this launch", within_s=30)
        assert family("this launch") == []
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE
        assert [process.pid for process in family("other launch")] == [other.pid]
    finally:
        other.kill()
        other.communicate()


def test_this_process_is_never_among_them() -> None:
    assert os.getpid() not in [process.pid for process in family("")]
