"""Is a verdict shown once, kept as data in the cell's output, and refused when it is no verdict?"""

import json
import math
import subprocess
import sys
from typing import Any

import nbformat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbclient import NotebookClient

from course_lib.claims import CLAIMS
from course_lib.errors import CourseError
from course_lib.teach.verdicts import MIME_TYPE, Judgement, Verdict, judge, judgements_in

GOOD = Judgement(
    "loading.workers", Verdict.HOLDS_WHEN, 3.1, "times faster", "files are <decoded>", "2 cores of a laptop"
)


def judgements() -> st.SearchStrategy[Judgement]:
    return st.builds(
        Judgement,
        claim_id=st.sampled_from([known.id for known in CLAIMS]),
        verdict=st.sampled_from(Verdict),
        number=st.floats(allow_nan=False, allow_infinity=False),
        unit=st.text(),
        note=st.text().map(lambda text: f"note {text}"),
        machine=st.text(),
    )


@given(judgements())
def test_a_judgement_survives_json(judgement: Judgement) -> None:
    assert Judgement.from_json(json.loads(json.dumps(judgement.to_json()))) == judgement


@given(judgements())
def test_html_holds_no_tag_that_a_note_brought(judgement: Judgement) -> None:
    plain = Judgement(judgement.claim_id, judgement.verdict, 1.0, "", "note", "somewhere")
    given_text = Judgement(
        judgement.claim_id, judgement.verdict, 1.0, judgement.unit, judgement.note, f"<{judgement.machine}>"
    )
    assert given_text._repr_html_().count("<") == plain._repr_html_().count("<")


def test_a_judgement_says_claim_verdict_number_and_where() -> None:
    assert str(GOOD).splitlines() == [
        "loading.workers: The best num_workers is the smaller of the CPU cores and 4 times the GPUs.",
        "  holds when files are <decoded> (3.1 times faster)",
        "  judged on: 2 cores of a laptop",
    ]
    assert "files are &lt;decoded&gt;" in GOOD._repr_html_()


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (913.24, "CNY", "913.2 CNY"),
        (59.05, "CNY", "59.05 CNY"),
        (4, "", "4"),
        (1909.4, "days", "1,909 days"),
    ],
)
def test_the_number_is_readable(number: float, unit: str, text: str) -> None:
    assert Judgement("cost.example", Verdict.FAILS, number, unit).sentence == f"fails ({text})"


@pytest.mark.parametrize(
    ("claim_id", "verdict", "settings", "reason"),
    [
        ("loading.worker", "holds", {"number": 1}, "did you mean loading.workers"),
        (
            "loading.workers",
            "hold",
            {"number": 1},
            '"holds", "holds when", "fails", "cannot be tested here"',
        ),
        ("loading.workers", "Holds", {"number": 1}, "is no verdict"),
        ("loading.workers", "holds when", {"number": 1, "note": " "}, "note that says when"),
        ("loading.workers", "holds", {"number": None}, "needs the number"),
        ("loading.workers", "fails", {"number": None}, "needs the number"),
        ("ddp.backend", "cannot be tested here", {"number": None}, "what is missing"),
        ("loading.workers", "holds", {"number": math.nan}, "no number"),
        ("loading.workers", "holds", {"number": math.inf}, "no number"),
        ("loading.workers", "holds", {"number": "three"}, "no number"),
        ("loading.workers", "holds", {"number": [1]}, "no number"),
    ],
)
def test_what_is_no_verdict_is_refused(
    claim_id: str, verdict: str, settings: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CourseError, match=reason):
        judge(claim_id, verdict, **settings)
    assert capsys.readouterr().out == ""


def test_outside_of_a_notebook_the_verdict_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    judge("loading.workers", "fails", number=np.float32(0.5), unit="times")
    assert "fails (0.5 times)" in capsys.readouterr().out


def test_judging_starts_no_torch_by_being_imported() -> None:
    program = "import sys, course_lib.teach.verdicts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=300).returncode == 0


def test_a_notebook_shows_each_verdict_once_and_its_data_are_found_again() -> None:
    """A real kernel: the call first, in the middle and last in a cell, with a torch scalar."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell("judge"),
        nbformat.v4.new_code_cell(
            "import torch\n"
            "from course_lib.teach.verdicts import judge\n"
            "judge('loading.workers', 'holds when', number=torch.tensor(2.5), note='it decodes')\n"
            "print('between')\n"
            "judge('ddp.backend', 'cannot be tested here', note='there is one card at most')"
        ),
        nbformat.v4.new_code_cell("judge('oom.cache', 'fails', number=0, unit='bytes freed');"),
    ]
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    found = judgements_in(nbformat.reads(nbformat.writes(notebook), as_version=4))
    assert [(j.claim_id, j.verdict, j.number, j.unit) for j in found] == [
        ("loading.workers", Verdict.HOLDS_WHEN, 2.5, ""),
        ("ddp.backend", Verdict.CANNOT_BE_TESTED_HERE, None, ""),
        ("oom.cache", Verdict.FAILS, 0.0, "bytes freed"),
    ]
    assert all(judgement.machine for judgement in found)
    first = notebook.cells[1].outputs
    assert [output.output_type for output in first] == ["display_data", "stream", "display_data"]
    assert set(first[0].data) == {"text/plain", "text/html", MIME_TYPE}


@pytest.mark.parametrize(
    "data",
    [
        None,
        "holds",
        [],
        {},
        {"claim_id": "oom.cache"},
        {"claim_id": "oom.cache", "verdict": "perhaps", "number": 1},
        {"claim_id": "oom.cache", "verdict": "fails", "number": "1"},
        {"claim_id": "oom.cache", "verdict": ["fails"], "number": 1},
        {"claim_id": "oom.cache", "verdict": "fails", "number": 1, "extra": 1},
        {"claim_id": "gone", "verdict": "fails", "number": 1},
    ],
)
def test_data_that_are_no_judgement_are_refused(data: object) -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", {MIME_TYPE: data})])
    ]
    with pytest.raises(CourseError):
        judgements_in(notebook)


def test_a_notebook_without_verdicts_has_none() -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_markdown_cell("text"),
        nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("stream", text="hello")]),
    ]
    assert judgements_in(notebook) == []
