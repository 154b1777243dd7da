"""Which cells has a row, and what stands in one? "N/A", "[Not Supported]", "ERR!" and "-" hold no figure."""

import csv
import re

_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,6})?")
_NOTHING = re.compile(
    r"N/?A|not (?:supported|available|found|active)|unknown|ERR!|insufficient|requested func|disabled|lost"
    r"|\?\?",
    re.IGNORECASE,
)


def number(cell: str | None) -> float | None:
    """The first number of the cell: "62W" gives 62, "[N/A]" gives None."""
    if cell is None or _NOTHING.search(cell):
        return None
    match = _NUMBER.search(cell)
    return float(match.group()) if match else None


def whole(cell: str | None) -> int | None:
    """The first number of the cell as an integer."""
    value = number(cell)
    return None if value is None else int(value)


def word(cell: str | None) -> str | None:
    """The cell's text; None where it says that there is nothing."""
    if cell is None:
        return None
    text = cell.strip().strip("[]").strip()
    return None if not text or text == "-" or _NOTHING.fullmatch(text) else text


def failed(cell: str | None) -> bool:
    """Whether the tool failed to read the cell, as against not having such a figure."""
    return cell is not None and re.search(r"ERR!|unknown error|is lost", cell, re.IGNORECASE) is not None


def split_row(line: str) -> list[str]:
    """The cells of a line of comma-separated values; none where it is no such line."""
    try:
        rows = list(csv.reader([line.strip()], skipinitialspace=True))
    except csv.Error:
        return []
    return [cell.strip() for cell in rows[0]] if rows else []
