"""Does ``course doctor`` answer in words and in JSON, and end with 1 when something failed?"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.cli.main import main


def test_the_report_of_this_computer() -> None:
    command = [sys.executable, "-m", "course_lib", "doctor"]
    done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", timeout=300)
    assert done.stderr == ""
    assert done.stdout.startswith("This computer is ")
    lines = done.stdout.splitlines()
    for name in ("Python", "packages", "torch", "torchvision", "device", "cores", "memory", "disk", "kernel"):
        assert sum(f"] {name}:" in " ".join(line.split()) for line in lines) == 1
    assert done.returncode == int("[FAIL]" in done.stdout)


def test_json_holds_the_report_and_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert caught.value.code == (0 if data["ready"] else 1)
    assert {check["status"] for check in data["checks"]} <= {"OK", "WARN", "FAIL"}
    assert data["facts"]["usable_cores"] >= 1
    assert data["facts"]["torch"]["version"].startswith(data["facts"]["versions"]["torch"])


def test_a_torch_that_cannot_be_imported_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudnn.so.9: not found')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        main(["doctor"])
    assert caught.value.code == 1
    report = capsys.readouterr().out
    assert "[FAIL] torch:" in report
    assert "libcudnn.so.9" in report
    assert "--torch-backend=auto" in report
