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
def test_every_number_has_its_source_and_its_date(path: Path) -> None:
    """In its row; or, where all rows share it, on the page about the data."""
    shared = _source_on_the_page(path.name)
    rows = _rows(path)
    names_source = any(name.endswith("source") for name in rows[0])
    names_date = any(name in {"date", "source_date"} for name in rows[0])
    assert names_source or len(shared) > 40, (
        f"{path.name}: neither its rows nor the page say where it is from"
    )
    assert names_date or _DAY.search(shared), f"{path.name}: neither its rows nor the page say of when it is"
    for number, row in enumerate(rows, start=2):
        where = f"{path.name}, line {number}"
        assert None not in row, f"{where}: more cells than columns"
        assert None not in row.values(), f"{where}: fewer cells than columns"
        if not any(_NUMBER.fullmatch(value) for value in row.values()):
            continue
        sources = [value for name, value in row.items() if name.endswith("source")]
        assert not names_source or any(re.match(r"https://[\w.-]+\.\w+/", one) for one in sources), where
        dates = [value for name, value in row.items() if name in {"date", "source_date"}]
        assert all(_DAY.fullmatch(day) for day in dates), where


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_no_row_stands_twice(path: Path) -> None:
    rows = [tuple(row.values()) for row in _rows(path)]
    assert len(set(rows)) == len(rows)


def test_the_page_about_the_data_tells_of_every_file_and_folder() -> None:
    for path in sorted(DATA.iterdir()):
        name = path.name + ("/" if path.is_dir() else "")
        if name != "README.md":
            source = _source_on_the_page(name)
            assert path.suffix == ".csv" or _DAY.search(source), f"the page does not say of when {name} is"


def _source_on_the_page(name: str) -> str:
    """What data/README.md says under "Source" of a file or folder."""
    page = (DATA / "README.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", page, flags=re.MULTILINE)
    told = [part for part in parts if part.split()[0] == name]
    assert len(told) == 1, f"data/README.md tells of {name} {len(told)} times"
    source = re.search(r"- \*\*Source:\*\*(.*?)(?=\n- \*\*|\Z)", told[0], flags=re.DOTALL)
    assert source, f"data/README.md does not say where {name} is from"
    return source[1]
