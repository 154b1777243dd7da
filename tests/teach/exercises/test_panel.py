import io
import sys

import pytest

from course_lib.teach.exercises.panel import GOOD, Panel
from course_lib.teach.exercises.result import MIME, Outcome, Result


def test_html_is_escaped_everywhere():
    evil = '<script>alert("x")</script>'
    page = Panel(GOOD, evil, f"`{evil}`", evil, (evil,))._repr_html_()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 4


def test_code_in_a_text_is_set_as_code():
    assert "<code>a &lt; b</code>" in Panel(GOOD, "Correct", "see `a < b`")._repr_html_()
    assert "see `a < b`" in str(Panel(GOOD, "Correct", "see `a < b`"))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_outcome_is_told_in_words_beside_its_colour(outcome):
    result = Result("start.throughput", outcome, "why", title="Throughput")
    assert str(outcome).capitalize() in result._repr_html_()
    assert str(result) == f"[{str(outcome).capitalize()}: Throughput] why"
    assert repr(result) == f"<start.throughput: {outcome}>"
    assert result.mime_bundle()[MIME] == {"id": "start.throughput", "outcome": str(outcome), "message": "why"}


def test_a_terminal_that_cannot_write_a_character_gets_the_rest(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    Result("start.throughput", Outcome.NOT_YET, "2 \N{MULTIPLICATION SIGN} 3").show()
    terminal.flush()
    assert terminal.buffer.getvalue().strip() == b"[Not yet] 2 ? 3"
