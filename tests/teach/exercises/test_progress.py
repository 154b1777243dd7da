import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teach.exercises.progress import Record, load_progress, update_progress
from course_lib.teach.exercises.result import Outcome


def file_of(folder):
    return folder / ".course" / "progress.json"


def answer(folder, outcome, name="start.a"):
    return update_progress(folder, name, lambda record: record.with_answer(outcome))


def test_what_happened_is_kept(tmp_path):
    answer(tmp_path, Outcome.NOT_YET)
    update_progress(tmp_path, "start.a", lambda record: record.with_hint(3))
    before = datetime.now(UTC).replace(microsecond=0)
    progress = answer(tmp_path, Outcome.CORRECT)
    update_progress(tmp_path, "start.b", Record.with_solution)

    loaded = load_progress(tmp_path)
    assert loaded.of("start.a") == progress.of("start.a")
    record = loaded.of("start.a")
    assert replace(record, passed_at=None) == Record(Outcome.CORRECT, attempts=2, hints=1)
    assert before <= datetime.fromisoformat(record.passed_at) <= datetime.now(UTC)
    assert loaded.of("start.b") == Record(solution_seen=True)
    assert loaded.of("start.c") == Record()
    assert loaded.passed == ("start.a",)
    assert loaded.note == ""


def test_the_first_pass_stays(tmp_path):
    first = answer(tmp_path, Outcome.CORRECT)
    for outcome in (Outcome.NOT_YET, Outcome.NOT_ATTEMPTED, Outcome.CORRECT):
        assert answer(tmp_path, outcome).of("start.a") == first.of("start.a")


def test_dots_are_no_attempt_and_write_no_record_of_one(tmp_path):
    assert answer(tmp_path, Outcome.NOT_ATTEMPTED).of("start.a") == Record()
    answer(tmp_path, Outcome.NOT_YET)
    assert answer(tmp_path, Outcome.NOT_ATTEMPTED).of("start.a") == Record(Outcome.NOT_YET, attempts=1)


@given(st.lists(st.sampled_from([Outcome.CORRECT, Outcome.NOT_YET, Outcome.NOT_ATTEMPTED]), max_size=12))
def test_attempts_are_counted_up_to_the_first_pass(outcomes):
    record = Record()
    for outcome in outcomes:
        record = record.with_answer(outcome)
    tried = [outcome for outcome in outcomes if outcome is not Outcome.NOT_ATTEMPTED]
    passed = Outcome.CORRECT in tried
    assert record.attempts == (tried.index(Outcome.CORRECT) + 1 if passed else len(tried))
    assert (record.passed_at is not None) == passed == (record.outcome is Outcome.CORRECT)


def test_hints_are_counted_up_to_the_last(tmp_path):
    for expected in (1, 2, 3, 3):
        progress = update_progress(tmp_path, "start.a", lambda record: record.with_hint(3))
        assert progress.of("start.a").hints == expected


def test_reading_makes_nothing(tmp_path):
    assert load_progress(tmp_path).exercises == {}
    assert list(tmp_path.iterdir()) == []
    assert load_progress(tmp_path / "not there").exercises == {}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"exercises": []}',
        b'{"exercises": {"start.a": 3}}',
        b'{"exercises": {"start.a": {}}}',
        b'{"exercises": {"start.a": {"outcome": "perfect"}}}',
        b'{"exercises": {"start.a": {"outcome": "correct", "attempts": "3"}}}',
        b'{"exercises": {"start.a": {"outcome": "correct", "attempts": -1}}}',
        b'{"exercises": {"start.a": {"outcome": "correct", "solution_seen": 1}}}',
        b'{"exercises": {"start.a": {"outcome": "correct", "passed_at": 1}}}',
        b'{"exercises": {"start.a": {"outcome": "correct", "cheats": 1}}}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("first", ["load", "update"])
