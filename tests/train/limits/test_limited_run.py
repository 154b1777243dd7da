import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.memory_errors import is_out_of_memory
from course_lib.train.limits import LimitedRun, run_limited
from course_lib.train.limits.counted_budget import CountedBudget, active_budget
from course_lib.train.rescue.memory_meter import BudgetMeter, ProcessMeter, meter_for

TARGETS = "limited_targets"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")


@pytest.fixture(autouse=True)
def targets_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def run(name: str, memory: int | str = "64 MiB", emulate: bool = False, **arguments: object) -> LimitedRun:
    return run_limited(
        f"{TARGETS}:{name}", memory=memory, emulate=emulate, arguments=arguments, time_limit_s=300
    )


def test_the_value_comes_back() -> None:
    found = run("add", a=2, b=3)
    assert (found.outcome, found.value, found.error) == ("done", 5, None)
    assert "adding" in found.output
    assert json.loads(found.to_json())["value"] == 5
    assert "done" in str(found)
    assert "<table>" in found._repr_html_()


@pytest.mark.parametrize("emulate", [False, True])
def test_what_fits_runs_and_what_does_not_fails_for_real(emulate: bool) -> None:
    small, large = run("allocate", mib=40, emulate=emulate), run("allocate", mib=80, emulate=emulate)
    assert (small.outcome, small.value) == ("done", 40 * 2**20)
    assert small.peak_bytes is not None
    assert 39 * 2**20 <= small.peak_bytes < 42 * 2**20
    assert (large.outcome, large.value) == ("out of memory", None)
    assert large.error is not None
    assert str(80 * 2**20) in large.error
    if emulate:
        assert large.emulated
        assert "emulated" in large.error
    if sys.platform == "linux" and not emulate:
        assert large.limited_by == "RLIMIT_DATA"
        assert "DefaultCPUAllocator" in large.error


@on_linux
def test_the_limit_is_not_only_for_tensors() -> None:
    found = run("python_list", mib=80)
    assert found.outcome == "out of memory"
    assert "MemoryError" in str(found.error)


def test_a_process_goes_on_after_it_ran_out() -> None:
    assert run("recover", mib=80).value == ["out of memory", "fits"]


@on_linux
def test_the_meter_reads_what_is_really_in_use() -> None:
    read = run("read_peaks", memory="128 MiB").value
    assert read["peak"] == pytest.approx(50 * 2**20, abs=2 * 2**20)
    assert read["second"] == pytest.approx(10 * 2**20, abs=2 * 2**20)
    assert read["quiet"] == pytest.approx(10 * 2**20, abs=2 * 2**20)
    assert read["limit"] > 128 * 2**20


def test_other_endings() -> None:
    failed = run("fail")
    assert (failed.outcome, failed.error) == ("failed", "ZeroDivisionError: nothing to do with memory")
    assert "limited_targets.py" in failed.output
    unsent = run("no_json")
    assert unsent.outcome == "failed"
    assert "returned a object" in str(unsent.error)
    died = run("die")
    assert died.outcome == "killed"
    assert "exit status 7" in str(died.error)
    aborted = run("abort_without_memory")
    assert aborted.outcome == "out of memory"
    assert "bad_alloc" in str(aborted.error)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids: list[int], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("seconds", [0.0, 600.0])
def test_no_process_is_left_behind(tmp_path: Path, seconds: float) -> None:
    """Neither after the time ran out, nor when the child itself ended and left a child of its own."""
    note = tmp_path / "pids.txt"
    found = run_limited(
        f"{TARGETS}:sleep_with_a_child",
        memory="64 MiB",
        arguments={"note": str(note), "seconds": seconds},
        time_limit_s=300 if seconds == 0 else 20,
    )
    assert found.outcome == ("done" if seconds == 0 else "timed out")
    if not note.exists():
        pytest.skip("this machine is too busy: the child had not begun when its time ran out")
    assert gone([int(pid) for pid in note.read_text(encoding="utf-8").split()])


