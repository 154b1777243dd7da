"""``course links`` as a publisher types it, in a checkout of their own with one small lesson."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import course_lib
from course_lib.teach.links import BADGES_END, BADGES_START

LESSON = """\
# %% [markdown]
# # Feed the card

# %% tags=["parameters"]
import os

quick = os.environ.get("COURSE_QUICK", "0") == "1"
"""


@pytest.fixture
def checkout(tmp_path):
    package = Path(course_lib.__file__).parent
    shutil.copytree(package, tmp_path / "course_lib", ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    (tmp_path / "README.md").write_text(f"# Course\n{BADGES_START}\n{BADGES_END}\n", encoding="utf-8")
    source = tmp_path / "notebooks" / "source"
    source.mkdir(parents=True)
    (source / "04_loading.py").write_text(LESSON, encoding="utf-8")
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


def test_a_publisher_writes_the_links_and_the_check_agrees(checkout):
    before = course(checkout, "links", "--check")
    assert before.returncode == 1
    assert "There are no badges" in before.stdout

    written = course(checkout, "links", "--repo", "ada/course", "--branch", "spring")
    assert (written.returncode, written.stderr) == (0, "")
    assert written.stdout.startswith("The links lead to ada/course, branch spring.\n")
    assert f"{checkout / 'notebooks' / 'hosted' / '04_loading.ipynb'}: written" in written.stdout

    assert course(checkout, "links", "--check").returncode == 0
    elsewhere = course(checkout, "links", "--check", "--repo", "ada/course")
    assert elsewhere.returncode == 1
    assert "branch spring, not to ada/course, branch main" in elsewhere.stdout

    again = course(checkout, "links", "--repo", "ada/course", "--branch", "spring")
    assert again.stdout == "The links lead to ada/course, branch spring.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Say which repository: course links --repo OWNER/NAME"),
        (("--branch", "main"), "Say which repository"),
        (("--check", "--branch", "main"), "Say which repository"),
        (("--repo", "https://github.com/ada/course"), "Did you mean ada/course?"),
        (("--repo", "ada/course", "--branch", "a/b"), "has a slash"),
        (("--repo", "ada/course", "--branch", ""), "cannot be used as a branch"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(checkout, arguments, words):
    answer = course(checkout, "links", *arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert words in answer.stderr
    assert not (checkout / "notebooks" / "links.json").exists()
