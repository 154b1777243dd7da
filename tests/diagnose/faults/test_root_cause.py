"""One failure of a rank brings many messages: the cause stands first, its echoes are notes."""

import itertools

import pytest

from course_lib.diagnose.recognise import explain

OOM = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
    "capacity of 23.60 GiB of which 1.10 GiB is free. Including non-PyTorch memory, this process has 22.40 "
    "GiB memory in use. Of the allocated memory 21.50 GiB is allocated by PyTorch, and 300.00 MiB is "
    "reserved by PyTorch but unallocated."
)
WAITED = (
    "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=120, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 "
    "milliseconds before timing out."
)
LOST = "[rank2]: RuntimeError: [../gloo/transport/tcp/pair.cc:589] Connection closed by peer [10.0.0.1]:4411"
LAUNCHER = (
    "E failed (exitcode: 1) local_rank: 1 (pid: 4711) of binary: "
    "python\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
)
LABEL = (
    "Loss.cu:240: Assertion `t >= 0 && t < n_classes` failed.\nRuntimeError: CUDA error: device-side "
    "assert triggered\nRuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"
)
PICKLE = (
    "AttributeError: Can't pickle local object 'data.<locals>.<lambda>'\n"
    '  File "C:\\lib\\multiprocessing\\spawn.py", line 116, in spawn_main\n'
    "EOFError: Ran out of input"
)


@pytest.mark.parametrize("order", list(itertools.permutations([OOM, WAITED, LOST, LAUNCHER])))
def test_the_cause_is_first_in_whatever_order_the_ranks_print(order: tuple[str, ...]) -> None:
    cause, *echoes = explain("\n".join(order)).findings
    assert cause.id == "oom.capacity"
    assert cause.severity == "problem"
    assert {e.id for e in echoes} >= {"nccl.one_rank_missing_or_slow", "ddp.secondary_failure"}
    for echo in echoes:
        assert echo.severity == "note"
        assert echo.remedies == ()
        assert cause.summary in echo.why


def test_alone_each_echo_is_the_diagnosis_and_sends_to_the_cause() -> None:
    for text, expected, word in (
        (WAITED, "nccl.one_rank_missing_or_slow", "rank"),
        (LOST, "ddp.secondary_failure", "earliest"),
        (LAUNCHER, "torchrun.rank_failed_error_above", "Traceback"),
    ):
        finding = explain(text).findings[0]
        assert (finding.id, finding.severity) == (expected, "problem")
        assert word in str(finding.first_remedy)


def test_an_error_that_is_not_known_is_shown_as_the_rank_s_own() -> None:
    finding = explain(f"[rank1]: ValueError: the moon is full\n{LAUNCHER}").findings[0]
    assert finding.id == "torchrun.rank_raised_an_error"
    assert "ValueError: the moon is full" in finding.why


def test_a_library_that_fails_after_an_assert_is_not_the_cause() -> None:
    assert [f.id for f in explain(LABEL).findings] == ["cuda.label_out_of_range"]


def test_the_child_that_got_nothing_is_not_a_damaged_file() -> None:
    (finding,) = explain(PICKLE).findings
    assert finding.id == "dataloader.unpicklable_under_spawn"
    lone = explain(PICKLE.partition("\n")[2]).findings[0]
    assert lone.id == "dataloader.child_got_nothing"
    file = explain("obj = torch.load('last.pt')\nEOFError: Ran out of input").findings[0]
    assert file.id == "checkpoint.file_damaged"


def test_the_missing_rank_is_named_by_the_progress_of_the_others() -> None:
    progress = (
        "[rank{0}]:[E ProcessGroupNCCL.cpp:1664] [PG 0 Rank {0}] Exception (either an error or timeout) "
        "detected by watchdog at work: 120, last enqueued NCCL work: {1}, last completed NCCL work: {2}."
    )
    behind = explain("\n".join((WAITED, progress.format(0, 121, 119), progress.format(3, 118, 118))))
    assert "Rank 3 has not come to collective 120" in behind.findings[0].why
    agreed = explain("\n".join((WAITED, progress.format(0, 121, 119), progress.format(3, 121, 119))))
    assert "Ranks 0, 3 agree" in agreed.findings[0].why
    assert "agree" not in explain(WAITED).findings[0].why


def test_a_warning_does_not_make_an_echo_of_an_error() -> None:
    text = "UserWarning: Grad strides do not match bucket view strides.\n" + WAITED
    first, second = explain(text).findings
    assert (first.id, first.severity) == ("nccl.one_rank_missing_or_slow", "problem")
    assert second.severity == "note"
    assert second.remedies
