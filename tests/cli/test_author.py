"""``course build`` in a checkout of its own: a copy of the package beside two small lessons."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import course_lib
from course_lib.cli.author import build
from course_lib.teach.lessons import find_lesson

LESSON = """\
# %% [markdown]
# # Feed the card

# %% tags=["parameters"]
import os

quick = os.environ.get("COURSE_QUICK", "0") == "1"

# %% tags=["exercise"]
# solution
workers = 4
# end
check("loading.workers", workers)
"""


@pytest.fixture
def checkout(tmp_path):
    package = Path(course_lib.__file__).parent
    shutil.copytree(package, tmp_path / "course_lib", ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    source = tmp_path / "notebooks" / "source"
    source.mkdir(parents=True)
    (source / "04_loading.py").write_text(LESSON, encoding="utf-8")
    (source / "06_oom.py").write_text(LESSON.replace("loading.", "oom."), encoding="utf-8")
    return tmp_path


def course(checkout, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "course_lib", *arguments],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_build_prints_what_it_wrote_and_a_check_then_passes(checkout):
    written = course(checkout, "build", "loading")
    assert (written.returncode, written.stderr) == (0, "")
    assert written.stdout.splitlines() == [
        f"{checkout / 'notebooks' / '04_loading.ipynb'}: written",
        f"{checkout / 'build' / 'solved' / '04_loading.ipynb'}: written",
    ]

    missing = course(checkout, "build", "--check")
    assert missing.returncode == 1
    assert f"{checkout / 'notebooks' / '06_oom.ipynb'}: is missing" in missing.stdout
    assert "04_loading" not in missing.stdout

    assert course(checkout, "build").returncode == 0
    assert course(checkout, "build", "--check").returncode == 0
    (checkout / "notebooks" / "source" / "06_oom.py").unlink()
    orphan = course(checkout, "build", "--check")
    assert orphan.returncode == 1
    assert "06_oom.ipynb: without a source" in orphan.stdout


def test_mistakes_are_one_sentence(checkout):
    unknown = course(checkout, "build", "lodaing")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == "course: There is no lesson 'lodaing'. Did you mean 04_loading?\n"

    source = checkout / "notebooks" / "source" / "06_oom.py"
    source.write_text(source.read_text(encoding="utf-8").replace("# end\n", ""), encoding="utf-8")
    mistake = course(checkout, "build")
    assert mistake.returncode == 2
    assert mistake.stderr.startswith("course: 06_oom.py, cell 3 (line 9): a '# solution' is never closed")
    assert not (checkout / "notebooks" / "04_loading.ipynb").exists()


def test_an_installed_package_has_nothing_to_build(checkout):
    (checkout / "pyproject.toml").unlink()
    answer = course(checkout, "build")
    assert answer.returncode == 2
    assert "in a checkout of the course" in answer.stderr


def test_the_example_in_the_help_names_a_lesson_that_exists():
    example = (build.epilog or "").removeprefix("Example: course build ")
    assert find_lesson(example).name == example
