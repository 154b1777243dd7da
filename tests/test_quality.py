"""Do the tools that hold style, types and import rules find nothing in the whole checkout?"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.files import checkout_root

ROOT = checkout_root()
pytestmark = pytest.mark.skipif(
    ROOT is None, reason="style, types and import rules are checked in a checkout"
)


def run(*command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder or ROOT,
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
        timeout=3000,
    )


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=" ".join)
def test_style(command: tuple[str, ...]) -> None:
    done = run("-m", "ruff", *command, ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_types() -> None:
    done = run("-m", "mypy")
    assert done.returncode == 0, done.stdout + done.stderr


def test_floors() -> None:
    done = run("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_floors_are_really_held(tmp_path: Path) -> None:
    """A lower floor that imports an upper one, or a picture library, is found."""
    assert ROOT is not None
    shutil.copytree(
        ROOT / "course_lib", tmp_path / "course_lib", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    breaches = "\nimport course_lib.teach\nimport matplotlib\n"
    with (tmp_path / "course_lib" / "units.py").open("a", encoding="utf-8") as file:
        file.write(breaches)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r});"
        "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    )
    done = run("-c", program, folder=tmp_path)
    assert done.returncode == 1
    assert "course_lib.units -> course_lib.teach" in done.stdout
    assert "course_lib.units -> matplotlib" in done.stdout
