"""Which error does a paste hold: DDP, NCCL, torchrun, AMP, loaders, checkpoints, autograd, CUDA?

Each module knows the wordings of one part of PyTorch; rank_errors.py names what a rank raised that none of
them knows, uncaught.py what a single process raised; root_cause.py tells the cause from what follows from it.
A new wording is one line in the WORDINGS of its module.
"""

from course_lib.diagnose.faults import (
    amp,
    autograd,
    batches,
    benign,
    checkpoint,
    course_launch,
    cuda,
    cuda_library,
    dataloader,
    ddp,
    device_numbers,
    gloo,
    job_start_and_end,
    lost_peer,
    nccl,
    nccl_errors,
    nccl_log,
    ports,
    processes,
    rank_errors,
    rendezvous,
    sharding,
    state_dict,
    tensors,
    torchrun,
)
from course_lib.diagnose.faults.wording import Wording
from course_lib.diagnose.finding import Reading
from course_lib.diagnose.paste import Paste

KIND = rank_errors.KIND
WORDINGS: tuple[Wording, ...] = (
    *cuda.WORDINGS,
    *cuda_library.WORDINGS,
    *processes.WORDINGS,
    *dataloader.WORDINGS,
    *batches.WORDINGS,
    *amp.WORDINGS,
    *autograd.WORDINGS,
    *tensors.WORDINGS,
    *checkpoint.WORDINGS,
    *state_dict.WORDINGS,
    *ddp.WORDINGS,
    *device_numbers.WORDINGS,
    *sharding.WORDINGS,
    *gloo.WORDINGS,
    *lost_peer.WORDINGS,
    *ports.WORDINGS,
    *rendezvous.WORDINGS,
    *nccl.WORDINGS,
    *nccl_errors.WORDINGS,
    *nccl_log.WORDINGS,
    *job_start_and_end.WORDINGS,
    *course_launch.WORDINGS,
    *torchrun.WORDINGS,
    *benign.WORDINGS,
)


def read(paste: Paste) -> list[Reading]:
    """One Reading for each different error in the text."""
    readings: dict[str, Reading] = {}
    for wording in WORDINGS:
        found = wording.read(paste)
        if found is None:
            continue
        around, told = found
        readings.setdefault(
            told.finding.id,
            Reading(
                kind=KIND,
                figures=told.figures,
                derived=told.derived,
                first_line=around.first_line,
                last_line=around.last_line,
                findings=(told.finding,),
                source=told,
            ),
        )
    return list(readings.values())
