"""Does the course install for real and pass its tests: with the oldest PyTorch, and with the newest of all?

Each trial makes an environment from nothing, fetches several GB and runs for minutes:

    python3 start.py test -m slow tests/ways_in/test_fresh_environment.py

- COURSE_TRIAL_PYTHON names the Python to make it with; this one by default.
- COURSE_TRIAL_FOLDER names a folder in which environments are kept and found again.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

TESTED = ("tests/train", "tests/models", "tests/teach", "tests/ways_in/test_start_method.py")
TRIALS = {"oldest": ("--constraint", ".github/oldest.txt"), "newest": ()}


def program(folder):
    return (
        folder / ("Scripts" if os.name == "nt" else "bin") / ("python.exe" if os.name == "nt" else "python")
    )


def variables():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COURSE_", "PYTHON"))}
    return kept | {"PYTHONUTF8": "1"}


def run(folder, python, *command, limit_s=3600):
    done = subprocess.run(
        [str(python), "-m", *map(str, command)],
        cwd=folder,
        env=variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        encoding="utf-8",
        errors="replace",
        timeout=limit_s,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout


@pytest.fixture
def python(request, tmp_path):
    """The Python of a fresh environment; the environment goes with the test unless a folder was named."""
    kept = os.environ.get("COURSE_TRIAL_FOLDER")
    folder = Path(kept).absolute() / request.param if kept else tmp_path / "venv"
    base = os.environ.get("COURSE_TRIAL_PYTHON")
    if not program(folder).exists():
        if base:
            subprocess.run([base, "-m", "venv", str(folder)], check=True, timeout=300)
        else:
            venv.create(folder, with_pip=True)
    yield program(folder)
    if not kept:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("python", "constraints"), TRIALS.items(), indirect=["python"], ids=list(TRIALS))
def test_the_course_installs_is_served_and_passes_its_tests(clone, wheel, served_lesson, python, constraints):
    run(clone, python, "pip", "uninstall", "--yes", "efficient-training-course")  # of an earlier trial
    run(clone, python, "pip", "install", *constraints, wheel)
    elsewhere = clone.parent / "elsewhere"
    elsewhere.mkdir()
    assert served_lesson(python, elsewhere, variables())["path"] == "00_start.ipynb"

    run(clone, python, "pip", "install", *constraints, "--editable", ".[test]")
    print(run(clone, python, "pip", "list", "--format=freeze"), file=sys.stderr)
    print(run(clone, python, "pytest", "-q", *TESTED), file=sys.stderr)
