import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.teach.running.headless import Execution, execute

HIDDEN = {
    "button": """
        import ipywidgets
        button = ipywidgets.Button()
        button.on_click(lambda _: 1 / 0)
        button.click()
    """,
    "interact": """
        def fails(x=3):
            raise RuntimeError("inside interact")
        ipywidgets.interact(fails, x=(0, 5));
    """,
    "interact that recovers": """
        def fails_at_3(x=3):
            if x == 3:
                raise OSError("only at first")
        made = ipywidgets.interactive(fails_at_3, x=(0, 5))
        made.children[0].value = 4
    """,
    "message of the browser": """
        out = ipywidgets.Output()
        out.observe(lambda change: {}["no such key"], "outputs")
        with out:
            print("the front end answers this with a message, which sets off the observer")
    """,
    "thread": """
        import threading
        def dies():
            raise ValueError("inside a thread")
        thread = threading.Thread(target=dies)
        thread.start()
        thread.join()
    """,
    "child process": """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "raise ArithmeticError('inside a child')"]);
    """,
}


def notebook_at(path: Path, *cells: str, tags: dict[int, str] | None = None) -> Path:
    nodes = [new_code_cell(textwrap.dedent(cell).strip()) for cell in cells]
    for index, tag in (tags or {}).items():
        nodes[index].metadata["tags"] = [tag]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(
        new_notebook(cells=[new_markdown_cell("# A lesson"), *nodes], metadata={"kernelspec": kernel}), path
    )
    return path


def run(tmp_path: Path, *cells: str, limit_s: int = 60, tags: dict[int, str] | None = None) -> Execution:
    source = notebook_at(tmp_path / "lesson.ipynb", *cells, tags=tags)
    return execute(
        source,
        tmp_path / "executed.ipynb",
        parameters={},
        folder=tmp_path,
        environment=os.environ,
        cell_limit_s=limit_s,
    )


def outputs(execution: Execution) -> list[str]:
    return [
        "".join(output.get("text", "") for output in cell.outputs)
        for cell in execution.notebook.cells
        if cell.cell_type == "code"
    ]


def test_errors_that_stop_no_cell_are_found_and_told_by_cell(tmp_path: Path) -> None:
    ran = run(tmp_path, *HIDDEN.values(), "print('the last cell')")
    assert ran.failure is None
    assert outputs(ran)[-1] == "the last cell\n"
    found = [(hidden.cell, hidden.error) for hidden in ran.hidden_errors]
    # What a child process writes goes through the kernel or, as on Windows and under pytest, past it.
    assert found.pop() in [(cell, "ArithmeticError: inside a child") for cell in (6, None)]
    assert sorted(found) == [
        (1, "ZeroDivisionError: division by zero"),
        (2, "RuntimeError: inside interact"),
        (3, "OSError: only at first"),
        (4, "KeyError: 'no such key'"),
        (5, "ValueError: inside a thread"),
    ]
    assert all(hidden.error.split(":")[0] in hidden.traceback for hidden in ran.hidden_errors)


