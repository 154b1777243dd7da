import builtins
import functools
import json
import subprocess
import sys
import threading

import numpy as np
import pytest

from course_lib.teach.exercises.guard import run_guarded, why_not_callable

SHORT_S = 0.3


def run(function, limit_s=30, **arguments):
    return run_guarded(function, arguments, limit_s=limit_s)


def test_a_value_comes_back_with_what_was_printed():
    def double(x):
        print("x is", x)
        print("to stderr", file=sys.stderr)
        return 2 * x

    result = run(double, x=4)
    assert (result.value, result.fault, result.changed) == (8, None, ())
    assert result.printed == "x is 4\nto stderr\n"


def test_an_exception_is_told_with_the_line_of_the_learners_own_code():
    def outer(x):
        y = x + 1
        return inner(y)

    def inner(y):
        return json.loads("{" * y)

    fault = run(outer, x=1).fault
    assert fault.kind == "raised"
    assert "JSONDecodeError" in fault.text
    assert "line 2 of `inner`" in fault.text  # not the line inside the json module
    assert 'json.loads("{" * y)' in fault.text

    fault = run(lambda texts: list(map(json.loads, texts)), texts=["{"]).fault
    assert "JSONDecodeError" in fault.text
    assert "list(map(json.loads" in fault.text

    fault = run(lambda x: x / 0, x=1).fault
    assert "ZeroDivisionError (division by zero) in its line 1" in fault.text


def test_long_texts_and_broken_exceptions_are_bounded():
    class BrokenError(Exception):
        def __str__(self):
            raise ValueError

    def long():
        raise ValueError("x" * 10**6)

    def broken():
        raise BrokenError

    assert len(run(long).fault.text) < 400
    assert run(broken).fault.text.startswith("raised BrokenError in its line 2")


@pytest.mark.parametrize("stop", [sys.exit, lambda code: sys.exit(str(code)), exit, quit])
def test_exit_is_told(stop):
    assert run(lambda: stop(1)).fault.kind == "exit"
    assert not sys.__stdin__.closed  # which is what exit() does to the input of a Python prompt


def test_an_interruption_raised_inside_is_told():
    def interrupt():
        raise KeyboardInterrupt

    assert run(interrupt).fault.kind == "interrupted"


def test_other_base_exceptions_are_told():
    def stop():
        raise GeneratorExit

    assert "GeneratorExit" in run(stop).fault.text


def test_endless_recursion_is_told():
    def deeper(n):
        return deeper(n + 1)

    fault = run(deeper, n=0).fault
    assert "calls itself without end" in fault.text
    assert "return deeper(n + 1)" in fault.text


def test_an_endless_loop_is_told_and_all_is_put_back():
    def spin():
        while True:
            print("x")

    before = sys.stdout, sys.stderr, sys.stdin, builtins.input
    result = run(spin, limit_s=SHORT_S)
    assert result.fault.kind == "endless"
    assert "0.3 seconds" in result.fault.text
    assert (sys.stdout, sys.stderr, sys.stdin, builtins.input) == before
    assert len(result.printed) < 3000


def test_a_flood_of_output_is_cut():
    def flood():
        for _ in range(10):
            print("x" * 10**6)
        return 1

    result = run(flood)
    assert result.value == 1
    assert len(result.printed) < 3000
    assert result.printed.endswith(" ...")


def test_closing_the_output_harms_nobody():
    def close():
        print("before")
        sys.stdout.close()
        return 1

    result = run(close)
    assert (result.value, result.printed) == (1, "before\n")
    assert not sys.stdout.closed


def test_input_is_told():
    assert run(lambda: input("How many? ")).fault.kind == "input"
    assert run(lambda: builtins.input("How many? ")).fault.kind == "input"


def test_nothing_can_be_read():
    assert run(lambda: sys.stdin.read(100)).value == ""


def test_changed_inputs_are_named_and_stay_unchanged_outside():
    split, array = {"data": [1, 2]}, np.zeros(3)

    def change(split, array, other):
        split["data"].append(3)
        array += 1

    result = run(change, split=split, array=array, other=[1])
    assert result.changed == ("split", "array")
    assert split == {"data": [1, 2]}
    assert not array.any()


def test_a_change_before_an_exception_is_noticed():
    assert run(lambda items: items.clear() or 1 / 0, items=[1]).changed == ("items",)


