import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import course_lib
from course_lib.teach.build import derive, notebook_text
from course_lib.teach.hosted import add_launch_links, hosted_edition, setup_code
from course_lib.teach.links import Repository, colab_address, kaggle_address, launch_addresses
from course_lib.teach.source import read_source

LESSON = """\
# %% [markdown]
# # Feed the card
#
# Before: [the start](00_start.ipynb#a-part), and [a page](https://example.org/04_loading.ipynb).

# %% tags=["parameters"]
import os

quick = os.environ.get("COURSE_QUICK", "0") == "1"

# %% [markdown]
# Next: [06 · Out of memory](06_oom.ipynb) or [03](03_precision.ipynb).
"""
REPOSITORY = Repository("ada/course", "main")
# What is printed by IPython for a cell that raises, with course_lib out of sight.
SHOWN = """\
import sys
from pathlib import Path
sys.path[:] = [folder for folder in sys.path if not (Path(folder) / "course_lib").is_dir()]
for finder in [f for f in sys.meta_path if "editable" in repr(f).lower()]: sys.meta_path.remove(finder)
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
result = shell.run_cell(Path("cell.py").read_text(encoding="utf-8"))
print("RAISED", type(result.error_in_exec).__name__)
"""


@pytest.fixture
def learner(tmp_path):
    path = tmp_path / "04_loading.py"
    path.write_text(LESSON, encoding="utf-8")
    return derive(read_source(path))


def test_the_hosted_edition_is_the_learners_with_a_set_up_after_the_title(learner):
    before = notebook_text(learner)
    hosted = hosted_edition(learner, REPOSITORY)
    assert notebook_text(learner) == before
    nbformat.validate(nbformat.reads(notebook_text(hosted), as_version=4))
    assert hosted.cells[0].source.startswith("# Feed the card")
    assert hosted.cells[1].cell_type == "markdown"
    code = [cell for cell in hosted.cells if cell.cell_type == "code"]
    assert code[0].source == setup_code(REPOSITORY)
    assert [cell.source for cell in code[1:]] == [c.source for c in learner.cells if c.cell_type == "code"]
    rest = [cell.id for cell in hosted.cells if cell.id not in (hosted.cells[1].id, hosted.cells[2].id)]
    assert rest == [cell.id for cell in learner.cells]


def test_the_set_up_appears_in_no_other_edition(learner):
    assert "pip" not in notebook_text(learner)


def test_links_to_lessons_lead_to_both_hosted_places_and_others_stay(learner):
    hosted = hosted_edition(learner, REPOSITORY)
    text = "\n".join(cell.source for cell in hosted.cells if cell.cell_type == "markdown")
    assert sorted(launch_addresses(text)) == sorted(
        address(REPOSITORY, lesson)
        for lesson in ("00_start", "03_precision", "06_oom")
        for address in (colab_address, kaggle_address)
    )
    assert "[06 · Out of memory](https://colab" in text
    assert "(https://example.org/04_loading.ipynb)" in text
    assert not re.search(r"\]\(\d\d_", text)


def test_the_same_lesson_and_repository_give_the_same_bytes(learner):
    first, second = (notebook_text(hosted_edition(learner, REPOSITORY)) for _ in range(2))
    assert first == second
    assert first != notebook_text(hosted_edition(learner, Repository("eve/fork")))


def test_launch_links_are_added_to_the_title_only(learner):
    ids = [cell.id for cell in learner.cells]
    add_launch_links(learner, "04_loading", REPOSITORY)
    assert [cell.id for cell in learner.cells] == ids
    assert [len(launch_addresses(cell.source)) for cell in learner.cells] == [3, 0, 0]


def test_the_set_up_is_code_and_names_the_branch_and_the_way_round_it():
    code = setup_code(Repository("ada/course", "spring"))
    ast.parse(code)
    assert "https://github.com/ada/course/archive/refs/heads/spring.zip" in code
    assert 'os.environ.get("COURSE_SOURCE"' in code
    assert "--no-deps" in code


def test_a_set_up_that_fails_says_so_in_one_sentence(tmp_path):
    """Runs the real cell, pip and all, where the thing to install is not there."""
    missing = tmp_path / "nowhere" / "course-1.0-py3-none-any.whl"
    code = setup_code(REPOSITORY).replace("os.environ.get(", f"(lambda *_: {str(missing)!r})(")
    (tmp_path / "cell.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SHOWN],
        cwd=tmp_path, capture_output=True, check=True, encoding="utf-8", errors="replace", timeout=120,
    )  # fmt: skip
    *said, raised = done.stdout.strip().splitlines()
    assert raised == "RAISED NotInstalled"
    (sentence,) = said
    assert sentence.startswith(f"The course could not be installed from {missing} (ERROR: ")
    assert sentence.endswith("then run this cell again.")


def test_the_test_above_hides_a_package_that_is_here():
    assert Path(course_lib.__file__).is_file()
