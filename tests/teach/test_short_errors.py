"""In a real kernel a CourseError shows its sentence and fails the cell; other errors keep their lines."""

import re

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

CELLS = (
    "import course_lib.teach",
    "from course_lib.errors import CourseError\nraise CourseError('Take 1 or more, not 0.')",
    "from course_lib.units import parse_bytes\nparse_bytes('a lot of room')",
    "def f():\n    return 1 / 0\nf()",
)


@pytest.fixture(scope="module")
def errors() -> list[dict[str, object]]:
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, timeout=300, allow_errors=True).execute()
    return [output for cell in notebook.cells for output in cell.outputs if output.output_type == "error"]


def test_every_failing_cell_still_fails(errors: list[dict[str, object]]) -> None:
    assert [error["ename"] for error in errors] == ["CourseError", "CourseError", "ZeroDivisionError"]


def test_a_course_error_is_one_line(errors: list[dict[str, object]]) -> None:
    assert errors[0]["traceback"] == ["Not possible: Take 1 or more, not 0."]
    assert len(errors[1]["traceback"]) == 1
    assert "a lot of room" in errors[1]["traceback"][0]


def test_another_error_keeps_its_traceback(errors: list[dict[str, object]]) -> None:
    plain = re.sub("\x1b\\[[0-9;]*m", "", "".join(errors[2]["traceback"]))
    assert "return 1 / 0" in plain
