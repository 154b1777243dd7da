"""Text fits the terminal: prose is wrapped, and the rows of a table stay whole."""

import pytest

from course_lib.cli.output import fitted, text_width

PROSE = "  Note: " + "these are words of a long sentence about a calibration on three cards " * 3


@pytest.mark.parametrize(("columns", "width"), [("40", 40), ("80", 80), ("300", 100), ("3", 20)])
def test_prose_is_as_wide_as_the_terminal(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert text_width() == width
    lines = fitted(PROSE).split("\n")
    assert max(map(len, lines)) <= width
    assert len(lines) > 2
    assert " ".join(" ".join(lines).split()) == " ".join(PROSE.split())  # no word is lost
    assert all(line.startswith("    ") for line in lines[1:])


def test_rows_short_lines_and_long_words_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = "RTX 3090                1,706 MiB  1,876 MiB  15,102 MiB  fits"
    address = "  https://example.org/" + "a" * 60
    text = f"short\n\n{row}\n{address}\n"
    assert fitted(text) == text
