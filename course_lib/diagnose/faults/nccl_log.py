"""What do NCCL's own log lines (NCCL_DEBUG) say, where torch's error is not in the text?"""

from course_lib.diagnose.faults.nccl_errors import peer_gone, peer_is_gone, system_error
from course_lib.diagnose.faults.wording import Around, Told, wording

_OF_TORCH = (
    "unhandled system error",
    "ncclSystemError",
    "ncclRemoteError",
    "ncclInternalError",
    "internal error",
)


def _warned(around: Around) -> Told | None:
    """A line with WARN about a connection; what torch made of it is read in nccl_errors.py."""
    if around.says(*_OF_TORCH):
        return None
    return peer_gone(around) if peer_is_gone(around) else system_error(around)


WORDINGS = (
    wording(
        (
            "NCCL WARN socketStartConnect: Connect to",
            "NCCL WARN socketPollConnect",
            "NCCL WARN socketProgress",
            "NCCL WARN Call to connect",
            "NCCL WARN Net : Connect to",
            "NCCL WARN Net : Connection closed by remote peer",
            "NCCL WARN Bootstrap : no socket interface",
        ),
        _warned,
    ),
)
