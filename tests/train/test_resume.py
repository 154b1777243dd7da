"""One round of the soak in benchmarks/resume.py: a real process, really killed."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "resume.py"


def test_a_killed_run_resumes_to_identical_weights() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--rounds", "1", "--seed", "3", "--json"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["identical"] == len(told["rounds"]) == 1
    assert 0 < told["rounds"][0]["resumed_from"] <= told["rounds"][0]["killed_after"] + 1
