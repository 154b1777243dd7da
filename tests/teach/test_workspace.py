import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.files import notebooks_dir
from course_lib.teach import workspace
from course_lib.teach.lessons import cell_source
from course_lib.teach.workspace import content_hash, default_folder, learner_folder, prepare

DAY = datetime.date(2026, 11, 30)


def notebook(*texts, **changes):
    cells = [
        {
            "cell_type": "code",
            "id": f"cell{i}",
            "metadata": {},
            "source": text,
            "outputs": [],
            "execution_count": None,
        }
        for i, text in enumerate(texts)
    ]
    cells.insert(0, {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# A lesson"})
    cells[-1] |= changes
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def run(content):
    """As Jupyter saves a notebook that was run: outputs, counts, metadata, sources as lists, new ids."""
    read = json.loads(content)
    for number, cell in enumerate(read["cells"]):
        cell["id"] = f"new{number}"
        cell["source"] = cell_source(cell).splitlines(keepends=True)
        cell["metadata"]["scrolled"] = True
        if cell["cell_type"] == "code":
            cell["execution_count"] = number
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["seen"]}]
    read["metadata"]["language_info"] = {"name": "python", "version": "3.13"}
    return json.dumps(read, indent=1).encode()


@pytest.fixture
def shipped(tmp_path):
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / "00_start.ipynb").write_bytes(notebook("first edition"))
    (folder / "04_loading.ipynb").write_bytes(notebook("load"))
    return folder


@pytest.fixture
def start(tmp_path, shipped):
    def prepare_again(*fresh):
        return prepare(tmp_path / "mine", fresh=fresh, shipped=shipped, today=DAY)

    return prepare_again


@pytest.fixture
def mine(tmp_path):
    return tmp_path / "mine"


def state_of(report, name="00_start"):
    (copy,) = (copy for copy in report.copies if copy.name == name)
    return copy.state


def test_a_first_start_copies_all_lessons(start, mine, shipped):
    report = start()

    assert [(copy.name, copy.state) for copy in report.copies] == [("00_start", "new"), ("04_loading", "new")]
    assert (mine / "00_start.ipynb").read_bytes() == (shipped / "00_start.ipynb").read_bytes()
    assert report.news == ()
    assert str(report) == f"{mine}: 2 lessons"
    assert [copy.state for copy in start().copies] == ["same", "same"]


def test_running_a_lesson_is_no_change_of_it(start, mine):
    start()
    ran = run((mine / "00_start.ipynb").read_bytes())
    (mine / "00_start.ipynb").write_bytes(ran)

    assert state_of(start()) == "same"
    assert (mine / "00_start.ipynb").read_bytes() == ran


@pytest.mark.parametrize("was_run", [False, True])
def test_an_untouched_copy_follows_a_newer_edition(start, mine, shipped, was_run):
    start()
    old = (mine / "00_start.ipynb").read_bytes()
    old = run(old) if was_run else old
    (mine / "00_start.ipynb").write_bytes(old)
    (shipped / "00_start.ipynb").write_bytes(notebook("second edition"))

    report = start()

    assert state_of(report) == "updated"
    assert (mine / "00_start.ipynb").read_bytes() == notebook("second edition")
    kept = [path.read_bytes() for path in (mine / ".course").glob("old/*")]
    assert kept == ([old] if was_run else [])
    if was_run:
        assert report.copies[0].kept_as == ".course/old/00_start-2026-11-30.ipynb"
        assert report.copies[0].kept_as in str(report)
    assert state_of(start()) == "same"


def test_run_copies_of_several_editions_are_all_kept(start, mine, shipped):
    start()
    for edition in ("second", "third"):
        (mine / "00_start.ipynb").write_bytes(run((mine / "00_start.ipynb").read_bytes()))
        (shipped / "00_start.ipynb").write_bytes(notebook(edition))
        start()

    assert sorted(path.name for path in (mine / ".course" / "old").iterdir()) == [
        "00_start-2026-11-30-2.ipynb",
        "00_start-2026-11-30.ipynb",
    ]


