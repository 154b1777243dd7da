"""Which processes belong to a launch, and how does none of them outlive it?

A rank may start processes of its own, such as the workers of a loader or a program. When it ends, the system
gives them another parent. They are known by their environment, which names the launches they are part of.
"""

import os
import time
from contextlib import suppress

import psutil

from course_lib.train.ranks.launch_target import LAUNCHES


def family(run_id: str) -> list[psutil.Process]:
    """All running processes of a launch, whoever their parent is now; this process is left out."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # others' processes do not show theirs
            if process.pid != os.getpid() and run_id in process.environ().get(LAUNCHES, ""):
                found.append(process)
    return found


def kill_family(run_id: str, within_s: float = 3.0) -> None:
    """End them, also those that are started meanwhile, and see for so long that none is left."""
    deadline = time.monotonic() + within_s
    while (left := family(run_id)) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)
