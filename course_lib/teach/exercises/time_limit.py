"""How is a function stopped that does not stop by itself?

On the main thread of Linux and macOS, which is where a notebook's kernel runs its cells, an alarm of the
system (``setitimer``) interrupts Python code and sleeping alike. Elsewhere (Windows, other threads) the
function runs in a thread of its own, into which Python raises an exception; the thread notices it at its next
step of Python.

Neither can interrupt compiled code that does not return to Python, as ``sum(range(10**12))`` or one huge
multiplication of matrices: the alarm then waits until it returns, and the thread is left behind, which
``TimeUp`` says with ``stuck``. Only a restart of the kernel ends it sooner.
"""

from __future__ import annotations

import contextvars
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_REPEAT_S = 0.05  # code that swallows the interruption (a bare `except:`) is interrupted again
_GRACE = 20  # times that a thread is interrupted: a second, and more where the machine hardly runs it


class TimeUp(BaseException):
    """The function did not end within its time. Not an Exception, so that `except Exception` lets it pass."""

    stuck = False  # whether it still runs, in a thread that could not be interrupted


def call_within(limit_s: float, function: Callable[[], T]) -> T:
    """The function's value; what it raises is raised.

    Args:
        limit_s: seconds of wall-clock time that it may take; positive.
        function: takes no arguments.

    Raises:
        TimeUp: it took longer. ``stuck`` says whether it is still running.
    """
    if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
        return _by_alarm(limit_s, function)
    return _in_thread(limit_s, function)


if sys.platform != "win32":

    def _by_alarm(limit_s: float, function: Callable[[], T]) -> T:
        here = sys._getframe()
        alarms = 0
        ended = False

        def on_alarm(_signum: int, frame: FrameType | None) -> None:
            nonlocal alarms
            if ended or frame is here:
                return  # an exception now would skip the clearing up below
            alarms += 1
            if alarms > 1:
                _raise_at_next_line(frame, here)
            raise TimeUp

        start = time.monotonic()
        trace = sys.gettrace()
        handler = signal.signal(signal.SIGALRM, on_alarm)
        delay, interval = signal.setitimer(signal.ITIMER_REAL, limit_s, _REPEAT_S)
        try:
            value = function()
        finally:
            ended = True
            sys.settrace(trace)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
            if delay:  # somebody else's timer (a test runner's) goes on where it was
                left = max(delay - (time.monotonic() - start), 0.001)
                signal.setitimer(signal.ITIMER_REAL, left, interval)
        if alarms:  # the function swallowed the interruption and came to an end
            raise TimeUp
        return value


def _raise_at_next_line(frame: FrameType | None, up_to: FrameType) -> None:
    """Make the code above ``up_to`` raise TimeUp at its next line, which may be inside a bare `except:`."""

    def tracer(_frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            raise TimeUp
        return tracer

    sys.settrace(tracer)
    while frame is not None and frame is not up_to:
        frame.f_trace = tracer
        frame = frame.f_back


def _in_thread(limit_s: float, function: Callable[[], T]) -> T:
    ended = threading.Event()
    lock = threading.Lock()  # held while deciding whether the thread may still be interrupted
    values: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            try:
                values.append(function())
            except BaseException as error:
                errors.append(error)
            finally:
                with lock:
                    ended.set()
        except TimeUp as late:  # it came while the lines above were putting the outcome away
            errors.append(late)
            ended.set()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
    thread.start()
    try:
        in_time = ended.wait(limit_s)
    except KeyboardInterrupt:
        _interrupt(thread, ended, lock)
        raise
    if not in_time:
        up = TimeUp()
        up.stuck = not _interrupt(thread, ended, lock)
        raise up
    thread.join()
    if errors:
        raise errors[0]
    return values[0]


def _interrupt(thread: threading.Thread, ended: threading.Event, lock: threading.Lock) -> bool:
    """Raise TimeUp in the thread until it ends, `_GRACE` times at most. Returns whether it did."""
    for _ in range(_GRACE):
        with lock:
            if not ended.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeUp)
                )
        if ended.wait(_REPEAT_S):
            return True
    return False
