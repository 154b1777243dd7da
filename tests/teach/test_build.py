import os
import subprocess
import sys
from collections import Counter

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from course_lib.errors import CourseError
from course_lib.files import checkout_root
from course_lib.teach.build import build_all, derive, exercise_ids, notebook_text, solution_of
from course_lib.teach.exercises.registry import exercises_of
from course_lib.teach.solutions import END, START
from course_lib.teach.source import read_source

LESSON = """\
# %% [markdown]
# # Feed the card · é

# %% [markdown] lang="xx"
# # Fodd kortan

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))

# %% [markdown]
# Not translated.

# %% tags=["exercise"]
# Exercise 4.1 · 5 minutes
def best_speedup(compute_s: float, wait_s: float) -> float:
    # solution
    return (compute_s + wait_s) / compute_s
    # end


check("loading.best_speedup", best_speedup)

# %% tags=["exercise"] jupyter={"source_hidden": true}
# solution
workers = 4
# end

# %% tags=["exercise"]
check("loading.workers", workers)
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "notebooks" / "source").mkdir(parents=True)
    write(tmp_path, "04_loading", LESSON)
    write(tmp_path, "00_start", LESSON.replace("loading.", "start."))
    return tmp_path


@pytest.fixture
def lesson(root):
    return read_source(root / "notebooks" / "source" / "04_loading.py")


def write(root, name, text):
    (root / "notebooks" / "source" / f"{name}.py").write_text(text, encoding="utf-8")


def files(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("edition", ["learner", "solved"])
def test_a_notebook_is_valid_and_untouched(lesson, edition):
    text = notebook_text(derive(lesson, edition))
    notebook = nbformat.reads(text, as_version=4)

    nbformat.validate(notebook, relax_add_props=False)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata == {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert [cell.metadata for cell in code] == [
        {"tags": ["parameters"]},
        {"tags": ["exercise"]},
        {"tags": ["exercise"], "jupyter": {"source_hidden": True}},
        {"tags": ["exercise"]},
    ]
    assert text.endswith("\n}\n")
    assert "é" in text


def run(notebook):
    """What the cells hand to check, by exercise."""
    answers = {}
    scope = {"check": answers.__setitem__}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(cell.source, scope)
    return answers


def test_the_learner_finds_dots_that_break_no_cell(lesson):
    answers = run(derive(lesson))

    assert answers["loading.best_speedup"](1.0, 3.0) is ...
    assert answers["loading.workers"] is ...
    assert "wait_s) / compute_s" not in notebook_text(derive(lesson))


def test_the_solved_edition_answers(lesson):
    answers = run(derive(lesson, "solved"))

    assert answers["loading.best_speedup"](1.0, 3.0) == 4.0
    assert answers["loading.workers"] == 4
    lines = [line.strip() for cell in derive(lesson, "solved").cells for line in cell.source.split("\n")]
    assert START not in lines
    assert END not in lines


def test_papermill_sets_the_parameters(lesson, tmp_path):
    path = tmp_path / "04_loading.ipynb"
    path.write_text(notebook_text(derive(lesson)), encoding="utf-8")
    notebook = parameterize_notebook(load_notebook_node(str(path)), {"quick": True})

    after = notebook.cells[
        [cell.metadata.get("tags") for cell in notebook.cells].index(["injected-parameters"])
    ]
    assert "quick = True" in after.source


def test_quick_comes_from_the_environment(lesson, monkeypatch):
    for value, expected in (("1", True), ("0", False), (None, False)):
        monkeypatch.delenv("COURSE_QUICK", raising=False)
        if value is not None:
            monkeypatch.setenv("COURSE_QUICK", value)
        scope: dict[str, object] = {}
        exec(derive(lesson).cells[1].source, scope)
        assert scope["quick"] is expected


def test_a_second_language_replaces_what_it_translates(lesson):
    english, other = derive(lesson), derive(lesson, language="xx")

    assert [cell.source for cell in english.cells][:3:2] == ["# Feed the card · é", "Not translated."]
    assert [cell.source for cell in other.cells][:3:2] == ["# Fodd kortan", "Not translated."]
    assert [cell.id for cell in english.cells] == [cell.id for cell in other.cells]
    assert [cell.source for cell in english.cells][3:] == [cell.source for cell in other.cells][3:]


def test_unknown_editions_and_languages_are_told(lesson):
    with pytest.raises(CourseError, match="04_loading has no text in 'zh'; it has en, xx"):
        derive(lesson, language="zh")
    with pytest.raises(CourseError, match="no edition 'teacher'"):
        derive(lesson, "teacher")  # type: ignore[arg-type]


words = st.text(st.sampled_from("abc é\n"), min_size=1).map(str.strip).filter(bool)


def lesson_of(folder, texts):
    cells = [f"# %%\nvalue = {text!r}\n" for text in texts]
    path = folder / "04_loading.py"
    path.write_text("\n".join([LESSON, *cells]), encoding="utf-8")
    return read_source(path)


@settings(max_examples=60)
@given(
    texts=st.lists(words, max_size=6, unique=True),
    position=st.integers(0, 5),
    new=words,
    inserts=st.booleans(),
)
def test_an_edit_changes_the_id_of_its_own_cell_only(tmp_path_factory, texts, position, new, inserts):
    folder = tmp_path_factory.mktemp("lesson")
    before = derive(lesson_of(folder, texts))
    position = min(position, len(texts))
    edited = [*texts[:position], new + "!", *texts[position + (0 if inserts else 1) :]]
    after = derive(lesson_of(folder, edited))

    old = {cell.source: cell.id for cell in before.cells}
    kept = [cell for cell in after.cells if cell.source in old]
    assert len(kept) == len(after.cells) - 1
    assert all(cell.id == old[cell.source] for cell in kept)
    assert max(Counter(cell.id for cell in after.cells).values()) == 1


@settings(max_examples=30)
@given(texts=st.lists(st.sampled_from(["same", "other"]), max_size=8))
def test_equal_cells_have_ids_of_their_own(tmp_path_factory, texts):
    notebook = derive(lesson_of(tmp_path_factory.mktemp("lesson"), texts))

    assert max(Counter(cell.id for cell in notebook.cells).values()) == 1
    assert notebook_text(notebook) == notebook_text(
        derive(lesson_of(tmp_path_factory.mktemp("lesson"), texts))
    )


def test_every_process_derives_the_same_bytes(root):
    program = (
        "import sys; from pathlib import Path; from course_lib.teach.build import build_all;"
        "print(build_all(Path(sys.argv[1])))"
    )
    found = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONUTF8": "0", "LC_ALL": "C"}
        subprocess.run([sys.executable, "-c", program, str(root)], check=True, env=environment)
        found.append({path: content for path, content in files(root).items() if path.suffix == ".ipynb"})
        for path in found[-1]:
            path.unlink()

    assert len(found[0]) == 4
    assert found[0] == found[1]
    assert all(b"\r" not in content for content in found[0].values())


def test_a_build_writes_what_differs_and_no_more(root):
    report = build_all(root)
    built = root / "notebooks" / "04_loading.ipynb"
    solved = root / "build" / "solved" / "04_loading.ipynb"

    assert sorted(file.state for file in report.files) == ["missing"] * 4
    assert f"{built}: written" in str(report)
    assert "wait_s) / compute_s" in solved.read_text(encoding="utf-8")
    built.write_bytes(built.read_bytes().replace(b"\n", b"\r\n"))
    solved_time = solved.stat().st_mtime_ns
    again = build_all(root)
    assert [(file.path, file.state) for file in again.differing] == [(built, "different")]
    assert solved.stat().st_mtime_ns == solved_time
    assert build_all(root).differing == ()
    assert str(build_all(root)) == "The notebooks are as their sources say (4 looked at)."


def test_a_check_names_what_differs_and_writes_nothing(root):
    build_all(root)
    assert build_all(root, check=True).differing == ()
    write(root, "04_loading", LESSON.replace("Not translated.", "Changed."))
    (root / "notebooks" / "00_start.ipynb").unlink()
    (root / "notebooks" / "old notes.ipynb").write_text("{}", encoding="utf-8")
    before = files(root)

    report = build_all(root, check=True)

    assert files(root) == before
    assert {file.path.name: file.state for file in report.differing} == {
        "04_loading.ipynb": "different",
        "00_start.ipynb": "missing",
        "old notes.ipynb": "without a source",
    }
    assert "04_loading.ipynb: differs from its source" in str(report)
    assert "00_start.ipynb: is missing" in str(report)
    assert "course build" in str(report)
    assert [file.path.name for file in build_all(root).differing if file.state == "without a source"] == [
        "old notes.ipynb"
    ]
    assert (root / "notebooks" / "old notes.ipynb").exists()


def test_one_lesson_can_be_built_alone(root):
    build_all(root, ["loading"])

    assert [path.name for path in (root / "notebooks").glob("*.ipynb")] == ["04_loading.ipynb"]
    with pytest.raises(CourseError, match="Did you mean 04_loading"):
        build_all(root, ["lodaing"])


def test_a_mistake_in_one_lesson_writes_none(root):
    write(root, "04_loading", LESSON.replace("    # end\n", ""))
    before = files(root)

    with pytest.raises(CourseError, match=r"04_loading\.py, cell 5"):
        build_all(root)
    assert files(root) == before


@pytest.mark.parametrize(("name", "shared"), [("04_oom", "4"), ("05_loading", "'loading'")])
def test_lessons_share_neither_number_nor_word(root, name, shared):
    write(root, name, LESSON)
    with pytest.raises(CourseError, match=f"share {shared}"):
        build_all(root)


def test_no_sources_is_told(root):
    for path in (root / "notebooks" / "source").iterdir():
        path.unlink()
    with pytest.raises(CourseError, match="no lesson sources"):
        build_all(root)


def test_solutions_come_from_the_source(root):
    source = root / "notebooks" / "source"

    assert exercise_ids("04_loading", source) == ("loading.best_speedup", "loading.workers")
    assert solution_of("loading.best_speedup", source) == (
        "# Exercise 4.1 · 5 minutes\n"
        "def best_speedup(compute_s: float, wait_s: float) -> float:\n"
        "    return (compute_s + wait_s) / compute_s\n\n\n"
        'check("loading.best_speedup", best_speedup)'
    )
    assert solution_of("start.workers", source) == 'workers = 4\n\ncheck("start.workers", workers)'


@pytest.mark.parametrize(
    ("exercise_id", "advice"),
    [
        ("loading.speedup", "its exercises are loading.best_speedup, loading.workers"),
        ("oom.fit", "begins with a lesson's word: start, loading"),
        ("", "begins with a lesson's word"),
    ],
)
def test_an_unknown_exercise_is_answered_with_those_that_exist(root, exercise_id, advice):
    with pytest.raises(CourseError, match=advice):
        solution_of(exercise_id, root / "notebooks" / "source")


def test_the_notebooks_of_the_course_are_as_their_sources_say():
    root = checkout_root()
    if root is None or not list((root / "notebooks" / "source").glob("*.py")):
        pytest.skip("no lesson sources beside this package")
    report = build_all(root, check=True)
    assert report.differing == (), str(report)


def test_the_exercises_of_the_lessons_are_those_that_can_be_checked():
    root = checkout_root()
    if root is None:
        pytest.skip("the sources are looked at in a checkout")
    for path in sorted((root / "notebooks" / "source").glob("*.py")):
        lesson = read_source(path)
        assert tuple(lesson.exercises) == tuple(exercise.id for exercise in exercises_of(lesson.topic))