def test_what_the_learner_wrote_stays_and_a_newer_edition_is_announced(start, mine, shipped):
    start()
    (mine / "00_start.ipynb").write_bytes(notebook("my answer"))
    report = start()
    assert state_of(report) == "yours"
    assert report.news == ()

    (shipped / "00_start.ipynb").write_bytes(notebook("second edition"))
    report = start()
    assert state_of(report) == "older"
    wanted = f'newer edition. For a new copy beside it: course lab --fresh 00 --dir "{mine.absolute()}"'
    assert wanted in str(report)
    assert (mine / "00_start.ipynb").read_bytes() == notebook("my answer")


def test_the_hint_names_no_folder_where_the_command_would_find_it(start, mine, shipped, monkeypatch):
    start()
    (mine / "00_start.ipynb").write_bytes(notebook("my answer"))
    (shipped / "00_start.ipynb").write_bytes(notebook("second edition"))
    monkeypatch.delenv("COURSE_FOLDER", raising=False)
    monkeypatch.chdir(mine)
    assert str(start()).endswith("course lab --fresh 00")


def test_fresh_renames_the_learners_copy_and_makes_a_new_one(start, mine, shipped):
    start()
    for number, word in enumerate(("00", "start", "00_start.ipynb")):
        (mine / "00_start.ipynb").write_bytes(notebook(f"answer {number}"))
        report = start(word)
        assert state_of(report) == "new"
        assert report.copies[0].kept_as in str(report)

    kept = [
        "00_start.mine-2026-11-30.ipynb",
        "00_start.mine-2026-11-30-2.ipynb",
        "00_start.mine-2026-11-30-3.ipynb",
    ]
    assert [(mine / name).read_bytes() for name in kept] == [
        notebook(f"answer {number}") for number in range(3)
    ]
    assert (mine / "00_start.ipynb").read_bytes() == notebook("first edition")
    assert state_of(start()) == "same"


def test_fresh_of_a_lesson_that_is_not_there_makes_it(start, mine):
    assert state_of(start("00")) == "new"
    assert sorted(path.name for path in mine.iterdir()) == [".course", "00_start.ipynb", "04_loading.ipynb"]


def test_an_unknown_lesson_changes_nothing(start, mine):
    with pytest.raises(CourseError, match="no lesson '99'"):
        start("99")
    assert not mine.exists()


def test_a_deleted_lesson_comes_back(start, mine):
    start()
    (mine / "00_start.ipynb").unlink()

    assert state_of(start()) == "new"
    assert (
        "1 of them new" in str(start().__class__(mine, start().copies)) or (mine / "00_start.ipynb").exists()
    )


def test_a_new_lesson_joins(start, shipped):
    start()
    (shipped / "06_oom.ipynb").write_bytes(notebook("memory"))
    report = start()

    assert state_of(report, "06_oom") == "new"
    assert "3 lessons, 1 of them new" in str(report)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x89PNG", b'{"cells": {}', b'{"cells": [1]}', b"[" * 100_000]
)
def test_what_is_no_notebook_is_left_and_announced(start, mine, content):
    start()
    (mine / "00_start.ipynb").write_bytes(content)
    report = start()

    assert state_of(report) == "unreadable"
    assert "not a notebook that can be read; left as it is. For a new copy" in str(report)
    assert (mine / "00_start.ipynb").read_bytes() == content
    start("00")
    assert (mine / "00_start.mine-2026-11-30.ipynb").read_bytes() == content
    assert state_of(start()) == "same"


def test_a_folder_in_the_place_of_a_lesson_is_left(start, mine):
    (mine / "00_start.ipynb").mkdir(parents=True)
    assert state_of(start()) == "unreadable"
    assert (mine / "00_start.ipynb").is_dir()


def test_a_notebook_that_was_there_before_is_left(start, mine):
    mine.mkdir()
    (mine / "00_start.ipynb").write_bytes(notebook("from elsewhere"))
    report = start()

    assert state_of(report) == "unknown"
    assert "not the course's edition; left as it is" in str(report)
    assert (mine / "00_start.ipynb").read_bytes() == notebook("from elsewhere")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"made": 3}', '{"made": {"00_start": 1}}', "\udcff"])
