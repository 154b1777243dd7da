"""Which of several errors in one paste is the cause, and which only follow from it?

In a job on several ranks one failure brings many messages: the others time out, lose their connections, and
the launcher reports whom it ended. The order below goes from what states a cause to what only reports an end.
"""

from collections.abc import Sequence
from dataclasses import replace

from course_lib.diagnose.finding import Finding

# 0 is a cause; a higher number is explained by any lower one in the same paste.
_LEVELS = {
    "oom.masked_by_cublas": 1,
    "oom.masked_by_cudnn": 1,
    "oom.masked_by_nccl": 1,
    "cuda.library_call_failed": 1,
    "nccl.unhandled_cuda_error": 1,
    "nccl.unhandled_system_error": 1,
    "nccl.internal_error": 1,
    "torchrun.rank_raised_an_error": 1,
    "torchrun.rank_ended_itself": 2,
    "slurm.ended_the_job": 2,
    "ddp.rank_missing_at_start": 2,
    "ddp.store_unreachable": 2,
    "dataloader.worker_died_unknown": 2,
    "dataloader.error_in_dataset": 2,
    "dataloader.pin_memory_thread_died": 2,
    "dataloader.worker_aborted": 1,
    "dataloader.child_got_nothing": 2,
    "dataloader.child_died_at_start": 2,
    "dp.error_in_a_replica": 2,
    "nccl.desync": 2,
    "nccl.deadlock_not_slow": 3,
    "nccl.one_rank_missing_or_slow": 3,
    "gloo.one_rank_missing_or_slow": 3,
    "gloo.ranks_cannot_connect": 3,
    "nccl.watchdog_stuck": 4,
    "ddp.peer_ended_without_error": 4,
    "ddp.secondary_failure": 5,
    "dataloader.worker_terminated": 6,
    "dataloader.other_process_gone": 6,
    "torchrun.aborted": 6,
    "torchrun.terminated_from_outside": 6,
    "torchrun.rank_failed_error_above": 8,
}
# What a rank that raised an exception leaves behind on the others; the rest are causes of their own.
_AFTER_AN_EXCEPTION = frozenset(
    [
        "ddp.rank_missing_at_start",
        "ddp.store_unreachable",
        "nccl.desync",
        "nccl.unhandled_system_error",
        "nccl.internal_error",
        "slurm.ended_the_job",
        "torchrun.rank_ended_itself",
    ]
)
_NOT_IN_THE_TEXT = "torchrun.rank_failed_error_above"
_FROM_HERE_CONSEQUENCES = 3
# Two signs of one thing: the first only follows from the second.
_BROKEN_CARD = ("hardware.gpu_lost", "hardware.memory_errors", "hardware.nvlink_error", "hardware.xid")
_SIGN_OF: dict[str, tuple[str, ...]] = {
    "host_oom_killer": ("oom.host_killed",),
    "cuda.launch_failed": _BROKEN_CARD,
    "cuda.unknown_error": _BROKEN_CARD,
    "cuda.illegal_memory_access": _BROKEN_CARD,
}


def is_consequence(id: str) -> bool:
    """Whether a finding of that name may follow from an exception on another rank."""
    return id in _AFTER_AN_EXCEPTION or _LEVELS.get(id, 0) >= _FROM_HERE_CONSEQUENCES


def echoes_last(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with those that only follow from another one turned into notes without remedies."""
    problems = [finding for finding in findings if finding.severity == "problem"]
    if any(not is_consequence(finding.id) for finding in problems):
        # One finding says that the error is not in the text; it is there.
        problems = [finding for finding in problems if finding.id != _NOT_IN_THE_TEXT]
        findings = [finding for finding in findings if finding.id != _NOT_IN_THE_TEXT]
    if len(problems) < 2:
        return list(findings)
    levels = {finding.id: _level(finding.id, problems) for finding in problems}
    cause = min(problems, key=lambda finding: levels[finding.id])
    return [
        _echo(finding, cause) if finding in problems and levels[finding.id] > levels[cause.id] else finding
        for finding in findings
    ]


def _level(id: str, problems: Sequence[Finding]) -> int:
    others = [finding.id for finding in problems if finding.id != id]
    return 1 if any(other in _SIGN_OF.get(id, ()) for other in others) else _LEVELS.get(id, 0)


def _echo(finding: Finding, cause: Finding) -> Finding:
    return replace(
        finding,
        summary=f"An echo, not the cause. {finding.summary}",
        why=f"It follows from what stands above ({cause.summary}).",
        remedies=(),
        severity="note",
    )
