"""How does a command answer? A program by one ``--json`` option, a person in lines that fit the terminal."""

import dataclasses
import json
import re
import shutil
import textwrap
from collections.abc import Callable
from typing import Any

import click

json_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="Print the whole answer as JSON, for programs."
)


def print_json(data: object) -> None:
    """Print ``data`` as JSON, fields in their own order; dataclasses become objects, the rest text.

    Raises ValueError for NaN and infinity, which JSON does not have: a command says "not known" with null.
    """
    click.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False, default=_plain))


def text_width() -> int:
    """Characters in a line of prose: the terminal's (or COLUMNS), 100 at most; 100 where there is none."""
    return max(20, min(100, shutil.get_terminal_size((100, 24)).columns))


def fitted(text: str) -> str:
    """The text with its long lines of prose wrapped to `text_width`; a table's rows stay as they are.

    A row is known by its columns: two spaces or more between words.
    """
    width = text_width()
    return "\n".join(
        line if len(line) <= width or re.search(r"\S {2,}\S", line) else _wrapped(line, width)
        for line in text.split("\n")
    )


def _wrapped(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip(" "))]
    hanging = indent + "  " if line.lstrip().startswith(("- ", "Note: ")) else indent
    return textwrap.fill(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
