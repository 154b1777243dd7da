"""Real ranks: who waits is measured, their weights agree, and none of them is left behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from course_lib.diagnose.health import straggler_by_time
from course_lib.errors import CourseError
from course_lib.train.ranks import straggler
from course_lib.train.ranks.straggler import PARTS, RankTimes, time_ranks

LATE_S = 0.4  # far above what a busy machine adds


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def runs() -> tuple[RankTimes, ...]:
    before = children()
    heard: list[tuple[int, int]] = []
    found = time_ranks(
        (0.0, 0.0),
        (0.0, LATE_S),
        steps=3,
        warmup=1,
        time_limit_s=600,
        progress=lambda done, of: heard.append((done, of)),
    )
    assert heard[-1] == (8, 8)
    assert heard == sorted(heard)
    assert children() <= before
    return found


def test_the_late_rank_is_found_and_the_other_one_waits_for_it(runs: tuple[RankTimes, ...]) -> None:
    _, slow = runs
    found = straggler_by_time(slow.busy_s)
    assert found is not None
    assert found.gpu == 1
    waits, late = np.median(slow.all_reduce_s, axis=0)
    assert waits > 0.5 * LATE_S
    assert late < waits
    assert slow.part_s("data")[:, 1].min() >= LATE_S * 0.95


def test_waiting_reads_as_communication(runs: tuple[RankTimes, ...]) -> None:
    _, slow = runs
    assert slow.communication_share(waiting=True) > slow.communication_share(waiting=False) > 0


def test_the_ranks_really_exchange_their_gradients(runs: tuple[RankTimes, ...]) -> None:
    fair, slow = runs
    assert fair.weights[0] == fair.weights[1], "each has its own images: only an exchange keeps them equal"
    assert fair.weights[0] != slow.weights[0], "and the training goes on"
    assert fair.parameters == 529_802


def test_the_result_has_all_steps_ranks_and_parts_and_prints(runs: tuple[RankTimes, ...]) -> None:
    for run in runs:
        assert np.array(run.seconds).shape == (3, 2, len(PARTS))
        assert json.loads(run.to_json())["late_s"] == list(run.late_s)
        assert "rank 1" in str(run)
        assert "<caption>2 ranks" in run._repr_html_()
    with pytest.raises(CourseError, match="has the parts"):
        runs[0].part_s("lunch")


def test_ranks_load_neither_torchvision_nor_scikit_learn() -> None:
    program = (
        "import sys, course_lib.train.ranks.straggler_rank\n"
        "print(sorted({'torchvision', 'sklearn', 'matplotlib', 'IPython'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert done.stdout.strip() == "[]"


def test_a_time_limit_ends_all_ranks() -> None:
    before = children()
    with pytest.raises(CourseError, match="not done after"):
        time_ranks((0.0, 1.0), steps=1000, warmup=0, time_limit_s=0.5)
    assert children() <= before


def test_a_rank_that_fails_ends_the_others_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuchcard0")  # gloo finds no network to talk over
    with pytest.raises(CourseError, match=r"Rank \d failed: .+\.$"):
        time_ranks((0.0, 0.0), steps=1)
    assert children() <= before


def test_an_interrupt_leaves_no_rank() -> None:
    before = children()

    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        time_ranks((0.0, 0.0), progress=interrupt)
    assert children() <= before


def test_ranks_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, psutil\nfrom course_lib.train.ranks.straggler import time_ranks\n"
        "def tell(done, of):\n"
        "    pids = [str(c.pid) for c in psutil.Process().children()]\n"
        f"    pathlib.Path({str(tmp_path / 'pids')!r}).write_text(' '.join(pids))\n"
        "time_ranks((0.0, 1.0), steps=500, progress=tell)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(straggler.__file__).parents[3])}
    parent = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        pids: list[int] = []
        deadline = time.monotonic() + 120
        while len(pids) < 2:
            assert time.monotonic() < deadline, "the ranks were not started"
            time.sleep(0.05)
            if (tmp_path / "pids").exists():
                pids = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()]
        ranks = [psutil.Process(pid) for pid in pids]
    finally:
        parent.kill()
        parent.wait()
    gone, alive = psutil.wait_procs(ranks, timeout=60)
    assert [rank for rank in alive if rank.status() != psutil.STATUS_ZOMBIE] == [], gone


@pytest.mark.parametrize(
    "late", [(), ((0.0,),), ((0.0, -1.0),), ((0.0, 2.0),), ((0.0, float("nan")),), ((0.0, 0.0), (0.0,))]
)
def test_settings_that_cannot_be_used_are_told(late: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(CourseError, match="Give each run a delay"):
        time_ranks(*late)


def test_no_step_is_told() -> None:
    with pytest.raises(CourseError, match="At least one step"):
        time_ranks((0.0, 0.0), steps=0)
