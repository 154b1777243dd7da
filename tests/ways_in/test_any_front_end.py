"""Can a lesson be read in VS Code and in the classic Notebook, and without any widget at all?

No step needs JupyterLab: what a lesson shows is plain output, and widgets are those of ipywidgets, which all
front ends draw. Each lab is also called without its sliders.
"""

import ast
import re
import sys

import pytest

from course_lib.files import source_dir
from course_lib.teach.source import read_source

LESSONS = sorted(source_dir().glob("*.py"))


def code_cells(path):
    lesson = read_source(path)
    command = re.compile(r"^[!%](?:.*\\\n)*.*$", re.M)  # it may go on after a backslash
    texts = (command.sub("pass", cell.text) for cell in lesson.cells if cell.kind == "code")
    return [ast.parse(text) for text in texts]


def lab_names(trees):
    """What the cells call the modules of course_lib.teach.labs."""
    return {
        alias.asname or alias.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "course_lib.teach.labs"
        for alias in node.names
    }


def calls(tree, names):
    """The functions of these modules that a cell calls."""
    return [
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in names
    ]


def shows_something(tree):
    """Whether a cell ends with a value, which every front end displays, or with a call that draws."""
    return bool(tree.body) and isinstance(tree.body[-1], ast.Expr)


def labs_without_a_plain_call(trees):
    """The numbers of the code cells that open a lab before it was called, and shown, without sliders."""
    names, plain, lacking = lab_names(trees), False, []
    for number, tree in enumerate(trees):
        called = calls(tree, names)
        if "lab" in called and not plain:
            lacking.append(number)
        plain = plain or (bool(set(called) - {"lab"}) and shows_something(tree))
    return lacking


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_lab_is_called_plainly_first(path):
    trees = code_cells(path)
    assert labs_without_a_plain_call(trees) == []


@pytest.mark.parametrize(
    ("cells", "lacking"),
    [
        (["from course_lib.teach.labs import start as lab", "lab.lab()"], [1]),
        (["from course_lib.teach.labs import start as lab", "lab.lab()", "lab.measure()"], [1]),
        (["from course_lib.teach.labs import start as lab\nx = lab.measure()", "lab.lab()"], [1]),
        (["from course_lib.teach.labs import start as lab\nx = lab.measure()\nx", "lab.lab()"], []),
        (["from course_lib.teach.labs import start", "start.measure()", "start.lab()"], []),
    ],
)
def test_a_lab_without_its_plain_call_is_found(cells, lacking):
    assert labs_without_a_plain_call([ast.parse(cell) for cell in cells]) == lacking


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_imports_nothing_of_one_front_end(path):
    imported = {name for tree in code_cells(path) for name in imports(tree)}
    assert imported.isdisjoint({"jupyterlab", "notebook", "google", "kaggle_secrets"})
    own = {
        "course_lib",
        "torch",
        "torchvision",
        "numpy",
        "matplotlib",
        "tqdm",
        "PIL",
        "IPython",
        "ipywidgets",
        "psutil",
    }
    assert imported <= own | set(sys.stdlib_module_names)


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_jupyterlab_is_imported_by_the_command_that_opens_it_alone(root):
    modules = {
        path.name
        for path in (root / "course_lib").rglob("*.py")
        if {"jupyterlab", "notebook"} & set(imports(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert modules == {"server.py"}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_links_in_a_lesson_lead_to_lessons_or_to_the_web(path):
    """A learner's copy stands in a folder with the other lessons, and with nothing else of the repository."""
    text = "\n".join(cell.text for cell in read_source(path).cells if cell.kind == "markdown")
    known = {f"{lesson.stem}.ipynb" for lesson in LESSONS}
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    assert all(t in known or t == "" or re.match(r"https?://", t) for t in targets), targets
