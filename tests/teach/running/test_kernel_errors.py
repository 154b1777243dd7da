from course_lib.teach.running.kernel_errors import (
    error_line,
    errors_in_text,
    errors_in_widgets,
    traceback_text,
)

PRINTED = """some warning
Exception in thread Thread-3 (dies):
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    1 / 0

ZeroDivisionError: division by zero
and then a normal line
    Traceback (most recent call last):
      File "b.py", line 2, in work
    KeyError: 'x'
"""


def test_each_traceback_in_a_text_is_found_with_its_last_line() -> None:
    first, second = errors_in_text(PRINTED, cell=7)
    assert (first.cell, first.error) == (7, "ZeroDivisionError: division by zero")
    assert first.traceback.splitlines()[0] == "Traceback (most recent call last):"
    assert second.error == "KeyError: 'x'"


def test_text_without_a_traceback_holds_no_error() -> None:
    assert errors_in_text("", None) == ()
    assert errors_in_text("ValueError: only named\nTraceback (most recent", None) == ()


def test_a_traceback_that_was_cut_off_is_still_told() -> None:
    (cut,) = errors_in_text('Traceback (most recent call last):\n  File "a.py", line 1', None)
    assert cut.error == 'File "a.py", line 1'


def test_errors_shown_by_output_widgets_are_read_from_the_notebook() -> None:
    shown = {"output_type": "error", "ename": "OSError", "evalue": "gone", "traceback": ["line"]}
    fine = {"output_type": "stream", "name": "stdout", "text": "Error: only a word"}
    state = {
        "a": {"model_name": "OutputModel", "state": {"outputs": [fine, shown]}},
        "b": {"model_name": "IntSliderModel", "state": {"value": 3}},
    }
    notebook = {"metadata": {"widgets": {"application/vnd.jupyter.widget-state+json": {"state": state}}}}
    assert [error.error for error in errors_in_widgets(notebook)] == ["OSError: gone"]
    assert errors_in_widgets({"metadata": {}}) == ()


def test_colours_are_taken_off() -> None:
    content = {
        "ename": "ValueError",
        "evalue": "\x1b[31mred\x1b[39m",
        "traceback": ["\x1b[1;32ma\x1b[0m", "b"],
    }
    assert error_line(content) == "ValueError: red"
    assert traceback_text(content) == "a\nb"
    assert error_line({**content, "evalue": ""}) == "ValueError"