def test_a_damaged_list_is_set_aside_and_nothing_is_lost(start, mine, shipped, damage):
    start()
    (mine / "00_start.ipynb").write_bytes(notebook("my answer"))
    listed = mine / ".course" / "copies.json"
    listed.write_bytes(damage.encode("utf-8", "surrogateescape"))
    (shipped / "00_start.ipynb").write_bytes(notebook("second edition"))
    (shipped / "04_loading.ipynb").write_bytes(notebook("second edition"))

    report = start()

    assert "copies.damaged.json" in str(report)
    assert (mine / ".course" / "copies.damaged.json").read_bytes() == damage.encode(
        "utf-8", "surrogateescape"
    )
    assert [copy.state for copy in report.copies] == ["unknown", "unknown"]
    assert (mine / "00_start.ipynb").read_bytes() == notebook("my answer")
    assert start().note is None


def test_the_report_prints_and_is_data(start, shipped):
    report = start()
    odd = dataclasses.replace(report, note="a <b> & c", folder=Path("<i>"))

    assert "a &lt;b&gt; &amp; c" in odd._repr_html_()
    assert "<i>" not in odd._repr_html_()
    assert json.loads(json.dumps(report.to_json()))["copies"][0] == {
        "name": "00_start",
        "state": "new",
        "kept_as": None,
    }


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path, shipped):
    (tmp_path / "notes").write_text("mine", encoding="utf-8")
    with pytest.raises(CourseError, match=r"notes is a file; give a folder.*--dir"):
        prepare(tmp_path / "notes", shipped=shipped)
    with pytest.raises(CourseError, match=r"cannot be written to .*--dir"):
        prepare(tmp_path / "notes" / "inside", shipped=shipped)
    assert (tmp_path / "notes").read_text(encoding="utf-8") == "mine"


def test_the_courses_own_notebooks_are_refused(shipped):
    for folder in (shipped, shipped / "source", shipped / ".." / "shipped"):
        with pytest.raises(CourseError, match="the course's own notebooks"):
            prepare(folder, shipped=shipped)


def test_the_notebooks_of_this_course_are_refused():
    with pytest.raises(CourseError, match="the course's own notebooks"):
        prepare(notebooks_dir())


def test_other_files_in_the_folder_are_left(start, mine):
    mine.mkdir()
    (mine / "train.py").write_text("mine", encoding="utf-8")
    start()
    assert (mine / "train.py").read_text(encoding="utf-8") == "mine"


def test_no_lessons_is_told(tmp_path):
    with pytest.raises(CourseError, match="There are no lessons in"):
        prepare(tmp_path / "mine", shipped=tmp_path / "empty")


def test_lessons_that_cannot_be_written_to_give_copies_that_can(start, mine, shipped):
    for path in (*shipped.iterdir(), shipped):
        path.chmod(0o555 if path.is_dir() else 0o444)
    start()
    assert os.access(mine / "00_start.ipynb", os.W_OK)
    assert (mine / "00_start.ipynb").stat().st_mode & 0o200
    shipped.chmod(0o755)


