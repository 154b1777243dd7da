"""Options take numbers that are numbers and folders that have a name."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from course_lib.cli.values import Finite, Folder


@click.command()
@click.option("--seconds", type=Finite(1, 60), default=5.0)
@click.option("--dir", "folder", type=Folder(), default=Path())
def command(seconds: float, folder: Path) -> None:
    """Print what arrived."""
    click.echo(f"{seconds!r} {folder}")


@pytest.mark.parametrize("wrong", ["nan", "inf", "-inf", "1e300", "0", "", "many"])
def test_what_is_no_number_in_the_range_is_refused(wrong: str) -> None:
    done = CliRunner().invoke(command, ["--seconds", wrong])
    assert done.exit_code == 2
    assert "--seconds" in done.output


def test_numbers_and_folders_arrive(tmp_path: Path) -> None:
    assert CliRunner().invoke(command, ["--seconds", "1e1"]).output == "10.0 .\n"
    assert CliRunner().invoke(command, ["--dir", str(tmp_path)]).output == f"5.0 {tmp_path}\n"
    assert CliRunner().invoke(command, ["--dir", str(tmp_path / "new")]).exit_code == 0


def test_an_empty_name_and_a_file_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for wrong, told in (("", "name of the folder is empty"), (str(tmp_path / "file"), "is a file")):
        done = CliRunner().invoke(command, ["--dir", wrong])
        assert done.exit_code == 2
        assert told in done.output
