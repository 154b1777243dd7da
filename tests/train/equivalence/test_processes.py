"""Code from a file runs in processes of its own, ranks train together, and none of them is left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from course_lib.errors import CourseError
from course_lib.train.equivalence import Reference, child, prove
from course_lib.train.equivalence.reference import Reference as Same

HERE = Path(__file__).parent


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory):
    """The proofs of rank_runner.CASES, from one start of two ranks."""
    store = tmp_path_factory.mktemp("ranks") / "store"
    command = [sys.executable, str(HERE / "rank_runner.py"), str(store)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, str(rank), "2"], stdout=subprocess.PIPE, text=True, env=environment)
        for rank in range(2)
    ]
    try:
        printed = [rank.communicate(timeout=600)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return json.loads(printed[0])


@pytest.mark.parametrize(
    "name",
    [
        "by_course",
        "by_course, uneven",
        "by_course, far apart",
        "tokens_by_course",
        "windows_of_the_course",
        "no_sync_by_hand",
        "with_an_exit_stack",
        "without_no_sync",
        "gradients_sent_by_hand",
    ],
)
def test_a_right_step_on_two_ranks_raises_nothing(name, of_two_ranks):
    proof = of_two_ranks[name]
    assert proof["faults"] == []
    assert proof["gradient_difference"] <= 1e-10
    assert proof["weight_difference"] <= 1e-10


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("inverted", "no_sync_inverted"),
        ("forward_outside", "no_sync_without_forward"),
        ("never_sent", "never_synchronised"),
        ("divided_by_ranks_too", "divided_by_world_size"),
        ("no_sync_by_hand, uneven", "mean_of_means"),
    ],
)
def test_a_fault_on_two_ranks_is_named(name, kind, of_two_ranks):
    assert [fault["id"] for fault in of_two_ranks[name]["faults"]] == [kind]


def test_no_sync_sends_once_a_window(of_two_ranks):
    once, each = (sum(of_two_ranks[name]["bytes_sent"][0]) for name in ("no_sync_by_hand", "without_no_sync"))
    assert each * 4 == once * 14, "4 windows of 14 micro-batches"
    assert "more than needed" in of_two_ranks["without_no_sync"]["notes"][0]


def test_ranks_that_wait_in_vain_are_ended_and_told():
    before = children()
    proof = prove(f"{HERE / 'rank_steps.py'}:no_sync_by_hand", Reference(ranks=(9, 3)), time_limit_s=600)
    assert [fault.id for fault in proof.faults] == ["ranks_out_of_step"]
    assert "rank 1 made 2 updates and was done" in proof.faults[0].evidence
    assert children() <= before


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import time\ndef train(model, loader, optimizer):\n    time.sleep(60)\n", "not done after 1 s"),
        ("def train(model, loader, optimizer):\n    import os; os._exit(3)\n", "exit status 3"),
    ],
    ids=["hangs", "dies"],
)
def test_a_file_that_misbehaves_is_told(code, told, tmp_path):
    before = children()
    (tmp_path / "bad_step.py").write_text(code, encoding="utf-8")
    limit = 1.0 if "sleep" in code else 120.0
    with pytest.raises(CourseError, match=told):
        prove(str(tmp_path / "bad_step.py"), time_limit_s=limit)
    assert children() <= before


def test_a_module_that_cannot_serve_is_told(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "stops_at_once.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(CourseError, match=r"cannot be imported \(ZeroDivisionError"):
        child._import("stops_at_once")
    own_ranks = SimpleNamespace(reference=Reference(ranks=(2, 2)))
    with pytest.raises(CourseError, match="say them with --ranks"):
        child._reference({"reference": None}, own_ranks)
    with pytest.raises(CourseError, match="these functions do: none"):
        child._step_in(SimpleNamespace(__name__="empty"), "")
    with pytest.raises(CourseError, match="no function 'train'"):
        child._step_in(SimpleNamespace(__name__="empty"), "train")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("no_such_file.py", "There is no file"),
        ("my step", "is no step"),
        ("my_step.py:1x", "no name of a function"),
        ("2nd-step.py", "There is no file"),
    ],
)
def test_a_target_that_is_none_is_told(target, told):
    with pytest.raises(CourseError, match=told):
        prove(target)


def test_a_function_of_a_notebook_cannot_go_to_ranks():
    with pytest.raises(CourseError, match=r"write it into a \.py file"):
        prove(lambda model, loader, optimizer: None, Reference(ranks=(4, 4)))


def test_a_reference_goes_to_another_process_by_names():
    reference = Reference(make_model=Same, ranks=(3, 2), max_norm=0.5)
    assert Reference.from_plain(json.loads(json.dumps(reference.to_plain()))) == reference
    with pytest.raises(CourseError, match="make_model must be a function at the top"):
        Reference(make_model=lambda: None).to_plain()
