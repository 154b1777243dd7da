"""Whatever ordinary exception one rank raised is the cause; lost connections, waits and signals follow it.

The texts are shortened from what torchrun and gloo print when a rank of a real training fails that way.
"""

import itertools

import pytest

from course_lib.diagnose.faults.tracebacks import raised
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.recognise import explain

ID = "torchrun.rank_raised_an_error"
OWN = """Traceback (most recent call last):
  File "/home/me/train.py", line 42, in <module>
    main()
  File "/home/me/train.py", line 17, in main
    sample = pick(step)
             ^^^^^^^^^^
  File "/opt/env/lib/python3.12/site-packages/pandas/core/frame.py", line 4102, in __getitem__
    indexer = self.columns.get_loc(key)
{error}"""
GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
    "[127.0.0.1]:24455. This is typically caused by a remote worker crashing."
)
LOST = f"""Traceback (most recent call last):
  File "/home/me/train.py", line 42, in <module>
    main()
  File "/home/me/train.py", line 19, in main
    loss.backward()
  File "/opt/env/lib/python3.12/site-packages/torch/_tensor.py", line 623, in backward
    torch.autograd.backward(
{GLOO}"""
WATCHDOG = (
    "[rank0]:[E1130 12:39:21.935 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=26, NumelOut=26, Timeout(ms)=600000) ran for "
    "600029 milliseconds before timing out."
)
ERRORS = (
    "IndexError: list index out of range",
    "KeyError: 'image'",
    "ValueError: the mean of an empty set",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/7.jpg'",
    "PermissionError: [Errno 13] Permission denied: 'runs/ckpt.pt'",
    "AssertionError",
    "NotImplementedError",
    "__main__.NoSuchSample: sample 3 is not on this disk",
    "NoSuchSample: sample 3 is not on this disk",
    "data.records.Broken",
    "RuntimeError: the moon is full",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub'): Connection refused",
    "subprocess.CalledProcessError: Command '['ffmpeg']' returned non-zero exit status 1.",
    "subprocess.TimeoutExpired: Command 'x' timed out after 30 seconds",
)


def labelled(text: str, label: str) -> str:
    return "\n".join(f"{label}{line}" for line in text.split("\n"))


def report(codes: dict[int, int], first: int) -> str:
    """torchrun's words about processes that failed with these exit codes."""

    def block(number: int, rank: int) -> str:
        signal = {-15: "(SIGTERM)", -6: "(SIGABRT)"}.get(codes[rank], "")
        told = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        if signal:
            told = f"Signal {-codes[rank]} {signal} received by PID {4700 + rank}"
        return (
            f"[{number}]:\n  time      : 2026-01-30_12:39:21\n  host      : node7\n  rank      : {rank} "
            f"(local_rank: {rank})\n  exitcode  : {codes[rank]} (pid: {4700 + rank}) {signal}\n  error_file: "
            f"<N/A>\n  traceback : {told}"
        )

    others = [block(n, rank) for n, rank in enumerate((r for r in codes if r != first), start=1)]
    return "\n".join(
        [
            f"E0130 12:39:21.999000 1109 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
            f"(exitcode: {codes[first]}) local_rank: {first} (pid: {4700 + first}) of binary: python",
            "Traceback (most recent call last):",
            '  File "/opt/env/bin/torchrun", line 6, in <module>',
            "    sys.exit(main())",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "=====\ntrain.py FAILED\n-----\nFailures:",
            *(others or ["  <NO_OTHER_FAILURES>"]),
            "-----\nRoot Cause (first observed failure):",
            block(0, first),
            "=====",
        ]
    )


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("ending", ["", report({0: -15, 1: 1}, 1), report({0: -15, 1: -6}, 1)])
def test_any_exception_of_one_rank_stands_above_the_lost_connection(error: str, ending: str) -> None:
    own, lost = labelled(OWN.format(error=error), "[rank1]: "), labelled(LOST, "[rank0]: ")
    for parts in ((own, lost), (lost, own), (own, "terminate called without an active exception", lost)):
        first, *others = explain("\n".join((*parts, ending))).findings
        assert first.id == ID
        assert first.summary.startswith("Rank 1 raised an error of its own at train.py, line 17, in main: ")
        assert error.removeprefix("__main__.") in first.summary
        assert "train.py, line 17" in str(first.first_remedy)
        assert "rank 1" in str(first.first_remedy)
        assert {other.severity for other in others} == {"note"}


def test_lines_of_two_ranks_may_alternate() -> None:
    own = labelled(OWN.format(error="KeyError: 'image'"), "[rank1]: ").split("\n")
    lost = labelled(LOST, "[rank0]: ").split("\n")
    mixed = [line for pair in itertools.zip_longest(own, lost, fillvalue="") for line in pair]
    assert (
        "Rank 1 raised an error of its own at train.py, line 17"
        in explain("\n".join(mixed)).findings[0].summary
    )