def test_a_damaged_file_is_set_aside_and_that_is_said_once(tmp_path, damage, first):
    path = file_of(tmp_path)
    path.parent.mkdir()
    path.write_bytes(damage)
    progress = load_progress(tmp_path) if first == "load" else answer(tmp_path, Outcome.NOT_YET)
    assert "damaged" in progress.note
    assert (path.parent / "progress.damaged-1.json").read_bytes() == damage
    assert answer(tmp_path, Outcome.CORRECT).note == ""
    assert load_progress(tmp_path).note == ""

    path.write_bytes(damage)
    answer(tmp_path, Outcome.NOT_YET)
    assert (path.parent / "progress.damaged-1.json").read_bytes() == damage
    assert (path.parent / "progress.damaged-2.json").read_bytes() == damage


def test_where_nothing_can_be_written_it_says_so_and_remembers(tmp_path):
    (tmp_path / ".course").write_text("a file where the folder should be", encoding="utf-8")
    for expected in (1, 2):
        progress = update_progress(tmp_path, "start.a", lambda record: record.with_hint(3))
        assert progress.of("start.a").hints == expected
        assert "could not be kept" in progress.note
    assert "\n" not in progress.note


@pytest.mark.skipif(
    sys.platform == "win32" or (hasattr(os, "geteuid") and os.geteuid() == 0),
    reason="needs a user for whom a folder can be read-only",
)
def test_a_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "could not be kept" in answer(tmp_path, Outcome.CORRECT).note
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_in_the_place_of_the_file(tmp_path):
    file_of(tmp_path).mkdir(parents=True)
    assert "could not be read" in load_progress(tmp_path).note
    assert "could not be kept" in answer(tmp_path, Outcome.CORRECT).note


def test_a_lock_that_nobody_gives_back_ends_in_a_sentence(tmp_path, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr("course_lib.teach.exercises.progress._LOCK_TIMEOUT_S", 0.1)
    file_of(tmp_path).parent.mkdir()
    with FileLock(file_of(tmp_path).with_suffix(".lock")):
        assert "could not be kept" in answer(tmp_path, Outcome.CORRECT).note
    assert answer(tmp_path, Outcome.CORRECT).note == ""


def test_two_processes_at_once_lose_nothing(tmp_path):
    """Each process counts hints of one shared exercise and of one of its own."""
    code = """if True:
        import sys
        from pathlib import Path
        from course_lib.teach.exercises.progress import update_progress
        folder, own = Path(sys.argv[1]), sys.argv[2]
        sys.stdin.readline()
        for _ in range(40):
            for name in ("start.shared", own):
                note = update_progress(folder, name, lambda record: record.with_hint(1000)).note
                assert not note, note
    """
    names = ("start.one", "start.two", "start.three")
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name], stdin=subprocess.PIPE, text=True)
        for name in names
    ]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.wait(timeout=120) for child in children] == [0, 0, 0]
    for child in children:
        child.stdin.close()
    progress = load_progress(tmp_path)
    assert progress.of("start.shared").hints == 120
    assert [progress.of(name).hints for name in names] == [40, 40, 40]
    assert [path.name for path in file_of(tmp_path).parent.glob("*.tmp")] == []


def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path):
    code = """if True:
        import sys
        from pathlib import Path
        from course_lib.teach.exercises.progress import update_progress
        while True:
            update_progress(Path(sys.argv[1]), "start.a", lambda record: record.with_hint(10**9))
            print("written", flush=True)
    """
    seen = 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"written\n"
        threading.Event().wait(0.2)  # somewhere in one of the writings after it
        child.kill()
        child.communicate()
        progress = load_progress(tmp_path)
        assert progress.note == ""
        assert progress.of("start.a").hints > seen
        seen = progress.of("start.a").hints


def test_it_prints_well_and_turns_into_json(tmp_path):
    assert str(load_progress(tmp_path)) == "No exercise was tried yet."
    answer(tmp_path, Outcome.NOT_YET, "start.<b>")
    progress = answer(tmp_path, Outcome.CORRECT)
    assert "start.a    correct  1         0      -" in str(progress)
    assert "&lt;b&gt;" in progress._repr_html_()
    data = json.loads(json.dumps(progress.to_json()))
    assert data["exercises"]["start.a"]["outcome"] == "correct"
    assert Path(data["folder"]) == tmp_path
