"""``course explain`` answers for files, for what is piped in, and for what cannot be used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 90.00 MiB (GPU 0; 15.77 GiB total capacity; 14.90 "
    "GiB already allocated; 21.19 MiB free; 15.02 GiB reserved in total by PyTorch)"
)


def course(*arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "course_lib", *arguments]
    return subprocess.run(
        command, input=given, capture_output=True, check=False, timeout=300, env=environment
    )


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "error.txt"
    path.write_text(OOM, encoding="utf-8")
    done = course("explain", str(path))
    assert done.returncode == 0
    text = done.stdout.decode("utf-8")
    assert text.startswith("GPU 0 is really full")
    assert "First:" in text
    assert "Would not help:" in text


def test_a_pipe_and_json() -> None:
    done = course("explain", "-", "--json", given=OOM.encode())
    answer = json.loads(done.stdout)
    assert answer["known"]
    assert answer["findings"][0]["id"] == "oom.capacity"
    assert answer["readings"][0]["figures"]["free"] == {"raw": "21.19 MiB", "mib": 21.19}
    assert answer["readings"][0]["figures"]["process_in_use"] is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_files_of_windows(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "error.txt"
    path.write_bytes(("Größe\r\n" + OOM).encode(encoding))
    assert json.loads(course("explain", str(path), "--json").stdout)["known"]


def test_unknown_text_is_answered_and_told_by_the_exit_status() -> None:
    done = course("explain", "-", given=b"good morning")
    assert done.returncode == 1
    assert b"I do not know this text" in done.stdout
    assert b"memory_summary" in done.stdout
    assert not done.stderr


def test_unknown_text_is_one_object_too() -> None:
    done = course("explain", "-", "--json", given=b"good morning")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert not answer["known"]
    assert answer["can_be_read"]


@pytest.mark.parametrize("what", ["missing", "folder", "empty", "binary", "huge", ""])
def test_input_that_cannot_be_used(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    elif what == "empty":
        path.write_text("  \n", encoding="utf-8")
    elif what == "binary":
        path.write_bytes(bytes(range(256)) * 40)
    elif what == "huge":
        with path.open("wb") as stream:
            stream.truncate(50_000_000)
    done = course("explain", str(path) if what else "")
    assert done.returncode == 2
    lines = done.stderr.decode("utf-8").strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("course: ")
    assert "Traceback" not in lines[0]


def test_a_carriage_return_and_colours_do_not_matter() -> None:
    given = b"\x1b[31m" + OOM.replace(" ", "\r\n", 3).encode() + b"\x1b[0m"
    assert (
        json.loads(course("explain", "-", "--json", given=given).stdout)["findings"][0]["id"]
        == "oom.capacity"
    )
