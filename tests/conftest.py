"""Settings of a test run from its environment, and what parallel test processes must not share.

COURSE_START_METHOD=forkserver, spawn or fork forces that start method on all child processes. With CI set,
hypothesis draws the same examples each time, so that a red run is the change's own; without it, new ones.
It sets no time limit an example: a busy machine is no fault of the code.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)


def pytest_configure() -> None:
    settings.load_profile("ci" if os.environ.get("CI") else "local")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; the tests send it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    method = os.environ.get("COURSE_START_METHOD")
    if not method:
        return
    known = multiprocessing.get_all_start_methods()
    if method not in known:
        raise pytest.UsageError(f"COURSE_START_METHOD={method}: this system knows {', '.join(known)}")
    multiprocessing.set_start_method(method, force=True)


@pytest.fixture(scope="session", autouse=True)
def no_two_kernels_get_one_port() -> Iterator[None]:
    """Jupyter chooses the ports of a kernel a second before the kernel listens there: several test processes
    at once, and what they start, must not be given the same ones meanwhile.
    """
    from jupyter_client.connect import LocalPortCache

    from course_lib.train.ranks.meeting_port import meeting_port

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPortCache, "find_available_port", lambda cache, address: meeting_port(address))
        yield