@pytest.mark.skipif(
    os.name != "posix", reason="grandchildren end with their process group, which Windows lacks"
)
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pids.txt"
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from course_lib.train.limits import run_limited\n"
        f"run_limited('{TARGETS}:sleep_with_a_child', memory='64 MiB', arguments={{'note': {str(note)!r}}})"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 120
    while not (note.exists() and note.read_text(encoding="utf-8").count(" ")) and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert gone([int(pid) for pid in note.read_text(encoding="utf-8").split()])


def test_what_cannot_be_sent_is_refused() -> None:
    def inner() -> None: ...

    for target, words in (
        (inner, "write it into a .py file"),
        (lambda: 1, "write it into a .py file"),
        ("no_colon", "module:function"),
        ("no.such.module:f", "cannot be imported"),
        (f"{TARGETS}:nothing", "no function 'nothing'"),
        (f"{TARGETS}:TARGETS.x", "module:function"),
    ):
        with pytest.raises(CourseError, match=words):
            run_limited(target, memory="64 MiB")
    with pytest.raises(CourseError, match="plain data"):
        run("add", a=object(), b=1)
    with pytest.raises(CourseError, match="1 MiB or more"):
        run("add", memory=1000, a=1, b=2)
    with pytest.raises(CourseError, match="thread"):
        run_limited(f"{TARGETS}:add", memory="64 MiB", threads=0)


def test_a_counted_budget_counts_what_is_alive() -> None:
    with CountedBudget(100_000) as budget:
        assert active_budget() is budget
        meter = meter_for("cpu")
        assert isinstance(meter, BudgetMeter)
        meter.begin()
        kept = torch.ones(10_000)  # 40,000 bytes
        view = kept[5:].reshape(-1, 5)
        kept += 1
        assert budget.in_use == 40_000
        del kept
        assert budget.in_use == 40_000
        other = torch.zeros(10_000)
        with pytest.raises(torch.OutOfMemoryError) as raised:
            torch.zeros(10_000)
        assert is_out_of_memory(raised.value)
        assert "emulated" in str(raised.value)
        del view
        assert budget.in_use == other.nbytes
        assert (meter.peak(), meter.limit()) == (80_000, 100_000)
        del other, raised
        assert budget.in_use == 0
    assert active_budget() is None
    assert isinstance(meter_for("cpu"), ProcessMeter)


def test_a_counted_budget_sees_the_backward_pass() -> None:
    model = nn.Sequential(nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 50))
    inputs = torch.ones(4, 50)
    with CountedBudget(10**9) as budget:
        loss = model(inputs).sum()
        after_forward = budget.in_use
        loss.backward()
        gradients = sum(parameter.nbytes for parameter in model.parameters())
        assert after_forward < 4000 < gradients <= budget.in_use
    model.zero_grad()
    with CountedBudget(gradients // 2), pytest.raises(torch.OutOfMemoryError):
        model(inputs).sum().backward()


def test_counting_changes_no_result() -> None:
    plain, counted = run("same_loss", seed=3).value
    assert plain == counted


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(CourseError, match="cpu, cuda, mps or xpu"):
        meter_for("meta")


def test_a_checkpointed_gpt_needs_less_memory_in_a_child() -> None:
    text = {"batch_size": 8, "steps": 2, "context": 128}
    target = "course_lib.train.limits.limited_training:train_text_steps"
    plain, checked = (
        run_limited(target, memory="512 MiB", arguments=text | {"checkpointing": checkpointing})
        for checkpointing in (False, True)
    )
    assert plain.outcome == checked.outcome == "done", (plain.error, checked.error)
    assert plain.peak_bytes is not None
    assert checked.peak_bytes is not None
    assert checked.peak_bytes < 0.7 * plain.peak_bytes
    assert plain.value > 0


def test_the_value_is_had_only_where_there_is_one() -> None:
    run = LimitedRun("m:f", 2**20, "RLIMIT_DATA", "done", 7, None, 10, 0.1, "")
    assert run.completed() == 7
    with pytest.raises(CourseError, match="ended as out of memory within 1 MiB: no room"):
        replace(run, outcome="out of memory", value=None, error="no room").completed()