@pytest.mark.parametrize(
    ("label", "other", "who"),
    [
        ("[default1]:", "[default0]:", "Local rank 1"),
        ("[default1]:[rank5]: ", "[default0]:[rank4]: ", "Rank 5"),
        ("[rank 1] ", "[rank 0] ", "Rank 1"),
        ("1: ", "0: ", "Task 1"),
        ("node7: [rank1]: ", "node7: [rank0]: ", "Rank 1"),
        ("[1,1]<stderr>:", "[1,0]<stderr>:", "Task 1"),
        ("(RayTrainWorker pid=4712) ", "(RayTrainWorker pid=4711) ", "Process 4712"),
        ("2026-01-30T12:39:21.5Z [rank1]: ", "2026-01-30T12:39:22.5Z [rank0]: ", "Rank 1"),
    ],
)
def test_each_launcher_s_way_to_label_lines(label: str, other: str, who: str) -> None:
    text = labelled(LOST, other) + "\n" + labelled(OWN.format(error="KeyError: 'image'"), label)
    first = explain(text).findings[0]
    assert first.summary.startswith(f"{who} raised an error of its own at train.py, line 17")
    assert "KeyError: 'image'" in first.summary


def test_beside_the_watchdog_the_exception_is_the_cause() -> None:
    text = "\n".join((WATCHDOG, labelled(OWN.format(error="KeyError: 'image'"), "[rank2]: ")))
    first, second = explain(f"{text}\n{report({0: -6, 2: 1}, 2)}").findings
    assert first.summary.startswith("Rank 2 raised")
    assert (second.id, second.severity) == ("nccl.one_rank_missing_or_slow", "note")


def test_unlabelled_tracebacks_that_are_mixed_still_give_the_exception_and_torchrun_the_rank() -> None:
    own = OWN.format(error="PermissionError: [Errno 13] Permission denied: 'ckpt.pt'").split("\n")
    lost = LOST.split("\n")
    mixed = [line for pair in itertools.zip_longest(own, lost, fillvalue="") for line in pair]
    text = "\n".join(mixed)
    assert explain(text).findings[0].summary.startswith("One process raised an error of its own: Permission")
    named = explain(f"{text}\n{report({0: -15, 1: 1}, 1)}").findings[0]
    assert named.summary.startswith("Rank 1 raised an error of its own: PermissionError")
    assert "rank 0 alone" in str(named.first_remedy)


def test_of_two_exceptions_that_of_the_root_cause_counts_else_the_earlier() -> None:
    early = labelled(OWN.format(error="KeyError: 'image'"), "[rank3]: ")
    late = labelled(OWN.format(error="ValueError: no such label"), "[rank1]: ")
    lost = labelled(LOST, "[rank0]: ")
    assert "KeyError" in explain("\n".join((early, late, lost))).findings[0].summary
    text = "\n".join((early, late, lost, report({1: 1, 3: 1}, 1)))
    first = explain(text).findings[0]
    assert first.summary.startswith("Rank 1 raised")
    assert "Rank 3 raised another one: KeyError" in first.why
    stamped = "\n".join(
        (
            labelled(OWN.format(error="ValueError: late"), "2026-01-30T12:39:25Z [rank1]: "),
            labelled(OWN.format(error="KeyError: 'early'"), "2026-01-30T12:39:21Z [rank3]: "),
            labelled(LOST, "2026-01-30T12:39:23Z [rank0]: "),
        )
    )
    assert explain(stamped).findings[0].summary.startswith("Rank 3 raised")


def test_the_same_exception_on_all_ranks_is_told_once() -> None:
    text = "\n".join(labelled(OWN.format(error="KeyError: 'image'"), f"[rank{rank}]: ") for rank in (1, 0))
    first = explain(f"{text}\n{report({0: 1, 1: 1}, 0)}").findings[0]
    assert first.summary.startswith("Ranks 0, 1 raised")


def test_what_follows_a_lost_connection_on_the_same_rank_is_not_its_own() -> None:
    after = f"{LOST}\n\nDuring handling of the above exception, another exception occurred:\n\n" + OWN.format(
        error="ValueError: Default process group is not there"
    )
    assert explain(labelled(after, "[rank0]: ")).findings[0].id == "ddp.secondary_failure"
    both = labelled(after, "[rank0]: ") + "\n" + labelled(OWN.format(error="KeyError: 'image'"), "[rank1]: ")
    assert explain(both).findings[0].summary.startswith("Rank 1 raised")


def test_an_exception_whose_clean_up_lost_the_connection_is_its_own() -> None:
    chain = (
        OWN.format(error="KeyError: 'image'")
        + f"\n\nDuring handling of the above exception, another exception occurred:\n\n{LOST}"
    )
    text = labelled(chain, "[rank1]: ") + "\n" + labelled(LOST, "[rank0]: ")
    first = explain(text).findings[0]
    assert "KeyError: 'image'" in first.summary


