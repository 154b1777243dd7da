"""Real launches through torchrun's agent: what ranks return and print, how faults end, and that nobody is
left.

Each start of ranks costs seconds, so launches are shared: what can be asked of one is asked of one.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from course_lib.errors import CourseError
from course_lib.train.ranks import ddp_faults, launch_target
from course_lib.train.ranks.data_parallel import largest_difference, train_digits
from course_lib.train.ranks.launch import launch, launch_in_turn, split_line
from course_lib.train.ranks.launch_result import LaunchError, RankError
from course_lib.units import format_seconds

STEPS, BATCH = 50, 100  # 1,442 digits: the last batch of an epoch has 42
RING = "course_lib.train.ranks.ring:show_ring"
TRAIN = "course_lib.train.ranks.data_parallel:train_digits"
COMMIT = "course_lib.train.ranks.ddp_faults:commit"


@pytest.fixture(autouse=True)
def nobody_is_left(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    before = family()
    yield
    gone_by = time.monotonic() + 60
    while family() - before and time.monotonic() < gone_by:
        time.sleep(0.05)
    assert family() - before == set()


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def family() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return train_digits(STEPS, BATCH)


def assert_same_training(found: dict[str, Any], alone: dict[str, Any]) -> None:
    assert largest_difference(found["losses"], alone["losses"]) < 1e-6
    assert largest_difference(found["weights"], alone["weights"]) < 1e-6


@pytest.mark.parametrize("nproc", [2, 4])
def test_ranks_train_as_one_process_does(nproc: int, alone: dict[str, Any]) -> None:
    arguments = {"steps": STEPS, "global_batch_size": BATCH}
    calls: list[tuple[str, dict[str, Any]]] = [(TRAIN, arguments), (RING, {"numbers": 11})]
    if nproc == 2:
        calls += [(TRAIN, arguments | {"by_hand": True}), (TRAIN, arguments | {"global_batch_size": 93})]
        calls += [("ddp_targets:weighted_metrics", {}), ("ddp_targets:tell", {"word": "hello"})]
        calls += [("ddp_targets:start_a_program", {})]
    heard: list[tuple[int | None, str]] = []
    answers = launch_in_turn(calls, nproc, time_limit_s=600, on_line=lambda *line: heard.append(line))
    trained, rings = answers[:2]
    for one in trained:
        assert_same_training(one, alone)
    for step, batch in enumerate(alone["samples"]):
        assert sorted(i for one in trained for i in one["samples"][step]) == sorted(batch)
    for ring in rings:
        assert ring["by_ring"] == ring["by_torch"]
        assert ring["sent_bytes"] <= 2 * (nproc - 1) * 8 * -(-11 // nproc)
        assert ring["before"] != ring["by_ring"]
    if nproc == 2:
        by_hand, otherwise, metrics, told, programs = answers[2:]
        assert_same_training(by_hand[0], alone)
        with pytest.raises(AssertionError):  # another batch size is another training: the comparison can fail
            assert_same_training(otherwise[0], alone)
        mean, gradient = metrics[1]
        assert mean == metrics[0][0] == 5.0, "each sample counts once"
        assert gradient == 4.0, "under join the last step is rank 1's alone: 8, divided by 2 ranks"
        modules = ["course_lib.train.ranks.data_parallel", "course_lib.train.ranks.ring", "ddp_targets"]
        assert sorted(set(told[0].pop("launched"))) == modules, "a rank knows what it is a rank of"
        assert told[0] == {"word": "hello", "threads": "1", "heavy": [], "others": [], "input": ""}
        assert not any(is_running(pid) for pid in programs), "what a rank started ends with the launch"
        for rank in range(2):
            assert (rank, "hello") in heard
            assert (rank, "hello as an error") in heard


IN_A_GROUP = [fault for fault in ddp_faults.FIRST_ERRORS if fault in ddp_faults.IN_A_GROUP]
HAS_FULL = Path("/dev/full").exists()


def has_right_first_error(fault: str, errors: tuple[RankError, ...]) -> bool:
    if os.name != "posix" and fault in ("killed", "hang"):
        return True  # without signals nobody sees where a rank was
    kind, says = ddp_faults.FIRST_ERRORS[fault]
    first = errors[0]
    return first.kind == kind and bool(re.search(says, str(first))) and not first.secondary


def test_each_fault_in_a_group_has_its_own_error_first_and_the_run_goes_on() -> None:
    """Eight faults in one launch: after each, the agent starts all ranks anew.

    Those before there is a group are committed in test_distributed.py; an interrupt has its own test below.
    """
    faults = [fault for fault in IN_A_GROUP if fault != "full_disk" or HAS_FULL]
    for _ in range(3):  # where a busy machine holds a rank up, another gives up to wait too early: again
        run = launch(
            "course_lib.train.ranks.ddp_faults:commit_in_turn",
            arguments={"faults": faults},
            max_restarts=len(faults),
            on_line=None,
            time_limit_s=900,
        )
        assert run.values == ("trained", "trained")
        assert run.restarts == len(faults)
        committed = dict(zip(faults, run.earlier, strict=True))
        if "full_disk" in committed:  # the other rank hears of it, or is ended before it can say so
            others = committed["full_disk"][1:]
            assert all(e.kind == "ended" or "Rank 0 could not do" in e.text for e in others)
        faults = [fault for fault, errors in committed.items() if not has_right_first_error(fault, errors)]
        if not faults:
            break
    assert faults == [], committed


@pytest.mark.slow
@pytest.mark.parametrize("fault", ddp_faults.FIRST_ERRORS)
def test_each_fault_ends_a_launch_of_its_own(fault: str) -> None:
    if fault == "full_disk" and not HAS_FULL:
        pytest.skip("there is no /dev/full here")
    run = launch(COMMIT, arguments={"fault": fault}, on_line=None, check=False, time_limit_s=60)
    assert run.outcome == "failed"
    assert has_right_first_error(fault, run.errors), run.errors


def test_twelve_faults_are_known() -> None:
    assert set(ddp_faults.FIRST_ERRORS) | {"interrupt", "mismatched_collective"} == set(ddp_faults.FAULTS)


def test_the_time_limit_ends_all_and_names_the_rank_that_waits_for_nobody() -> None:
    for limit_s in (15, 60, 240):
        with pytest.raises(LaunchError, match="not done after") as raised:
            launch("ddp_targets:wait_for_ever", time_limit_s=limit_s, on_line=None)
        run = raised.value.run
        both_waited = all(any(line.startswith("pid ") for line in run.lines(rank)) for rank in range(2))
        if both_waited and (os.name != "posix" or "in wait_for_ever" in run.errors[0].where):
            break  # else a busy machine has not let both come so far in time, or not let them tell it
    assert f"Rank 1 hung: not done after {format_seconds(limit_s)}" in str(raised.value)
    assert run.outcome == "timed out"
    assert run.values == ()
    assert [error.rank for error in run.errors] == [1, 0]
    if os.name == "posix":
        assert "in wait_for_ever" in run.errors[0].where


def test_an_interrupt_leaves_nobody_and_stays_an_interrupt() -> None:
    def interrupt(rank: int | None, line: str) -> None:
        if rank is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(COMMIT, arguments={"fault": "interrupt"}, on_line=interrupt)


def test_a_killed_notebook_leaves_nobody(tmp_path: Path) -> None:
    """The parent is killed with the hardest signal, as when a kernel is restarted while a launch runs."""
    program = (
        "from course_lib.train.ranks.launch import launch\n"
        "def tell(rank, line):\n    print(line, flush=True)\n"
        "launch('ddp_targets:wait_for_ever', on_line=tell)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
    )
    try:
        assert parent.stdout is not None
        pids = [int(line.split()[1]) for line in (parent.stdout.readline(), parent.stdout.readline())]
        processes = [psutil.Process(pid) for pid in pids]
        agent = processes[0].parent()
        assert agent is not None
        processes.append(agent)
        folder = Path(agent.cmdline()[-1]).parent
        assert folder.exists()
    finally:
        parent.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        parent.wait()
        if parent.stdout:
            parent.stdout.close()
    _, alive = psutil.wait_procs(processes, timeout=120)
    assert alive == []
    assert not folder.exists()


@pytest.mark.slow
def test_a_killed_agent_is_told_and_its_ranks_end() -> None:
    def kill(rank: int | None, line: str) -> None:
        if rank is not None:
            psutil.Process().children()[0].kill()

    with pytest.raises(CourseError, match="agent could not run the ranks: ended by SIGKILL"):
        launch(COMMIT, arguments={"fault": "interrupt"}, on_line=kill)


@pytest.mark.slow
def test_without_libuv_as_on_windows_it_works_too() -> None:
    assert len(launch(RING, environment={"USE_LIBUV": "0"}, on_line=None).values) == 2


@pytest.mark.parametrize(
    ("target", "settings", "says"),
    [
        ("no.such.module:main", {}, "'no.such.module' cannot be imported"),
        ("course_lib.train.ranks.ring:not a name", {}, "is no function to import"),
        ("", {}, "cannot be imported"),
        (print, {}, "write the function into a .py file"),
        ("__main__:train", {}, "write the function into a .py file"),
        ("train.py:main", {}, r"'train\.py:main' names a file.*as in 'train:main'"),
        ("./train", {}, r"'\./train' names a file.*as in 'train:main'"),
        ("C:\\me\\train.py:run", {}, "names a file.*as in 'train:run'"),
        ("course_lib.train.ranks.ring", {"arguments": {"numbers": 3}}, "A module takes `args`"),
        (RING, {"arguments": [3]}, "`arguments` is a dictionary"),
        (RING, {"args": "--steps"}, "`args` is a list of texts"),
        (RING, {"nproc": 1.5}, "plain numbers, not 1.5"),
        (RING, {"nproc": "2"}, "plain numbers, not '2'"),
        (RING, {"nproc": True}, "plain numbers, not True"),
        (RING, {"time_limit_s": float("nan")}, "positive time limit"),
        (RING, {"time_limit_s": "60"}, "positive time limit.*'60' s"),
        (RING, {"nproc": 0}, "Give 1 rank or more"),
        (RING, {"nproc": 17}, r"room for \d+ here"),
        (RING, {"time_limit_s": 0}, "positive time limit"),
        (RING, {"max_restarts": -1}, "0 restarts or more"),
        (RING, {"args": ["--steps"]}, "A function takes `arguments`"),
        (RING, {"arguments": {"numbers": object()}}, "plain data"),
    ],
)
def test_what_cannot_be_launched_is_told_before_anything_starts(
    target: Any, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(CourseError, match=says):
        launch(target, **settings)


def test_four_ranks_only_where_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    for gib, most in ((0.5, 2), (2, 2), (3.9, 3), (4, 4), (64, 16)):
        monkeypatch.setattr(launch_target, "usable_memory_bytes", lambda gib=gib: int(gib * 2**30))
        assert launch_target.most_ranks() == most
    monkeypatch.setattr(launch_target, "usable_memory_bytes", lambda: 3 * 2**30)
    with pytest.raises(CourseError, match="room for 3 here"):
        launch(RING, 4)


def test_lines_belong_to_their_ranks() -> None:
    assert split_line("[rank 3] loss 0.5] ok") == (3, "loss 0.5] ok")
    assert split_line("[rank x] odd") == (None, "[rank x] odd")
    assert split_line("W1130 agent") == (None, "W1130 agent")
    logged = "W1130 21:06:11.635000 14832 v/torch/distributed/elastic/multiprocessing/api.py:1028] Sending"
    assert split_line(f"[rank 0] name? {logged}") == (0, "name? "), "the agent's part is left out"
