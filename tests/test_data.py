"""Every number in data/ has a source and a date."""

import csv
import re
from pathlib import Path

import pytest

from course_lib.files import data_path

DATA = data_path("README.md").parent
TABLES = sorted(DATA.glob("*.csv"))
_DAY = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?)?")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_there_are_tables() -> None:
    assert {path.name for path in TABLES} >= {"accelerators.csv", "prices.csv", "electricity.csv"}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_every_row_with_a_number_names_its_source_and_its_date(path: Path) -> None:
    for number, row in enumerate(_rows(path), start=2):
        where = f"{path.name}, line {number}"
        assert None not in row, f"{where}: more cells than columns"
        assert None not in row.values(), f"{where}: fewer cells than columns"
        if not any(_NUMBER.fullmatch(value) for value in row.values()):
            continue
        sources = [value for name, value in row.items() if name.endswith("source")]
        assert any(re.match(r"https://[\w.-]+\.\w+/", source) for source in sources), where
        dates = [value for name, value in row.items() if name in {"date", "source_date"}]
        assert dates, f"{where}: no column for a date"
        assert all(_DAY.fullmatch(day) for day in dates), where


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_no_row_stands_twice(path: Path) -> None:
    rows = [tuple(row.values()) for row in _rows(path)]
    assert len(set(rows)) == len(rows)


def test_the_page_about_the_data_tells_the_source_and_the_year_of_every_file_and_folder() -> None:
    page = (DATA / "README.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", page, flags=re.MULTILINE)
    told = {part.split()[0]: part for part in parts}
    for path in sorted(DATA.iterdir()):
        name = path.name + ("/" if path.is_dir() else "")
        if name == "README.md":
            continue
        assert name in told, f"data/README.md does not tell of {name}"
        source = re.search(r"- \*\*Source:\*\*.*?(?=\n- \*\*|\Z)", told[name], flags=re.DOTALL)
        assert source, f"data/README.md does not say where {name} is from"
        if path.suffix != ".csv":  # the rows of a table say their own
            assert _DAY.search(source[0]), f"data/README.md does not say of when {name} is"