def test_a_library_s_fallback_is_not_the_error() -> None:
    chain = (
        "Traceback (most recent call last):\n"
        '  File "/opt/env/lib/python3.12/site-packages/hub/load.py", line 3, in get\n'
        "    return table[name]\nKeyError: 'resnet5'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
    ) + OWN.format(error="ValueError: there is no model resnet5")
    text = labelled(chain, "[rank1]: ") + "\n" + labelled(LOST, "[rank0]: ")
    assert "ValueError: there is no model resnet5" in explain(text).findings[0].summary


def test_an_error_from_a_worker_keeps_its_own_diagnosis() -> None:
    worker = OWN.format(error="OSError: Caught OSError in DataLoader worker process 0.\nOriginal {rest}")
    worker = worker.format(rest=OWN.format(error="OSError: bad jpeg 50"))
    text = labelled(worker, "[rank1]: ") + "\n" + labelled(LOST, "[rank0]: ")
    assert explain(text).findings[0].id == "dataloader.error_in_dataset"
    assert [str(e) for e in raised(Paste.of(text)) if not e.secondary] == ["OSError: bad jpeg 50"]


def test_no_line_of_another_rank_is_taken_for_an_exception() -> None:
    lines = OWN.format(error="KeyError: 'image'").split("\n")
    lines[4:4] = ["Epoch: 3", "Done", "step 4 done"]
    assert [str(e) for e in raised(Paste.of("\n".join(lines)))] == ["KeyError: 'image'"]
    ignored = "Exception ignored in: <function Loader.__del__ at 0x7>\n" + OWN.format(error="KeyError: 'a'")
    assert raised(Paste.of(ignored)) == ()
    assert raised(Paste.of("try:\n    x()\nexcept KeyError: pass\nraise ValueError: no")) == ()


def test_a_rank_that_calls_exit_is_named_with_its_code() -> None:
    text = labelled(LOST, "[rank0]: ") + "\n" + report({0: -15, 1: 3}, 1)
    first, second = explain(text).findings
    assert first.id == "torchrun.rank_ended_itself"
    assert "Rank 1 ended with exit code 3" in first.summary
    assert "sys.exit" in str(first.first_remedy)
    assert (second.id, second.severity) == ("ddp.secondary_failure", "note")


def test_a_code_that_no_exception_gives_is_the_cause_also_without_the_report() -> None:
    """The report is cut off: the log line has the local rank alone."""
    line = "E0130 api.py:1002] failed (exitcode: {}) local_rank: 1 (pid: 4701) of binary: python"
    lost = labelled(LOST, "[rank0]: ")
    first, second = explain(f"{lost}\n{line.format(3)}").findings
    assert first.id == "torchrun.rank_ended_itself"
    assert "Local rank 1 ended with exit code 3" in first.summary
    assert "code 1, so 3 was asked for" in first.why
    assert (second.id, second.severity) == ("ddp.secondary_failure", "note")
    # Code 1 may be an exception that was not pasted; with the exception in the text that one is the cause.
    assert explain(f"{lost}\n{line.format(1)}").findings[0].id != "torchrun.rank_ended_itself"
    own = labelled(OWN.format(error="KeyError: 'image'"), "[rank1]: ")
    assert explain(f"{own}\n{lost}\n{line.format(3)}").findings[0].id == ID


def test_a_peer_that_ended_well_had_fewer_batches() -> None:
    lost = labelled(LOST, "[rank1]: ")
    first = explain(f"{lost}\n{report({1: 1}, 1)}").findings[0]
    assert first.id == "ddp.peer_ended_without_error"
    assert "len(loader)" in str(first.first_remedy)
    assert "fewer batches" in explain(lost).findings[0].why
    # A rank that was killed beside it is another story.
    assert explain(f"{lost}\n{report({0: -9, 1: 1}, 0)}").findings[0].id == "host_oom_killer"


def test_the_report_of_a_recorded_error_gives_rank_and_place() -> None:
    text = (
        labelled(LOST, "[rank0]: ")
        + "\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n-----\nRoot Cause (first "
        "observed failure):\n[0]:\n  time      : 2026-01-30_12:39:21\n  host      : node7\n  rank      : 1 "
        "(local_rank: 1)\n  exitcode  : 1 (pid: 4701)\n  error_file: /tmp/e.json\n  traceback : "
        + OWN.format(error="KeyError: 'image'").replace("\n", "\n  ")
        + "\n====="
    )
    first = explain(text).findings[0]
    assert first.summary.startswith(
        "Rank 1 raised an error of its own at train.py, line 17, in main: KeyError"
    )