FULL_DISK = """
import resource, sys
from pathlib import Path
from course_lib.errors import CourseError
from course_lib.teach.workspace import prepare

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)  # a write beyond it fails half-way
try:
    prepare(Path(sys.argv[1]), shipped=Path(sys.argv[2]))
except CourseError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on file sizes needs POSIX")
def test_a_disk_that_fills_up_leaves_whole_files_only(start, mine, shipped):
    start()
    listed = (mine / ".course" / "copies.json").read_bytes()
    old = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    (shipped / "00_start.ipynb").write_bytes(notebook("second edition " * 1000))

    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(mine), str(shipped), str(len(listed) + 100)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "cannot be written to" in done.stdout
    assert "--dir" in done.stdout
    assert done.stderr == ""
    assert {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()} == old
    assert state_of(start()) == "updated"


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be replaced on Windows")
def test_a_reader_sees_the_old_file_or_the_new_one_and_nothing_between(start, mine, shipped):
    start()
    names = ("00_start.ipynb", ".course/copies.json")
    old = [(mine / name).read_bytes() for name in names]
    (shipped / "00_start.ipynb").write_bytes(notebook("second edition"))
    with (mine / names[0]).open("rb") as lesson, (mine / names[1]).open("rb") as listed:
        assert state_of(start()) == "updated"
        assert [lesson.read(), listed.read()] == old


def test_the_folder_of_whoever_runs_in_it(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_FOLDER", raising=False)
    inside = tmp_path / "mine" / "notes" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert learner_folder() == inside
    (tmp_path / "mine" / ".course").mkdir()
    assert learner_folder() == default_folder() == tmp_path / "mine"
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path / "named"))
    assert learner_folder() == default_folder() == tmp_path / "named"


def test_the_folder_when_nobody_names_one(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_FOLDER", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workspace, "checkout_root", lambda: tmp_path / "clone")
    assert default_folder() == tmp_path / "clone" / "work"
    monkeypatch.setattr(workspace, "checkout_root", lambda: None)
    assert default_folder() == tmp_path / "efficient-training-course"


def test_a_home_folder_is_understood(tmp_path, monkeypatch, shipped):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert prepare(Path("~/mine"), shipped=shipped).folder == tmp_path / "mine"
    with pytest.raises(CourseError, match="home folder"):
        prepare(Path("~nobody_of_this_name/mine"), shipped=shipped)


texts = st.text("abc\n", max_size=4)


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_the_hash_follows_the_texts_and_nothing_else(first, second):
    assert (content_hash(notebook(*first)) == content_hash(notebook(*second))) == (first == second)
    assert content_hash(run(notebook(*first))) == content_hash(notebook(*first))


def test_the_hash_follows_the_kind_of_a_cell():
    assert content_hash(notebook("x", cell_type="markdown")) != content_hash(notebook("x"))


actions = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 99)),
    st.tuples(st.just("release"), st.integers(0, 3)),
    st.sampled_from([("run",), ("delete",), ("fresh",), ("start",), ("lose list",), ("damage list",)]),
)


@settings(max_examples=75)
@given(st.lists(actions, max_size=12))
def test_nothing_that_a_learner_wrote_or_ran_is_ever_lost(steps):
    with tempfile.TemporaryDirectory() as root:
        shipped, mine = Path(root, "shipped"), Path(root, "mine")
        shipped.mkdir()
        lesson, target = shipped / "00_start.ipynb", mine / "00_start.ipynb"
        lesson.write_bytes(notebook("edition 0"))
        prepare(mine, shipped=shipped, today=DAY)
        aside: set[bytes] = set()  # the learner's notebooks that stand under other names
        for step, *values in steps:
            if step == "write":
                target.write_bytes(notebook(f"answer {values[0]}"))
            elif step == "run" and target.exists():
                target.write_bytes(run(target.read_bytes()))
            elif step == "release":
                lesson.write_bytes(notebook(f"edition {values[0]}"))
            elif step == "delete":
                target.unlink(missing_ok=True)
            elif step == "lose list":
                (mine / ".course" / "copies.json").unlink()
            elif step == "damage list":
                (mine / ".course" / "copies.json").write_text("{", encoding="utf-8")
            before = target.read_bytes() if target.exists() else b""
            prepare(mine, fresh=["00"] if step == "fresh" else [], shipped=shipped, today=DAY)

            found = {path: path.read_bytes() for path in mine.rglob("*.ipynb")}
            learners = {content for content in found.values() if b"answer" in content or b"seen" in content}
            assert aside <= learners
            if b"answer" in before or b"seen" in before:
                assert before in learners
            if b"answer" in before and step != "fresh":
                assert found[target] == before
            if step == "fresh" or not before:
                assert found[target] == lesson.read_bytes()
            aside = learners - {found[target]}
