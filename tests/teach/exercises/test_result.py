import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.errors import CourseError
from course_lib.teach.exercises.result import MIME, Outcome, Result, results_in


def notebook_with(*bundles):
    outputs = [new_output("display_data", data=bundle) for bundle in bundles]
    stream = new_output("stream", text="printed")
    return new_notebook(
        cells=[new_markdown_cell("text"), new_code_cell("check()", outputs=[stream, *outputs])]
    )


def test_results_come_back_from_a_notebook_written_to_disk(tmp_path):
    results = [
        Result("start.a", Outcome.CORRECT, ""),
        Result("start.b", Outcome.NOT_YET, 'too <b>"small"</b>'),
        Result("start.a", Outcome.NOT_ATTEMPTED, "dots"),
    ]
    notebook = notebook_with(*[result.mime_bundle() for result in results], {"text/plain": "no result"})
    nbformat.validate(notebook)
    nbformat.write(notebook, tmp_path / "run.ipynb")
    assert results_in(nbformat.read(tmp_path / "run.ipynb", as_version=4)) == results


def test_a_notebook_without_checks_has_no_results():
    assert results_in(notebook_with()) == []


@pytest.mark.parametrize(
    "data", ["correct", {"id": "a"}, {"id": "a", "outcome": "perfect", "message": ""}, None, []]
)
def test_a_result_that_no_check_wrote_is_refused(data):
    with pytest.raises(CourseError, match="no check wrote"):
        results_in({"cells": [{"outputs": [{"data": {MIME: data}}]}]})


@pytest.mark.parametrize("notebook", [{}, {"cells": 3}, None, [], {"cells": [3]}])
def test_what_is_no_notebook_is_refused(notebook):
    with pytest.raises(CourseError, match="not a notebook"):
        results_in(notebook)
