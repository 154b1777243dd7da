import json

import pytest

from course_lib.errors import CourseError
from course_lib.teach.exercises.checking import check, hint, solution
from course_lib.teach.exercises.progress import load_progress
from course_lib.teach.exercises.registry import exercise
from course_lib.teach.exercises.result import Outcome


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path))
    return tmp_path


def right(batch_size, step_seconds):
    return batch_size / step_seconds


def upside_down(batch_size, step_seconds):
    return step_seconds / batch_size


def test_three_outcomes_are_shown_returned_and_kept(folder, capsys):
    assert check("start.throughput", ...).outcome is Outcome.NOT_ATTEMPTED
    assert capsys.readouterr().out.startswith("[Not attempted: Throughput")
    assert load_progress(folder).of("start.throughput").attempts == 0

    assert check("start.throughput", upside_down).outcome is Outcome.NOT_YET
    out = capsys.readouterr().out
    assert out.startswith("[Not yet: Throughput from a step time] Upside down")
    assert 'hint("start.throughput")' in out

    assert check("start.throughput", right).outcome is Outcome.CORRECT
    assert capsys.readouterr().out == "[Correct: Throughput from a step time]\n"
    record = load_progress(folder).of("start.throughput")
    assert (record.outcome, record.attempts) == (Outcome.CORRECT, 2)


def test_what_a_function_prints_is_shown_in_part(folder, capsys):
    check("start.throughput", lambda batch, step: print("line\n" * 100) or batch / step)
    out = capsys.readouterr().out
    assert "Your function printed: line" in out
    assert out.count("line") == 5
    check("start.throughput", lambda batch, step: print("x" * 10**6) or batch / step)
    assert len(capsys.readouterr().out) < 500


@pytest.mark.parametrize("call", [lambda name: check(name, right), hint, solution])
@pytest.mark.parametrize("name", ["start.troughput", "zz.qq", "", None, 3, right])
def test_an_unknown_exercise_is_a_sentence(folder, capsys, call, name):
    call(name)
    out = capsys.readouterr().out
    assert out.startswith("[No ")
    assert "start.throughput" in out
    assert not (folder / ".course").exists()


def test_an_unknown_exercise_does_not_count_as_passed(folder):
    assert check("start.troughput", right).outcome is Outcome.NO_SUCH_EXERCISE


def test_hints_come_one_at_a_time_and_the_last_one_stays(folder, capsys):
    hints = exercise("start.throughput").hints
    for number, text in enumerate(hints, start=1):
        assert hint("start.throughput").text == text
        out = capsys.readouterr().out
        assert f"Hint {number} of {len(hints)}" in out
        assert (f"{len(hints) - number} more" in out) == (number < len(hints))
    assert hint("start.throughput").text == hints[-1]
    assert 'solution("start.throughput")' in capsys.readouterr().out
    assert hint("start.epoch_time").text == exercise("start.epoch_time").hints[0]
    assert load_progress(folder).of("start.throughput").hints == len(hints)
    check("start.throughput", upside_down)
    assert "hint(" not in capsys.readouterr().out.split("Not yet")[1]


def test_the_solution_is_shown_as_code_and_that_is_kept(folder, capsys, monkeypatch):
    code = "def samples_per_second(batch_size, step_seconds):\n    return 1"
    monkeypatch.setattr("course_lib.teach.build.solution_of", {"start.throughput": code}.__getitem__)
    shown = solution("start.throughput")
    assert shown.code == code
    assert "    def samples_per_second" in capsys.readouterr().out
    assert "<pre" in shown._repr_html_()
    assert repr(shown) == "<start.throughput: Solution: Throughput from a step time>"
    assert load_progress(folder).of("start.throughput").solution_seen


def test_a_lesson_without_source_is_a_sentence(folder, capsys, monkeypatch):
    def missing(_):
        raise CourseError("The sources are not here.")

    monkeypatch.setattr("course_lib.teach.build.solution_of", missing)
    assert "not here" in solution("start.throughput").text
    assert not load_progress(folder).of("start.throughput").solution_seen


def test_progress_that_cannot_be_kept_is_a_note_and_hints_go_on(folder, capsys):
    (folder / ".course").write_text("in the way", encoding="utf-8")
    assert check("start.throughput", right).outcome is Outcome.CORRECT
    assert "could not be kept" in capsys.readouterr().out
    assert hint("start.throughput").text != hint("start.throughput").text


def test_a_damaged_file_is_told_once(folder, capsys):
    (folder / ".course").mkdir()
    (folder / ".course" / "progress.json").write_text("{", encoding="utf-8")
    check("start.throughput", right)
    assert "damaged" in capsys.readouterr().out
    check("start.throughput", right)
    assert "damaged" not in capsys.readouterr().out


def test_a_deleted_current_folder_is_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("COURSE_FOLDER", raising=False)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    try:
        gone.rmdir()
    except OSError:
        pytest.skip("this system keeps the current folder")
    assert check("start.throughput", right).outcome is Outcome.CORRECT
    assert "could not be kept" in capsys.readouterr().out


def test_the_result_as_data(folder):
    result = check("start.throughput", upside_down)
    assert json.loads(json.dumps(result.to_json())) == {
        "id": "start.throughput",
        "outcome": "not yet",
        "message": result.message,
    }
