import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.cli.main import main
from course_lib.teach import lessons as lessons_module

FAILING_WIDGET = "import ipywidgets\nipywidgets.interact(lambda x: 1 / 0, x=(0, 3));"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of its own, of two lessons that run fast."""
    for name, code in (("00_start", "print(batch_size)"), ("01_widget", FAILING_WIDGET)):
        parameters = new_code_cell("batch_size = 64", metadata={"tags": ["parameters"]})
        cells = [new_markdown_cell(f"# {name}"), parameters, new_code_cell(code)]
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), tmp_path / f"{name}.ipynb")
    monkeypatch.setattr(lessons_module, "notebooks_dir", lambda: tmp_path)
    return tmp_path


def status_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["run", *arguments])
    assert isinstance(end.value.code, int)
    return end.value.code


def test_a_run_that_goes_well_ends_with_0_and_a_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    assert status_of("start", "-p", "batch_size", "8", "--out", str(out)) == 0
    head, row = capsys.readouterr().out.splitlines()[:2]
    assert head.split("  ")[0] == "lesson"
    assert row.split()[0] == "00_start"
    assert row.split()[-1] == "ok"
    notebook = nbformat.read(out / "00_start.ipynb", as_version=4)
    assert notebook.cells[-1].outputs[0].text == "8\n"


def test_a_widget_that_fails_ends_the_command_with_1_and_json_holds_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("--json", "--out", str(folder / "out")) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [(lesson["lesson"], lesson["ok"]) for lesson in answer["lessons"]] == [
        ("00_start", True),
        ("01_widget", False),
    ]
    assert answer["lessons"][1]["hidden_errors"][0]["error"] == "ZeroDivisionError: division by zero"
    assert answer["lessons"][1]["failure"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nosuch"], "There is no lesson 'nosuch'"),
        (["start", "-p", "bath_size", "3"], "Did you mean batch_size?"),
        (["start", "-p", "batch_size", "many"], "'many' is not"),
        (["start", "-p", "batch_size"], "requires 2 arguments"),
        (["start", "--out", __file__], "is a file"),
    ],
)
def test_what_cannot_be_used_ends_with_2_and_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert status_of("--json", *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert len(captured.err.splitlines()) == 1
