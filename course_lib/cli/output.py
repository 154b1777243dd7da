"""How does a command answer a program rather than a person? One ``--json`` option, one way to print it."""

import dataclasses
import json
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


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