def test_a_notebook_without_errors_has_none(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        import ipywidgets
        slider, seen = ipywidgets.IntSlider(), []
        slider.observe(seen.append, "value")
        slider.value = 3
        print(len(seen))
        """,
        "ipywidgets.interact(lambda x=1: x, x=(0, 5));",
        "print(1 / 0)",
        "import sys; print('a warning, no traceback', file=sys.stderr)",
        tags={2: "raises-exception"},
    )
    assert (ran.failure, ran.hidden_errors) == (None, ())
    assert outputs(ran)[0] == "1\n"
    assert [cell.number for cell in ran.cells] == [1, 2, 3, 4]


def test_an_observer_that_fails_while_the_cell_runs_is_the_cells_own_failure(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        """
        # a slider
        import ipywidgets
        slider = ipywidgets.IntSlider()
        slider.observe(lambda change: 1 / 0, "value")
        slider.value = 3
        """,
        "print('never')",
    )
    assert ran.failure is not None
    assert ran.failure.cell == 1
    assert ran.failure.source == "slider.value = 3"
    assert ran.failure.error == "ZeroDivisionError: division by zero"
    assert ran.hidden_errors == ()
    assert outputs(ran)[1] == ""
    assert [cell.number for cell in ran.cells] == [1]


def test_a_failed_cell_and_a_hidden_error_in_it_are_told_apart(tmp_path: Path) -> None:
    ran = run(tmp_path, HIDDEN["button"] + "\n        raise KeyError('the cell itself')")
    assert ran.failure is not None
    assert ran.failure.error == "KeyError: 'the cell itself'"
    assert [hidden.error for hidden in ran.hidden_errors] == ["ZeroDivisionError: division by zero"]


def test_output_widgets_work_as_in_a_browser_and_no_cell_waits_for_its_limit(tmp_path: Path) -> None:
    limit_s = 30
    ran = run(
        tmp_path,
        "import ipywidgets\nout = ipywidgets.Output()",
        *["with out: print('line')"] * 40,  # nbclient's own widget loses about one reply in twenty
        "print(out.outputs[0]['text'].count('line'))",
        limit_s=limit_s,
    )
    assert (ran.failure, ran.hidden_errors) == (None, ())
    assert outputs(ran)[-1] == "40\n"
    assert max(cell.seconds for cell in ran.cells) < limit_s


def test_a_cell_that_takes_too_long_is_named_and_leaves_no_process(tmp_path: Path) -> None:
    for limit_s in (2, 20, 100):  # on a busy machine the first cell may take longer than a short limit
        ran = run(
            tmp_path,
            """
            import os, subprocess, sys
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
            open("pids", "w").write(f"{os.getpid()} {child.pid}")
            """,
            "# wait\nwhile True: pass",
            limit_s=limit_s,
        )
        assert ran.failure is not None
        assert f"limit of {limit_s} s" in ran.failure.error
        if ran.failure.cell == 2:
            break
    assert ran.failure.cell == 2
    assert ran.failure.source == "while True: pass"
    assert_gone(tmp_path / "pids")
    assert nbformat.read(tmp_path / "executed.ipynb", as_version=4).cells[1].execution_count == 1


def test_a_kernel_that_dies_is_told_with_its_cell(tmp_path: Path) -> None:
    ran = run(tmp_path, "x = 1", "import os\nos._exit(3)")
    assert ran.failure is not None
    assert ran.failure.cell == 2
    assert "kernel died" in ran.failure.error


def test_the_peak_of_memory_holds_the_children_and_belongs_to_its_cell(tmp_path: Path) -> None:
    mib = 2**20
    fill = f"import time; x = bytearray({100 * mib}); x[::4096] = b'1' * len(x[::4096])"
    for seconds in (1.5, 10, 60):  # on a busy machine the watch may look too seldom for a short peak
        child = f"{fill}; time.sleep({seconds})"
        ran = run(
            tmp_path,
            "x = 1",
            f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}]);",
            "y = 2",
            limit_s=120,
        )
        small, large, after = (cell.peak_bytes for cell in ran.cells)
        if large > small + 100 * mib:
            break
    assert large > small + 100 * mib
    assert after < large - 90 * mib
    assert ran.peak_bytes == large


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to a whole console")
def test_ctrl_c_ends_the_kernel_and_its_children_and_keeps_what_was_done(tmp_path: Path) -> None:
    notebook_at(
        tmp_path / "lesson.ipynb",
        "print('done before')",
        """
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        open("pids.part", "w").write(f"{os.getpid()} {child.pid}")
        os.replace("pids.part", "pids")
        time.sleep(300)
        """,
    )
    program = f"""
        import os
        from pathlib import Path
        from course_lib.teach.running.headless import execute
        here = Path({str(tmp_path)!r})
        execute(here / "lesson.ipynb", here / "executed.ipynb", parameters={{}}, folder=here,
                environment=os.environ, cell_limit_s=300)
    """
    runner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "pids").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    runner.send_signal(signal.SIGINT)
    _, stderr = runner.communicate(timeout=120)
    assert stderr.decode().rstrip().endswith("KeyboardInterrupt")
    assert_gone(tmp_path / "pids")
    kept = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    assert kept.cells[1].outputs[0].text == "done before\n"


def assert_gone(pids: Path) -> None:
    numbers = [int(number) for number in pids.read_text(encoding="utf-8").split()]
    assert len(numbers) == 2
    for number in numbers:
        with contextlib.suppress(psutil.NoSuchProcess):
            # A container may have no process that collects the dead: dead all the same.
            assert psutil.Process(number).status() == psutil.STATUS_ZOMBIE
