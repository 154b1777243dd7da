"""``course lab`` and ``course progress`` as a learner types them, in a checkout with two small lessons."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import course_lib
from course_lib.teach.build import derive, notebook_text
from course_lib.teach.exercises.progress import update_progress
from course_lib.teach.exercises.registry import exercises_of
from course_lib.teach.exercises.result import Outcome
from course_lib.teach.source import read_source

LESSON = """\
# %% [markdown]
# # {title}

# %% tags=["parameters"]
import os

quick = os.environ.get("COURSE_QUICK", "0") == "1"
"""
LIMIT_S = 180


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "clone"
    package = Path(course_lib.__file__).parent
    shutil.copytree(package, root / "course_lib", ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    (root / "pyproject.toml").write_text("", encoding="utf-8")
    (root / "notebooks").mkdir()
    for name, title in (("00_start", "Where does the time go?"), ("01_hardware", "Which card?")):
        source = tmp_path / f"{name}.py"
        source.write_text(LESSON.format(title=title), encoding="utf-8")
        text = notebook_text(derive(read_source(source)))
        (root / "notebooks" / f"{name}.ipynb").write_text(text, encoding="utf-8")
    return root


def environment(checkout):
    own = {
        name: str(checkout.parent / name)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    inherited = {name: value for name, value in os.environ.items() if name != "COURSE_FOLDER"}
    return inherited | own | {"PYTHONPATH": str(checkout), "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}


def course(checkout, *arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "course_lib", *arguments],
        cwd=cwd or checkout,
        env=environment(checkout),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="stops the server with SIGINT, which needs POSIX")
def test_lab_copies_the_lessons_serves_the_first_and_stops_with_one_line(checkout):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    printed = checkout.parent / "printed"
    with printed.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "course_lib", "lab", "--no-browser", "--port", str(port)],
            cwd=checkout,
            env=environment(checkout),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        address = re.compile(r"(http://127\.0\.0\.1:\d+)/lab/tree/00_start\.ipynb\?token=(\w+)\n")
        found = None
        end = time.monotonic() + LIMIT_S
        while found is None and process.poll() is None and time.monotonic() < end:
            found = address.search(printed.read_text(encoding="utf-8"))
            time.sleep(0.05)
        assert found, printed.read_text(encoding="utf-8")
        url = f"{found[1]}/api/contents/00_start.ipynb?token={found[2]}"  # another port, were that one taken
        cells = json.loads(urllib.request.urlopen(url, timeout=LIMIT_S).read())["content"]["cells"]
        assert cells[0]["source"] == "# Where does the time go?"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
    lines = printed.read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"{checkout / 'work'}: 2 lessons"
    assert lines[-2:] == ["Stop with Ctrl-C.", f"JupyterLab has stopped. Your work is in {checkout / 'work'}"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--dir", "pyproject.toml"), r"pyproject\.toml is a file; give a folder\. .*"),
        (
            ("--dir", "notebooks"),
            r"notebooks holds the course's own notebooks; give another folder with --dir\.",
        ),
        (("--fresh", "strat"), r"There is no lesson 'strat'\. Did you mean 00_start\?"),
        (("--port", "0"), r"Invalid value for '--port': 0 .*"),
        (("--port", "many"), r"Invalid value for '--port': 'many' .*"),
    ],
)
def test_what_lab_cannot_use_is_told_in_one_sentence(checkout, arguments, sentence):
    answer = course(checkout, "lab", "--no-browser", *arguments)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert re.fullmatch(f"course: .*{sentence}\n", answer.stderr), answer.stderr
    assert not (checkout / "work").exists()


@pytest.fixture
def progressed(checkout):
    """A learner's folder in which the first exercise is solved and the second was tried twice."""
    folder = checkout / "work"
    folder.mkdir()
    first, second = (exercise.id for exercise in exercises_of("start")[:2])
    update_progress(folder, first, lambda record: record.with_answer(Outcome.CORRECT))
    for _ in range(2):
        update_progress(folder, second, lambda record: record.with_answer(Outcome.NOT_YET).with_hint(3))
    return folder


def test_progress_says_what_is_solved_and_what_comes_next(checkout, progressed):
    count = len(exercises_of("start")) + len(exercises_of("hardware"))
    second = exercises_of("start")[1]
    answer = course(checkout, "progress")

    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[0] == (
        f"1 of {count} exercises solved. Next: {second.title} ({second.id}), in 00_start.ipynb."
    )
    start = next(line for line in lines if line.startswith("00_start: Where does the time go?"))
    assert start.split()[-5:] == ["1", "of", str(len(exercises_of("start"))), "3", "2"]


def test_progress_as_json_holds_every_record(checkout, progressed):
    data = json.loads(course(checkout, "progress", "--json", cwd=progressed).stdout)

    assert (data["folder"], data["passed"]) == (str(progressed), 1)
    assert data["next_exercise"] == exercises_of("start")[1].id
    records = data["lessons"][0]["exercises"]
    assert [record["id"] for record in records] == [exercise.id for exercise in exercises_of("start")]
    assert [(record["outcome"], record["attempts"], record["hints"]) for record in records[:3]] == [
        ("correct", 1, 0),
        ("not yet", 2, 2),
        ("not attempted", 0, 0),
    ]


def test_progress_before_the_first_start(checkout):
    answer = course(checkout, "progress")
    assert answer.returncode == 0
    assert answer.stdout.startswith("0 of ")
    assert not (checkout / "work").exists()


def test_progress_of_a_damaged_file_says_so(checkout, progressed):
    (progressed / ".course" / "progress.json").write_text("{", encoding="utf-8")
    answer = course(checkout, "progress")
    assert answer.returncode == 0
    assert "progress was damaged" in answer.stdout


def test_progress_of_no_folder_is_told(checkout):
    answer = course(checkout, "progress", "--dir", "pyproject.toml")
    assert answer.returncode == 2
    assert "pyproject.toml is a file; give a folder" in answer.stderr


def test_an_installed_package_puts_the_lessons_where_one_stands(checkout, tmp_path):
    shutil.move(checkout / "notebooks", checkout / "course_lib" / "shipped" / "notebooks")
    (checkout / "pyproject.toml").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    data = json.loads(course(checkout, "progress", "--json", cwd=elsewhere).stdout)

    assert data["folder"] == str(elsewhere / "efficient-training-course")
    assert [lesson["name"] for lesson in data["lessons"]] == ["00_start", "01_hardware"]
