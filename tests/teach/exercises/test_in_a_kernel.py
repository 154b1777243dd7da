"""The exercises where they are used: in a Jupyter kernel, with its event loop running."""

import queue

import pytest
from jupyter_client.manager import KernelManager

from course_lib.teach.exercises.result import MIME

TIMEOUT_S = 300


class Kernel:
    def __init__(self, client):
        self._client = client

    def run(self, code):
        """The outputs of one cell, and whether it failed."""
        asked = self._client.execute(code)
        outputs, failed = [], False
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=TIMEOUT_S)
            except queue.Empty:
                pytest.fail(f"the kernel did not answer within {TIMEOUT_S} s")
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "execute_result"):
                outputs.append(content["data"])
            elif kind == "stream":  # one print may come in several messages
                before = outputs.pop()["stream"] if outputs and "stream" in outputs[-1] else ""
                outputs.append({"stream": before + content["text"]})
            elif kind == "error":
                outputs.append({"error": content["evalue"]})
                failed = True
            elif kind == "status" and content["execution_state"] == "idle":
                assert self._client.get_shell_msg(timeout=TIMEOUT_S)["content"]["status"] in ("ok", "error")
                return outputs, failed

    def check(self, code):
        """The one result that a cell with one check shows."""
        outputs, failed = self.run(code)
        assert not failed, outputs
        shown = [output for output in outputs if MIME in output]
        assert len(shown) == len(outputs) == 1, outputs
        assert shown[0]["text/html"].startswith("<div")
        assert shown[0]["text/plain"].startswith("[")
        return shown[0][MIME]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learner")
    manager = KernelManager()
    manager.start_kernel(cwd=str(folder), extra_arguments=["--Application.log_level=ERROR"])
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=TIMEOUT_S)
        one = Kernel(client)
        one.folder = folder
        setup = f"import os; os.environ['COURSE_FOLDER'] = {str(folder)!r}\n"
        outputs, failed = one.run(setup + "from course_lib.teach import check, hint, solution")
        assert not failed, outputs
        yield one
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


RIGHT = "def f(batch_size, step_seconds):\n    return batch_size / step_seconds\n"
CHECK = "check('start.throughput', f)"


def test_as_the_last_line_it_is_shown_once(kernel):
    assert kernel.check(RIGHT + CHECK)["outcome"] == "correct"


def test_in_the_middle_of_a_cell_and_assigned_it_is_shown_once(kernel):
    assert kernel.check(RIGHT + CHECK + "\nx = 1")["outcome"] == "correct"
    assert kernel.check(RIGHT + "result = " + CHECK)["outcome"] == "correct"
    assert kernel.check(RIGHT + "result = " + CHECK + "\nresult")["outcome"] == "correct"
    assert kernel.check(RIGHT + CHECK + ";")["outcome"] == "correct"


def test_in_a_later_cell_the_result_is_shown_again(kernel):
    kernel.run(RIGHT + "result = " + CHECK)
    assert kernel.check("result")["outcome"] == "correct"


def test_the_line_of_a_cell_is_shown_with_an_exception(kernel):
    result = kernel.check("def f(batch_size, step_seconds):\n    x = 0\n    return batch_size / x\n" + CHECK)
    assert result["outcome"] == "not yet"
    assert "ZeroDivisionError (division by zero) in its line 3: `return batch_size / x`" in result["message"]


def test_the_learners_edition_breaks_no_later_cell(kernel):
    stub = "def f(batch_size, step_seconds):\n    return ...  # replace the dots with your answer\n"
    assert kernel.check(stub + CHECK)["outcome"] == "not attempted"
    assert kernel.run("1 + 1")[0][0]["text/plain"] == "2"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("while True: pass", "a loop that never ends"),
        ("import time; time.sleep(600)", "a loop that never ends"),
        ("while True: print('x' * 1000)", "a loop that never ends"),
        ("return f(batch_size, step_seconds)", "calls itself without end"),
        ("exit()", "asked Python to exit"),
        ("quit()", "asked Python to exit"),
        ("import sys; sys.exit(1)", "asked Python to exit"),
        ("raise KeyboardInterrupt", "was interrupted"),
        ("return float(input('How many? '))", "calls `input()`"),
        ("import asyncio; return asyncio.run(asyncio.sleep(1))", "RuntimeError"),
        (
            "import threading, time; threading.Thread(target=time.sleep, args=(3,), daemon=True).start()",
            "`return`",
        ),
    ],
)
def test_the_kernel_survives(kernel, body, words):
    result = kernel.check(f"def f(batch_size, step_seconds):\n    {body}\n" + CHECK)
    assert result["outcome"] == "not yet"
    assert words in result["message"]
    assert kernel.run("print('still here', 6 * 7)")[0] == [{"stream": "still here 42\n"}]


def test_off_the_main_thread_of_the_kernel(kernel):
    code = (
        "import threading\n"
        "def f(batch_size, step_seconds):\n    while True: pass\n"
        f"thread = threading.Thread(target=lambda: {CHECK})\nthread.start(); thread.join()"
    )
    assert "a loop that never ends" in kernel.check(code)["message"]
    assert kernel.run("print(threading.active_count() < 20)")[0] == [{"stream": "True\n"}]


def test_hints_and_unknown_exercises_are_shown_once_and_raise_nothing(kernel):
    for code in ("hint('start.epoch_time')", "hint('start.epoch_tme')", "solution('start.epoch_tme')"):
        outputs, failed = kernel.run(code)
        assert not failed
        assert len(outputs) == 1
        assert MIME not in outputs[0]
    assert kernel.check("check('start.epoch_tme', 1)")["outcome"] == "no such exercise"


def test_progress_lies_in_the_learners_folder(kernel):
    kernel.check(RIGHT + CHECK)
    assert (kernel.folder / ".course" / "progress.json").is_file()
