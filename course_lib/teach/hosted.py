"""How does a lesson look on Colab and Kaggle? The hosted edition, derived from the learner's.

It differs in two things. A set-up cell installs the course, since nothing is there but PyTorch and a
notebook without its repository. And its links to other lessons lead to their hosted editions.
"""

from __future__ import annotations

import hashlib
import re
from copy import deepcopy
from typing import Any

from course_lib.teach.links import Repository, colab_address, kaggle_address, launch_line

SOURCE_VARIABLE = "COURSE_SOURCE"
"""Names another thing for the set-up cell to install: a wheel, a folder, or an address for pip."""

_WORDS = """\
**On Google Colab or Kaggle.** Run the next cell first: it installs the course and leaves PyTorch as it is. On
Kaggle, switch *Internet* on before, in the settings beside this page. What you make here is gone when the
session ends, so save a copy of this page to keep your work."""

# It runs where there is no course_lib yet, so it holds only what brings it; the rest is in hosted_install.
_SETUP = """\
# Installs the course where it is missing. All that is installed already, PyTorch first, stays as it is.
import importlib.util, os, subprocess, sys

if importlib.util.find_spec("course_lib") is None:
    source = os.environ.get("{variable}", "{archive}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", source]
    done = subprocess.run(pip, capture_output=True, encoding="utf-8", errors="replace")
    importlib.invalidate_caches()
    if done.returncode:
        class NotInstalled(Exception):
            def _render_traceback_(self): return [str(self)]
        errors = (line for line in done.stderr.splitlines() if line.startswith("ERROR"))
        raise NotInstalled(
            f"The course could not be installed from {{source}} ({{next(errors, 'no reason given')}}); "
            "see that the internet is switched on, then run this cell again."
        )

from course_lib.teach.hosted_install import complete

print(complete())"""

_LESSON_LINK = re.compile(r"\[([^\]\n]+)\]\((\d\d_[a-z][a-z0-9]*)\.ipynb(?:#[^)\s]*)?\)")


def add_launch_links(notebook: Any, lesson: str, repository: Repository) -> None:
    """Put the line that opens a lesson elsewhere into its first cell, in place."""
    notebook.cells[0].source += f"\n\n{launch_line(repository, lesson)}"


def hosted_edition(learner: Any, repository: Repository) -> Any:
    """The hosted edition of a lesson, from the learner's edition without launch links (an nbformat notebook).

    The title comes first, then the set-up, then the lesson. The same lesson and repository give the same
    notebook.
    """
    from nbformat import v4

    nodes: Any = v4  # its functions carry no types
    notebook = deepcopy(learner)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _with_hosted_links(cell.source, repository)
    code = setup_code(repository)
    setup = (
        nodes.new_markdown_cell(_WORDS, id=_cell_id(_WORDS)),
        nodes.new_code_cell(code, metadata={"tags": ["setup"]}, id=_cell_id(code)),
    )
    notebook.cells[1:1] = setup
    return notebook


def setup_code(repository: Repository) -> str:
    """The code of the set-up cell."""
    return _SETUP.format(variable=SOURCE_VARIABLE, archive=repository.archive)


def _with_hosted_links(markdown: str, repository: Repository) -> str:
    """Both places are named: the page cannot know on which of them it will be read."""

    def hosted(link: re.Match[str]) -> str:
        words, lesson = link.groups()
        kaggle = kaggle_address(repository, lesson)
        return f"[{words}]({colab_address(repository, lesson)}) (on [Kaggle]({kaggle}))"

    return _LESSON_LINK.sub(hosted, markdown)


def _cell_id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
