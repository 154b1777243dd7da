import dataclasses
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.errors import CourseError
from course_lib.teach.running.report import RunReport
from course_lib.teach.running.run import LessonRun, parse_value, run_lesson, run_lessons

PARAMETERS = """
import os
quick = bool(int(os.environ.get("COURSE_QUICK", "0")))
batch_size = 64  # images
rate: float = 1e-3
device = "cpu"
seed = None
"""
SHOWN = "print([quick, batch_size, rate, device, seed])"
WORK = """
from pathlib import Path
from course_lib.teach import check, judge
from course_lib.teach.workspace import learner_folder
Path("left behind.txt").write_text("x", encoding="utf-8")
print(learner_folder().samefile("."), os.environ.get("COURSE_QUICK"))
"""
ANSWER = """
judge("start.idle", "holds when", number=12.5, unit="%", note="files are read")
check("start.throughput", lambda batch_size, step_seconds: None)
check("start.throughput", lambda batch_size, step_seconds: batch_size / step_seconds);
"""
SOURCE = """\
# %% [markdown]
# # A lesson with a solution

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))

# %%
from course_lib.teach import check

# %% tags=["exercise"]
# How many images a second is that?
def samples_per_second(batch_size: int, step_seconds: float) -> float:
    # solution
    return batch_size / step_seconds
    # end

check("start.throughput", samples_per_second)
"""


def lesson_at(folder: Path, name: str, *cells: str) -> Path:
    nodes = [new_markdown_cell(f"# Lesson {name}"), new_code_cell(PARAMETERS.strip())]
    nodes[1].metadata["tags"] = ["parameters"]
    nodes += [new_code_cell(textwrap.dedent(cell).strip()) for cell in cells]
    notebook = new_notebook(cells=nodes)
    notebook.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata.language_info = {"name": "python"}
    folder.mkdir(exist_ok=True)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


@pytest.fixture
def lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("COURSE_QUICK", raising=False)
    lesson_at(tmp_path / "notebooks", "00_start", SHOWN, WORK, ANSWER)
    return tmp_path / "notebooks"


def printed(run: LessonRun, line: int) -> str:
    notebook = nbformat.read(run.notebook, as_version=4)
    texts = [o.text for cell in notebook.cells for o in cell.get("outputs", ()) if o.output_type == "stream"]
    return str("".join(texts).splitlines()[line])


def test_a_lesson_runs_in_a_throwaway_folder_and_all_that_it_found_is_collected(
    lessons: Path, tmp_path: Path
) -> None:
    before = (lessons / "00_start.ipynb").read_bytes()
    run = run_lesson("start", folder=lessons, out=tmp_path / "out")
    assert run.ok
    assert (run.lesson, run.edition, run.parameters) == ("00_start", "learner", {})
    assert printed(run, 0) == "[False, 64, 0.001, 'cpu', None]"
    assert printed(run, 1) == "True None"
    assert [(result.id, result.outcome) for result in run.results] == [("start.throughput", "correct")]
    assert [(j.claim_id, j.number) for j in run.judgements] == [("start.idle", 12.5)]
    assert run.passed == 1
    assert [cell.number for cell in run.cells] == [1, 2, 3, 4]
    assert run.slowest is not None
    assert run.slowest.seconds == max(cell.seconds for cell in run.cells)
    assert sum(cell.seconds for cell in run.cells) < run.seconds
    assert run.peak_bytes > 20 * 2**20
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["00_start.html", "00_start.ipynb"]
    assert "holds when files are read" in run.page.read_text(encoding="utf-8")
    assert (lessons / "00_start.ipynb").read_bytes() == before
    assert not list(tmp_path.rglob("left behind.txt"))


def test_quick_and_given_parameters_reach_the_lesson(lessons: Path, tmp_path: Path) -> None:
    given = {"batch_size": 8, "rate": 1, "seed": 3}
    run = run_lesson("0", folder=lessons, out=tmp_path / "out", quick=True, parameters=given)
    assert printed(run, 0) == "[True, 8, 1, 'cpu', 3]"
    assert printed(run, 1) == "True 1"
    assert run.parameters == {"quick": True, **given}


