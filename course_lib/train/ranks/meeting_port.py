"""At which port can processes meet that are told of it before one of them listens there?

A port that the system picks (port 0) is free again until then, some seconds later in a process that first
imports torch, and the system may give it to any other program meanwhile.
"""

import itertools
import os
import socket
from contextlib import suppress

from course_lib.errors import CourseError

FIRST, MANY = 20_000, 10_000
"""Ports that no system picks by itself: Linux does so from 32768 on, Windows and macOS from 49152."""

_APART = 617  # so that processes that are started one after the other begin far from each other
_taken = itertools.count()


def meeting_port(address: str = "127.0.0.1") -> int:
    """A port on which nobody listens now, another one at each call. Processes begin at different ones, so
    that two of them hardly ever get the same.

    Raises CourseError where there is none.
    """
    for _ in range(MANY):
        port = FIRST + (os.getpid() * _APART + next(_taken)) % MANY
        with suppress(OSError), socket.create_server((address, port)):
            return port
    raise CourseError(
        f"Programs listen on all ports from {FIRST} to {FIRST + MANY - 1} of this computer: end some of them."
    )
