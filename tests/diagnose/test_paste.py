"""The damage of terminals is undone, and places in the text stay right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.diagnose.paste import MAX_CHARACTERS, Paste
from course_lib.diagnose.size import PrintedSize, show_mib
from course_lib.errors import CourseError


def test_colours_entities_frames_and_odd_blanks_go() -> None:
    paste = Paste.of("\ufeff\x1b[31mA\x1b[0m &gt; B\u00a0C\r\n│ x │\rnext")
    assert paste.lines == ["A > B C", "| x |", "next"]


def test_too_long_a_text_is_refused() -> None:
    with pytest.raises(CourseError, match="cut it down"):
        Paste.of("x" * (MAX_CHARACTERS + 1))


@given(st.text(alphabet="ab \t\n", max_size=200))
def test_places_in_the_squeezed_text_lead_back(text: str) -> None:
    paste = Paste.of(text)
    for place, letter in enumerate(paste.squeezed):
        offset = paste.offset(place)
        assert paste.text[offset] == letter
        assert paste.line_of(offset) == paste.text.count("\n", 0, offset) + 1
        assert paste.text[: offset + 1].endswith(paste.line_before(offset) + letter)


@pytest.mark.parametrize(
    ("number", "unit", "mib"),
    [
        ("9.18", "GiB", 9400.32),
        ("9.18", "GB", 9400.32),
        ("643.57", "MiB", 643.57),
        ("512", "bytes", 512 / 2**20),
        ("0", "bytes", 0.0),
        ("267624", "KiB", 261.3516),
        ("1.9", "TiB", 1.9 * 2**20),
        ("0", "B", 0.0),
    ],
)
def test_sizes_are_binary_whatever_the_letters(number: str, unit: str, mib: float) -> None:
    size = PrintedSize.of(number, unit)
    assert size.mib == pytest.approx(mib, abs=1e-4)
    assert size.raw == f"{number} {unit}"


def test_sizes_for_a_person() -> None:
    assert [show_mib(x) for x in (9400.32, 317.44, 1.12, 0.0)] == ["9.18 GiB", "317 MiB", "1.12 MiB", "0 MiB"]
