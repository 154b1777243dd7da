"""Which error is the first cause: from what ranks wrote, where they were, and how they ended."""

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from course_lib.train.ranks.launch_result import LaunchError, LaunchRun, RankError, place_in, sort_errors

LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:17320"
WAITED = (
    "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 2000ms for recv operation"
)
SLEEPING = 'Stack (most recent call first):\n  File "/home/me/train.py", line 7 in load\n'
IN_ALL_REDUCE = (
    "Stack (most recent call first):\n"
    '  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 3038 in all_reduce\n'
    '  File "/home/me/train.py", line 9 in step\n'
)


def failed(text: str, time: float, where: str = "train.py, line 3, in step") -> dict[str, Any]:
    return {"state": "failed", "text": text, "where": where, "trace": "", "time": time}


ABSENT: dict[str, Any] = {"state": "absent"}
RUNNING, DONE = {"state": "running"}, {"state": "done", "value": None}


def test_an_own_error_comes_before_a_lost_connection_though_it_was_written_later() -> None:
    errors = sort_errors([failed(LOST, 1.0), failed("ValueError: bad label", 2.0)], {})
    assert [(e.rank, e.secondary) for e in errors] == [(1, False), (0, True)]


def test_of_two_own_errors_the_earlier_one_is_first() -> None:
    errors = sort_errors([failed("ValueError: a", 2.0), failed("ValueError: b", 1.0)], {})
    assert [e.rank for e in errors] == [1, 0]


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_killed_rank_is_the_cause_of_lost_connections() -> None:
    errors = sort_errors([failed(LOST, 1.0), RUNNING], {}, {1: -9})
    assert str(errors[0]) == "Rank 1 was killed: SIGKILL, often for lack of memory"
    assert [e.secondary for e in errors] == [False, True]
    (first, _) = sort_errors([failed(LOST, 1.0), RUNNING], {})
    assert (first.rank, first.kind) == (1, "killed"), "also where nobody saw the status"


def test_a_rank_that_did_not_come_hung_and_is_told_with_its_place() -> None:
    errors = sort_errors([failed(WAITED, 1.0), RUNNING], {1: SLEEPING})
    assert str(errors[0]) == "Rank 1 hung: it did not come to the exchange (train.py, line 7, in load)"
    assert errors[1].secondary


def test_when_the_time_is_over_the_rank_outside_of_a_collective_is_the_cause() -> None:
    errors = sort_errors([RUNNING, RUNNING], {0: IN_ALL_REDUCE, 1: SLEEPING}, {}, "not done after 5 s")
    assert [(e.rank, e.kind, e.secondary) for e in errors] == [(1, "hung", False), (0, "hung", True)]
    assert errors[1].where == "train.py, line 9, in step"


def test_a_rank_that_the_agent_ended_is_no_cause() -> None:
    errors = sort_errors([RUNNING, failed("ValueError: bad", 1.0)], {0: IN_ALL_REDUCE})
    assert [(e.rank, e.kind, e.secondary) for e in errors] == [(1, "exception", False), (0, "ended", True)]


def test_a_connection_lost_to_a_rank_that_was_done_points_at_uneven_data() -> None:
    (error,) = sort_errors([failed(LOST, 1.0), DONE], {})
    assert not error.secondary
    assert error.text.endswith("rank 1 had come to its end: fewer steps than the others?")


def test_an_exit_status_without_an_exception_is_told() -> None:
    (error,) = sort_errors([DONE, {"state": "absent"}], {}, {1: 3})
    assert str(error) == "Rank 1 ended: exit status 3"


@pytest.mark.parametrize("status", [1, 7, 134])
def test_a_rank_that_ended_with_a_status_of_its_own_was_not_killed(status: int) -> None:
    errors = sort_errors([RUNNING, failed(LOST, 1.0)], {}, {0: status, 1: 1})
    assert str(errors[0]) == f"Rank 0 ended: exit status {status}"
    assert [(e.rank, e.secondary) for e in errors] == [(0, False), (1, True)]


def test_a_rank_that_left_in_the_middle_with_status_0_is_told() -> None:
    errors = sort_errors([RUNNING, failed(LOST, 1.0)], {}, {0: 0, 1: 1})
    assert str(errors[0]) == "Rank 0 ended: exit status 0, and it did not say that it was done"


@pytest.mark.parametrize("late_one", [RUNNING, ABSENT])
@pytest.mark.parametrize(
    ("cause", "status"), [(failed("ValueError: bad", 1.0), 1), (RUNNING, 7), (RUNNING, -9)]
)
def test_the_agents_own_end_of_a_rank_that_still_starts_is_no_kill(
    late_one: dict[str, Any], cause: dict[str, Any], status: int
) -> None:
    errors = sort_errors([cause, late_one], {}, {0: status, 1: -15})
    assert [(e.rank, e.secondary) for e in errors] == [(0, False), (1, True)]
    assert str(errors[1]) == "Rank 1 ended: the agent ended it with the others"


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_rank_that_somebody_else_ended_was_killed() -> None:
    errors = sort_errors([failed(LOST, 1.0), RUNNING], {}, {0: 1, 1: -15})
    assert str(errors[0]) == "Rank 1 was killed: SIGTERM"
    (alone,) = sort_errors([RUNNING], {}, {0: -15})
    assert alone.kind == "killed"


def test_a_rank_that_handles_the_agents_signal_itself_hung_where_others_waited() -> None:
    errors = sort_errors([failed(WAITED, 1.0), RUNNING], {}, {0: 1, 1: -15})
    assert str(errors[0]) == "Rank 1 hung: it did not come to the exchange"


def test_all_well_is_no_error() -> None:
    assert sort_errors([DONE, DONE], {}) == ()


def test_the_place_is_the_learners_line_and_not_a_librarys() -> None:
    assert place_in(IN_ALL_REDUCE) == "train.py, line 9, in step"
    assert place_in("nothing") == ""
    launcher = 'File "/home/me/course_lib/train/ranks/{}", line 9 in wait\n'
    of_launch = "".join(launcher.format(name) for name in ("launch.py", "launch_rank.py", "launch_agent.py"))
    assert place_in(of_launch + SLEEPING) == "train.py, line 7, in load"
    assert place_in(launcher.format("launcher.py")) == "launcher.py, line 9, in wait"


def test_the_sentence_names_the_first_error_and_who_followed() -> None:
    errors = sort_errors([failed(LOST, 1.0), failed("ValueError: bad <label>", 2.0)], {})
    run = LaunchRun("m:f", 2, "failed", 1.0, (), errors, (errors,), ((1, "hello"), (None, "agent")))
    assert str(LaunchError(run)) == (
        "Rank 1 failed: ValueError: bad <label> (train.py, line 3, in step). Rank 0 ended as a consequence."
    )
    assert run.first_error == errors[0]
    assert run.lines(1) == ["hello"]
    assert "started anew 1 time" in str(run)
    assert "m:f on 1 rank: failed" in str(replace(run, world_size=1))
    assert "bad &lt;label&gt;" in run._repr_html_()
    assert json.loads(run.to_json())["restarts"] == 1
    assert RankError(0, "killed", "SIGKILL", "").trace == ""