def test_the_solved_edition_is_derived_and_its_answers_are_right(lessons: Path, tmp_path: Path) -> None:
    (lessons / "source").mkdir()
    (lessons / "source" / "00_start.py").write_text(SOURCE, encoding="utf-8")
    run = run_lesson("start", folder=lessons, out=tmp_path / "{out}", solved=True)
    assert (run.ok, run.edition, run.passed) == (True, "solved", 1)
    assert run.notebook.name == "00_start.solved.ipynb"


def test_a_failed_lesson_leaves_its_page_and_does_not_keep_the_next_from_running(
    lessons: Path, tmp_path: Path
) -> None:
    broken = ["import ipywidgets\nbutton = ipywidgets.Button()\nbutton.on_click(lambda _: {}['<key>'])"]
    lesson_at(lessons, "01_broken", *broken, "button.click()", "x = 1\ny = x / 0", "print('never')")
    lesson_at(lessons, "02_last", "print('last')")
    runs = list(run_lessons(["1", "2", "broken"], folder=lessons, out=tmp_path / "out"))
    assert [(run.lesson, run.ok) for run in runs] == [("01_broken", False), ("02_last", True)]
    failure = runs[0].failure
    assert failure is not None
    assert (failure.cell, failure.source, failure.error) == (
        4,
        "y = x / 0",
        "ZeroDivisionError: division by zero",
    )
    assert [error.error for error in runs[0].hidden_errors] == ["KeyError: '<key>'"]
    assert "ZeroDivisionError" in runs[0].page.read_text(encoding="utf-8")

    report = RunReport(tuple(runs))
    assert not report.ok
    text = str(report)
    assert "cell [4] failed with ZeroDivisionError: division by zero\n      y = x / 0" in text
    assert "cell [3], a widget's callback: KeyError: '<key>'" in text
    assert "KeyError: &#x27;&lt;key&gt;&#x27;" in report._repr_html_()
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [lesson["ok"] for lesson in data["lessons"]] == [False, True]
    assert set(data["lessons"][0]) >= {field.name for field in dataclasses.fields(LessonRun)}
    assert data["lessons"][0]["failure"]["cell"] == 4


@pytest.mark.parametrize(
    ("words", "given", "told"),
    [
        (["strat"], {}, r"no lesson 'strat'. Did you mean 00_start\?"),
        (["start"], {"bach_size": 3}, r"00_start has no parameter 'bach_size'. Did you mean batch_size\?"),
        (["start"], {"zzz": 3}, r"no parameter 'zzz'. It has quick, batch_size, rate, device, seed."),
        (
            ["start"],
            {"batch_size": "many"},
            r"batch_size of 00_start is of type int .by default 64., and 'many' is not",
        ),
        (["start"], {"batch_size": True}, "batch_size of 00_start is of type int"),
        (["start"], {"rate": "low"}, "rate of 00_start is of type float .by default 0.001"),
        (["start"], {"device": 3}, "device of 00_start is of type str"),
        (["start"], {"quick": "maybe"}, "quick is true or false, not .maybe."),
    ],
)
def test_what_the_lesson_does_not_have_is_told_before_anything_runs(
    lessons: Path, tmp_path: Path, words: list[str], given: Mapping[str, Any], told: str
) -> None:
    lesson_at(lessons, "01_other", "print(1)")
    with pytest.raises(CourseError, match=told):
        run_lessons([*words, "other"], folder=lessons, out=tmp_path / "out", parameters=given)
    assert not (tmp_path / "out").exists()


def test_no_lesson_at_all_is_told(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no lesson to run"):
        run_lessons(folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("None", None),
        ("cpu", "cpu"),
        ("'64'", "64"),
        ("[1, 2]", [1, 2]),
        ("", ""),
        ("__import__('os')", "__import__('os')"),
        ("resnet18 ", "resnet18 "),
    ],
)
def test_typed_values_are_read_as_python_would(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@given(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
def test_every_plain_value_can_be_typed(value: object) -> None:
    assert parse_value(repr(value)) == value