def test_the_dots_in_the_middle_of_an_answer_are_dots():
    def half(x):
        y = ...
        return y * x

    def half_attribute(x):
        y = ...
        return y.real

    assert run(half, x=2).fault.kind == "dots"
    assert run(half_attribute, x=2).fault.kind == "dots"


def test_threads_of_the_learner_do_not_hold_the_check():
    end = threading.Event()

    def start():
        threading.Thread(target=end.wait, daemon=True).start()
        return 1

    assert run(start).value == 1
    end.set()


def test_waiting_for_a_thread_that_never_ends_is_stopped():
    end = threading.Event()

    def wait():
        thread = threading.Thread(target=end.wait, daemon=True)
        thread.start()
        thread.join()

    assert run(wait, limit_s=SHORT_S).fault.kind == "endless"
    end.set()


def test_it_works_off_the_main_thread():
    def spin():
        while True:
            pass

    results = []
    thread = threading.Thread(
        target=lambda: results.extend([run(spin, limit_s=SHORT_S), run(lambda x: 1 / x, x=0), run(lambda: 1)])
    )
    thread.start()
    thread.join()
    assert results[0].fault.kind == "endless"
    assert "ZeroDivisionError" in results[1].fault.text
    assert results[2].value == 1


def test_a_thread_left_behind_is_told():
    end = threading.Event()
    results = []
    thread = threading.Thread(target=lambda: results.append(run(end.wait, limit_s=SHORT_S)))
    thread.start()
    thread.join()
    end.set()
    assert "restart the kernel" in results[0].fault.text


def test_a_process_survives_all_of_it():
    """All the faults one after another in a fresh process, which must still be there at the end."""
    code = """if True:
        import sys, time
        from course_lib.teach.exercises.guard import run_guarded
        def spin():
            while True: pass
        def deeper(): return deeper()
        def flood():
            while True: print("x" * 1000)
        def swallow():
            while True:
                try: time.sleep(0.01)
                except: pass
        def threads():
            import concurrent.futures
            with concurrent.futures.ThreadPoolExecutor() as pool:
                return pool.submit(lambda: 1).result()
        never = [spin, flood, lambda: time.sleep(60), swallow]
        print([run_guarded(function, {}, limit_s=0.3).fault.kind for function in never])
        at_once = [deeper, lambda: exit(), lambda: input()]
        print([run_guarded(function, {}, limit_s=30).fault.kind for function in at_once])
        print(run_guarded(threads, {}, limit_s=30).value)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines() == [str(["endless"] * 4), str(["raised", "exit", "input"]), "1"]
    assert done.stderr == ""


def test_arguments_go_by_name_where_the_names_are_known_and_else_in_order():
    assert run(lambda b, a: (a, b), a=1, b=2).value == (1, 2)
    assert run(lambda x, y: (x, y), a=1, b=2).value == (1, 2)
    assert run(lambda *, a, b: (a, b), a=1, b=2).value == (1, 2)
    assert run(lambda *all_of_them: all_of_them, a=1, b=2).value == (1, 2)
    assert run(lambda a, b, c=3: (a, b, c), a=1, b=2).value == (1, 2, 3)
    assert run(lambda a, b, /: (a, b), a=1, b=2).value == (1, 2)
    assert run(max, a=1, b=2).value == 2
    assert run(functools.partial(lambda x, a, b: (x, a, b), 0), a=1, b=2).value == (0, 1, 2)


class Squarer:
    def square(self, x):
        return x * x

    def __call__(self, x):
        return x * x


@pytest.mark.parametrize(
    "answer", [lambda x: x, Squarer().square, Squarer(), abs, np.sqrt, functools.partial(pow, 2)]
)
def test_what_can_be_called_is_accepted(answer):
    assert why_not_callable(answer, "square", ("x",)) == ""


async def waits(x):
    return x


def yields(x):
    yield x


async def yields_and_waits(x):
    yield x


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Squarer, "the class `Squarer`"),
        ("square", "without quotes"),
        (9.0, "without parentheses"),
        (None, "without parentheses"),
        (waits, "`async`"),
        (yields, "`yield`"),
        (yields_and_waits, "`yield`"),
        (lambda: 1, "takes nothing: it must take x"),
        (lambda a, b: 1, "takes a, b: it must take x"),
    ],
)
def test_what_cannot_be_called_is_told(answer, words):
    assert words in why_not_callable(answer, "square", ("x",))
