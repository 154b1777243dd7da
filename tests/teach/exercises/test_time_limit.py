import contextlib
import functools
import signal
import subprocess
import sys
import threading
import time

import pytest

from course_lib.teach.exercises.time_limit import TimeUp, call_within

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no interval timers")
LIMIT_S = 0.2  # for what never ends
LONG_S = 60.0  # for what ends at once, also on a busy machine


def spin():
    while True:
        pass


def spin_and_swallow():
    while True:
        try:
            time.sleep(0.01)
        except:  # noqa: E722 - what a beginner writes
            continue


def sleep():
    time.sleep(60)


def spin_for_a_while():
    sum(range(2 * 10**7))  # in C: no interruption before its end
    return 1


def in_another_thread(function):
    """Call ``function`` off the main thread, where no alarm can be set; its value or what it raised."""
    answers = []

    def work():
        try:
            answers.append(function())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return answers[0]


def test_the_value_and_the_exception_come_back():
    assert call_within(LONG_S, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        call_within(LONG_S, lambda: 1 / 0)


def test_the_value_and_the_exception_come_back_off_the_main_thread():
    assert in_another_thread(lambda: call_within(LONG_S, lambda: 7)) == 7
    assert isinstance(in_another_thread(lambda: call_within(LONG_S, lambda: 1 / 0)), ZeroDivisionError)


@pytest.mark.parametrize("function", [spin, pytest.param(sleep, marks=posix_only)])
def test_what_never_ends_is_stopped(function):
    with pytest.raises(TimeUp) as caught:
        call_within(LIMIT_S, function)
    assert not caught.value.stuck


@posix_only
def test_a_loop_that_swallows_every_exception_is_stopped():
    def trace(*_):  # as a debugger sets it
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(TimeUp):
            call_within(LIMIT_S, spin_and_swallow)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is trace


@posix_only
def test_compiled_code_is_told_when_it_returns():
    with pytest.raises(TimeUp):
        call_within(0.001, spin_for_a_while)


@posix_only
def test_swallowing_the_interruption_does_not_pass():
    def late():
        try:
            time.sleep(60)
        except BaseException:
            return 1

    with pytest.raises(TimeUp):
        call_within(LIMIT_S, late)


def test_a_loop_off_the_main_thread_is_stopped_and_its_thread_ends():
    before = threading.active_count()
    up = in_another_thread(lambda: call_within(LIMIT_S, spin))
    assert isinstance(up, TimeUp)
    assert not up.stuck
    deadline = time.monotonic() + 60
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_thread_that_cannot_be_interrupted_is_said_to_run_on():
    end = threading.Event()
    up = in_another_thread(lambda: call_within(LIMIT_S, end.wait))
    end.set()
    assert isinstance(up, TimeUp)
    assert up.stuck


@posix_only
def test_handler_and_timer_of_others_are_put_back():
    heard = []
    old = signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 3600, 7)
        with pytest.raises(TimeUp):
            call_within(LIMIT_S, spin)
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        assert 0 < left < 3600 - LIMIT_S
        assert interval == 7
        signal.raise_signal(signal.SIGALRM)
        assert heard == [1]
    finally:
        signal.signal(signal.SIGALRM, old)


@posix_only
def test_no_alarm_rings_after_the_end():
    for _ in range(200):  # as short as the limit, so that ends and alarms meet
        with contextlib.suppress(TimeUp):
            call_within(0.0005, lambda: time.sleep(0.0005))
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@posix_only
def test_an_alarm_as_the_function_ends_is_no_alarm():
    assert call_within(60, functools.partial(signal.raise_signal, signal.SIGALRM)) is None


@posix_only
def test_ctrl_c_passes_through():
    # In a child: a signal to this process would end the test run if it were not handled.
    code = """if True:
        import os, signal, threading, time
        from course_lib.teach.exercises.time_limit import call_within
        def wait():
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(60)
        try:
            call_within(40, wait)
        except KeyboardInterrupt:
            print("interrupted", signal.getitimer(signal.ITIMER_REAL))
    """
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert run.stdout.strip() == "interrupted (0.0, 0.0)"
