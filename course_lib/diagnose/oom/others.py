"""Is the memory held by somebody else, or forbidden to this process?

Each function answers with a Finding, or None where its case does not apply.
"""

from course_lib.diagnose.finding import Finding
from course_lib.diagnose.oom.arithmetic import USUAL_CONTEXT_MIB, Arithmetic
from course_lib.diagnose.oom.message import AllocatorMessage
from course_lib.diagnose.oom.words import (
    ALLOCATOR_SETTINGS,
    EMPTY_CACHE,
    LAST_STRAW,
    LOWER_PEAK,
    NOT_IN_THE_FIGURES,
    device,
    evidence,
    process_lister,
)
from course_lib.diagnose.size import show_mib

_MOSTLY_OUTSIDE = 0.5  # more than half of the card is somebody else's
_OUTSIDE_MATTERS = 0.08  # of the card; less could not have made the difference
_LEAST_OUTSIDE_MIB = 1024.0
# Where nobody is named, so much may be the context, other libraries of this process and a desktop together.
_MAY_BE_NOBODY_MIB = 2560.0 - USUAL_CONTEXT_MIB
_SLACK_MATTERS = 0.05


def ranks_on_one_card(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """Several other processes hold the same small share: ranks of this job."""
    if sums.equal_processes < 2:
        return None
    others = sums.other_processes_total_mib or 0.0
    each = show_mib(others / max(sums.other_processes_count or 1, 1))
    return Finding(
        id="ddp.every_rank_has_a_context_on_gpu0",
        summary=f"{sums.equal_processes} other ranks each hold a context on {device(message)}",
        why=f"{sums.equal_processes} other processes hold almost the same {each} here, {show_mib(others)} "
        "in all. Equal small shares are the mark of this job's own ranks (its processes, one for each card): "
        "each opened a context and communication buffers on this card, because its device was not set before "
        "the first CUDA or NCCL call.",
        remedies=(
            "Call torch.cuda.set_device(local_rank) (or set CUDA_VISIBLE_DEVICES per rank) before anything "
            "touches CUDA or NCCL.",
            "Give torch.load a map_location (the rank's own device, or cpu), and barrier() its device_ids.",
        ),
        not_helpful=(
            "A smaller batch: the memory is in contexts, not in activations.",
            "max_split_size_mb or expandable_segments.",
            "Killing the other processes as strangers: they are ranks of this job.",
        ),
        evidence=evidence(message),
        certainty="certain" if sums.equal_processes >= 3 else "likely",
    )


def process_limit(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """The process has a limit of its own, and the request would pass it."""
    allowed, tried = message.mib("allowed"), message.mib("tried_to_allocate")
    total = message.mib("total_capacity")
    if allowed is None or tried is None or (total is not None and tried >= total):
        return None  # what the whole card could not give is no question of the limit
    reserved = message.mib("allocated") if sums.reserved_total_mib is None else sums.reserved_total_mib
    free, slack = message.mib("free"), sums.reserved_unallocated_mib
    if free is not None and free < tried and (reserved is None or reserved + tried <= allowed):
        return None  # the card itself was full before the limit was reached
    held = "" if reserved is None else f" PyTorch holds {show_mib(reserved)} of them already."
    room = "" if free is None else f" The card itself has {message.free} free."
    inside = ""
    if slack is not None and slack >= tried and slack >= _SLACK_MATTERS * allowed:
        inside = (
            f" Of that, {show_mib(slack)} is unused, yet not in one piece of {message.tried_to_allocate}: "
            "gaps inside the limit add to it."
        )
    return Finding(
        id="oom.process_limit",
        summary=f"This process may use {message.allowed} only, and has reached that limit",
        why=f"The process is limited to {message.allowed} (set_per_process_memory_fraction, or the part of "
        f"the card it was given); {message.tried_to_allocate} more would pass it.{held}{inside}{room}",
        remedies=(
            "Raise or remove the limit: look for torch.cuda.set_per_process_memory_fraction, for "
            "PYTORCH_CUDA_ALLOC_CONF with per_process_memory_fraction, or for the scheduler that sets it.",
            f"If the limit is meant, fit into it: {LOWER_PEAK}.",
        ),
        not_helpful=(
            "A larger card, or freeing other processes' memory: the limit would stay.",
            EMPTY_CACHE,
        ),
        evidence=evidence(message),
    )


def unified_memory(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """Card and computer share one memory, and the rest is used there."""
    total = message.mib("total_capacity")
    if total is None or not is_outside_use(message, sums) or not _looks_unified(message, total):
        return None
    return Finding(
        id="oom.unified_memory_shared_with_host",
        summary="The card shares its memory with the computer, and the rest is used there",
        why=f"{show_mib(sums.reserved_total_mib or 0.0)} of {message.total_capacity} belong to this "
        f"allocator and {message.free} is free; {show_mib(sums.unaccounted_mib or 0.0)} are used elsewhere. "
        "On a part with unified memory that is the operating system, its page cache, the model file read "
        "into host memory or pinned copies, not necessarily a second job.",
        remedies=(
            "Look at the computer's own memory (free -h) as well as "
            f"{'rocm-smi' if message.backend == 'hip' else process_lister(message)}; close programs, and "
            "avoid a second copy of the weights in host memory (load with mmap, do not pin).",
            f"Then lower the peak: {LOWER_PEAK}.",
        ),
        not_helpful=(
            "Killing a supposed other GPU process without looking.",
            ALLOCATOR_SETTINGS,
        ),
        evidence=evidence(message),
        certainty="likely",
    )


def other_process(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """Most of the card is held by somebody else."""
    total, tried = message.mib("total_capacity"), message.mib("tried_to_allocate")
    outside = sums.outside_mib
    if total is None or outside is None or (tried is not None and tried > total):
        return None
    held = sums.reserved_total_mib
    if outside < _MOSTLY_OUTSIDE * total and not (
        is_outside_use(message, sums) and held is not None and held < 0.25 * outside
    ):
        return None
    named = ""
    if message.other_processes:
        largest = max(message.other_processes, key=lambda other: other.in_use.mib)
        named = f" The message names process {largest.pid} with {largest.in_use}."
    mine = "" if held is None else f", while this process's allocator holds {show_mib(held)}"
    return Finding(
        id="oom.other_process",
        summary=f"Another process holds most of {device(message)}",
        why=f"About {show_mib(outside)} of {message.total_capacity} is held by something other than this "
        f"process{mine}.{named} It may be another job, a notebook left open, or a run that did not end.",
        remedies=(
            f"List the processes on the card ({process_lister(message)}) and end your own leftovers, wait "
            "for the others, or move to a free card.",
        ),
        not_helpful=(
            "A smaller batch: the memory is not this process's.",
            EMPTY_CACHE,
            ALLOCATOR_SETTINGS,
        ),
        evidence=evidence(message),
        certainty="likely" if sums.outside_by_difference else "certain",
    )


def outside_and_full(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """This process fills the card, but a good part is somebody else's."""
    if not is_outside_use(message, sums) or sums.reserved_total_mib is None:
        return None
    # With no clause about this process, the context of this one is part of what lies outside.
    outside = sums.other_processes_mib if sums.other_processes_mib is not None else sums.unaccounted_mib
    return Finding(
        id="oom.capacity_plus_outside_use",
        summary=f"{device(message)} is full, and {show_mib(outside or 0.0)} of it is not this allocator's",
        why=f"PyTorch holds {show_mib(sums.reserved_total_mib)} of {message.total_capacity}; {message.free} "
        f"is free; about {show_mib(outside or 0.0)} is outside this allocator: "
        + (
            "more than a context and a desktop usually take, so most likely another process, or another "
            "framework in this one."
            if sums.outside_by_difference
            else "another process, or another framework in this one."
        )
        + f" The request of {message.tried_to_allocate} is only the last straw.",
        remedies=(
            f"Run {'rocm-smi --showpids' if message.backend == 'hip' else process_lister(message)} and free "
            f"the other {show_mib(outside or 0.0)} (or move to an empty card); and lower this process's own "
            "footprint (batch, quantised or LoRA loading) if that is not enough.",
            "Then watch whether this process's own use grows from step to step.",
        ),
        not_helpful=(
            LAST_STRAW,
            ALLOCATOR_SETTINGS,
            "Adding what PyTorch has cached to the others' memory: it is this process's own.",
        ),
        evidence=evidence(message),
        certainty="likely" if sums.outside_by_difference else "certain",
    )


def _looks_unified(message: AllocatorMessage, total_mib: float) -> bool:
    # A discrete card keeps a few MiB back and never reports a round number of GiB; APUs report the split
    # that was set. NVIDIA's GB10 reports 119 to 122 GiB, which no discrete card has.
    gib = total_mib / 1024
    if message.backend == "hip":
        return gib >= 32 and abs(gib - round(gib)) < 0.005
    return message.backend == "cuda" and 118.5 <= gib <= 122.5


def is_outside_use(message: AllocatorMessage, sums: Arithmetic) -> bool:
    """Whether so much of the card is somebody else's that it could have made the difference."""
    total = message.mib("total_capacity")
    if total is None or sums.outside_mib is None:
        return False
    least = max(_LEAST_OUTSIDE_MIB, _OUTSIDE_MATTERS * total)
    return sums.outside_mib >= (max(least, _MAY_BE_NOBODY_MIB) if sums.outside_by_difference else least)


def rest_of_the_card(sums: Arithmetic) -> str:
    """A sentence on what no figure accounts for, where that is too little to blame somebody; else nothing."""
    rest = sums.unaccounted_mib
    if not sums.outside_by_difference or rest is None or rest < _LEAST_OUTSIDE_MIB:
        return ""
    return f" Another {show_mib(rest)} of the card is not in PyTorch's figures. {NOT_IN_THE_FIGURES}"
