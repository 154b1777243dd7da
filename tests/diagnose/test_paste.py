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


def test_typographic_quotes_become_plain() -> None:
    assert Paste.of("Can\u2019t pickle \u201cx\u201d").text == 'Can\'t pickle "x"'


MARGINS = {
    "torch": "[rank3]: {}",
    "torchrun --tee": "[default0]:{}",
    "srun --label": " 0: {}",
    "ray": "(TrainWorker pid=2711, ip=10.0.0.3) {}",
    "kubectl": "2026-03-01T10:00:00.123456Z {}",
    "docker compose": "trainer-1  | {}",
    "a quotation": "> {}",
    "rich": "\u2502 {}      \u2502",
    "two of them": "> [rank0]: {}",
}


@pytest.mark.parametrize("margin", MARGINS.values(), ids=MARGINS.keys())
def test_what_stands_before_each_line_does_not_cut_a_sentence(margin: str) -> None:
    paste = Paste.of("\n".join(margin.format(part) for part in ("Watchdog caught", "a time", "limit")))
    assert paste.squeezed == "Watchdogcaughtatimelimit"
    assert [paste.text[paste.offset(paste.squeezed.index(word))] for word in ("caught", "limit")] == [
        "c",
        "l",
    ]
    assert paste.line_of(paste.offset(len(paste.squeezed) - 1)) == 3


def test_what_belongs_to_a_line_stays() -> None:
    for text in ("12:30 started", "| 0  RTX 3090", "[rank0] is late", "see: http://x", "a | b"):
        words = text.removeprefix("| ")
        assert Paste.of(text).squeezed == "".join(words.split())


def test_too_long_a_text_is_refused() -> None:
    with pytest.raises(CourseError, match="cut it down"):
        Paste.of("x" * (MAX_CHARACTERS + 1))


@given(st.text(alphabet="ab \t\n|>:1[", max_size=200))
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
