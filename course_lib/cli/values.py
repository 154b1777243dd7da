"""What may stand after an option? Types for numbers and folders that refuse what click's own let pass."""

import math
from pathlib import Path
from typing import Any

import click


class Finite(click.FloatRange):
    """A number in a range. click's FloatRange takes nan, since no comparison with it is true."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; the command ends with one sentence where it is none."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Folder(click.Path):
    """A folder's path. An empty one is mostly a shell variable that was not set, and not the folder here."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; the command ends with one sentence for an empty one and for a file."""
        if value == "":
            self.fail("the name of the folder is empty; write . for the folder you stand in.", param, ctx)
        path = Path(str(super().convert(value, param, ctx)))
        if path.is_file():
            self.fail(f"{path} is a file; give a folder.", param, ctx)
        return path
