"""Ends of a job outside of the training, and one known thing with two signs: which finding comes first?"""

import pytest

from course_lib.diagnose.recognise import explain
from course_lib.train.ranks.launch_result import LaunchError, LaunchRun, RankError

FAILED = "E0130 api.py:1002] failed (exitcode: {code}) local_rank: 1 (pid: 4712) of binary: python\n"
SLURM = "slurmstepd: error: *** JOB 4711 ON node7 CANCELLED AT 2026-01-30T12:39:21 DUE TO {why} ***\n"
OPTIONS = "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --lrr 3\n"
NCCL = "torch.distributed.DistBackendError: NCCL error in: ../PG.cpp:1275, {0}, NCCL version 2.21.5\n"
NO_INTERFACE = "node7:1:2 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n"
NO_PEER = "node7:1:2 [0] NCCL WARN Cuda failure 'peer access is not supported between these two devices'\n"
LOST = "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:24455"

CASES = [
    (
        SLURM.format(why="TIME LIMIT") + "SignalException: Process 77 got signal: 15",
        "slurm.ended_the_job",
        "--time",
    ),
    (SLURM.format(why="PREEMPTION"), "slurm.ended_the_job", "--requeue"),
    (SLURM.format(why="NODE FAILURE"), "slurm.ended_the_job", "--exclude"),
    (
        "python: can't open file '/home/me/trian.py': [Errno 2] No such file or directory\n"
        + FAILED.format(code=2),
        "torchrun.script_not_found",
        "spelling",
    ),
    (OPTIONS + FAILED.format(code=2), "torchrun.wrong_arguments", "--help"),
    ("OSError: [Errno 28] No space left on device: '/tmp/pymp-xyz'", "host.temporary_folder_full", "TMPDIR"),
    ("OSError: [Errno 28] No space left on device: 'logs/out.csv'", "host.disk_full", "df -h"),
    ("OSError: [Errno 28] No space left on device: 'runs/model.pt'", "checkpoint.disk_full", "df -h"),
    ("OSError: [Errno 28] No space left on device", "checkpoint.disk_full", "df -h"),
    (NO_PEER + NCCL.format("unhandled cuda error"), "nccl.no_peer_access", "NCCL_P2P_DISABLE=1"),
    (NO_PEER, "nccl.no_peer_access", "NCCL_P2P_DISABLE=1"),
    (NO_INTERFACE + NCCL.format("internal error"), "nccl.no_network_interface", "NCCL_SOCKET_IFNAME"),
    (NO_INTERFACE + NCCL.format("unhandled system error"), "nccl.no_network_interface", "NCCL_SOCKET_IFNAME"),
    (
        "Only 1 of 2 ranks came within 20 s: start as many as WORLD_SIZE says, on all computers.",
        "ddp.rank_missing_at_start",
        "nproc_per_node",
    ),
    (
        "Port 29511 is in use by another program, perhaps another training: choose another MASTER_PORT.",
        "ddp.port_in_use",
        "another port",
    ),
    (
        "The ranks did not find each other at 10.0.0.7:29500 within 20 s: is WORLD_SIZE (2) right?",
        "ddp.store_unreachable",
        "rank 0",
    ),
]


@pytest.mark.parametrize(("text", "expected", "remedy"), CASES)
def test_each_end_has_its_finding_and_its_remedy(text: str, expected: str, remedy: str) -> None:
    first, *others = explain(text).findings
    assert (first.id, first.severity) == (expected, "problem")
    assert remedy in str(first.first_remedy)
    assert all(other.severity == "note" for other in others)


def test_figures_of_such_texts() -> None:
    def figures(text: str) -> dict[str, object]:
        return dict(explain(text).readings[0].figures)

    assert figures(SLURM.format(why="TIME LIMIT"))["job"] == "4711"
    assert figures(CASES[3][0])["path"] == "/home/me/trian.py"
    assert figures(CASES[-3][0]) | {"joined": 1, "world_size": 2} == figures(CASES[-3][0])
    assert figures(CASES[-2][0])["port"] == 29511
    assert figures(CASES[-1][0]) | {"host": "10.0.0.7", "port": 29500} == figures(CASES[-1][0])


@pytest.mark.parametrize(
    ("cause", "sign", "ids"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n",
            "RuntimeError: CUDA error: unspecified launch failure\n",
            ["hardware.gpu_lost", "cuda.launch_failed"],
        ),
        (
            "[123.4] Out of memory: Killed process 4712 (python) total-vm:100kB, anon-rss:67108864kB\n",
            FAILED.format(code=-9),
            ["oom.host_killed", "host_oom_killer"],
        ),
    ],
)
def test_two_signs_of_one_thing_are_one_problem(cause: str, sign: str, ids: list[str]) -> None:
    for text in (cause + sign, sign + cause):
        findings = explain(text).findings
        assert [finding.id for finding in findings] == ids
        assert [finding.severity for finding in findings] == ["problem", "note"]
    assert explain(sign).findings[0].severity == "problem"


def test_an_error_before_the_time_limit_is_the_cause() -> None:
    own = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 3, in f\n'
        "[rank1]: KeyError: 'image'\n"
    )
    first, second = explain(own + SLURM.format(why="TIME LIMIT")).findings
    assert first.summary.startswith("Rank 1 raised an error of its own at t.py, line 3, in f: KeyError")
    assert (second.id, second.severity) == ("slurm.ended_the_job", "note")


def launch_of(*errors: RankError) -> LaunchRun:
    return LaunchRun("targets:main", 2, "failed", 3.0, (), errors, (), ())


@pytest.mark.parametrize(
    ("error", "expected", "word"),
    [
        (
            RankError(1, "exception", "KeyError: 'image'", "t.py, line 3, in f"),
            "torchrun.rank_raised_an_error",
            "t.py, line 3, in f",
        ),
        (
            RankError(1, "exception", "NoSuchSample: sample 3", "t.py, line 3"),
            "torchrun.rank_raised_an_error",
            "NoSuchSample",
        ),
        (RankError(1, "killed", "SIGKILL, often for lack of memory", ""), "host_oom_killer", "dmesg"),
        (RankError(1, "killed", "SIGSEGV", ""), "torchrun.native_crash", "faulthandler"),
        (RankError(1, "hung", "not done after 40 s", "t.py, line 206, in f"), "launch.rank_hung", "line 206"),
        (RankError(1, "exited", "exit status 7", ""), "torchrun.rank_ended_itself", "rank 1"),
        (
            RankError(
                1,
                "exception",
                f"{LOST}; rank 0 had come to its end: fewer steps than the others?",
                "t.py, line 9, in f",
            ),
            "ddp.peer_ended_without_error",
            "len(loader)",
        ),
    ],
)
def test_what_a_launch_prints_can_be_pasted(error: RankError, expected: str, word: str) -> None:
    run = launch_of(error, RankError(0, "exception", LOST, "t.py, line 9, in f", secondary=True))
    for text in (
        str(LaunchError(run)),
        f"course_lib.train.ranks.launch_result.LaunchError: {LaunchError(run)}",
        str(run),
    ):
        finding = explain(text).findings[0]
        assert (finding.id, finding.severity) == (expected, "problem")
        assert word in str(finding.first_remedy)
        if expected.endswith("an_error"):
            assert finding.summary.startswith("Rank 1 raised")
