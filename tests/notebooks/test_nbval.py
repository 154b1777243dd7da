"""Every lesson cell by cell with nbval, as a learner finds it: an unsolved exercise breaks no later cell.

The solved edition runs in ``test_solved.py``.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.files import source_dir
from course_lib.teach.build import derive, notebook_text
from course_lib.teach.lessons import Lesson, lessons
from course_lib.teach.source import read_source
from course_lib.teach.workspace import FOLDER_VARIABLE, KERNEL_DEFAULTS

CELL_LIMIT_S = 600  # against hanging: a busy machine needs minutes for what else takes seconds
PORTS = """
from jupyter_client.connect import LocalPortCache
from course_lib.train.ranks.meeting_port import meeting_port
LocalPortCache.find_available_port = lambda cache, address: meeting_port(address)
"""
"""As in tests/conftest.py: no other process is given the port of a kernel that starts."""


def run_nbval(notebook: Any, folder: Path, name: str = "00_lesson") -> tuple[int, str]:
    """Run a notebook with nbval in a learner's folder; the exit status and what pytest said."""
    (folder / f"{name}.ipynb").write_text(notebook_text(notebook), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # none of this project's settings
    (folder / "conftest.py").write_text(PORTS, encoding="utf-8")
    environment = {**KERNEL_DEFAULTS, **os.environ, FOLDER_VARIABLE: str(folder), "COURSE_QUICK": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--nbval-lax", f"--nbval-cell-timeout={CELL_LIMIT_S}", f"{name}.ipynb"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def code_cells(notebook: Any) -> int:
    return sum(cell.cell_type == "code" for cell in notebook.cells)


@pytest.mark.parametrize("lesson", lessons(), ids=str)
def test_every_cell_of_a_lesson_runs(lesson: Lesson, tmp_path: Path) -> None:
    notebook = derive(read_source(source_dir() / f"{lesson.name}.py"), "learner")
    status, said = run_nbval(notebook, tmp_path, lesson.name)
    assert status == 0, said
    assert f"{code_cells(notebook)} passed" in said


def test_a_cell_that_fails_would_be_seen(tmp_path: Path) -> None:
    cells = [new_code_cell("x = 1"), new_code_cell("1 / 0"), new_code_cell("x")]
    notebook = new_notebook(cells=cells)
    notebook.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    status, said = run_nbval(notebook, tmp_path)
    assert status == 1
    assert "ZeroDivisionError" in said
