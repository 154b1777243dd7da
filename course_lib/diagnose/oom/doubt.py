"""Can the figures of an out-of-memory message be taken at their word?

Three cases where they cannot. Each function answers with a Finding, or None where its case does not apply.
"""

from course_lib.diagnose.finding import Finding
from course_lib.diagnose.oom.arithmetic import Arithmetic
from course_lib.diagnose.oom.message import AllocatorMessage
from course_lib.diagnose.oom.words import (
    ALLOCATOR_SETTINGS,
    EMPTY_CACHE,
    LOWER_PEAK,
    evidence,
    process_lister,
)
from course_lib.diagnose.size import show_mib

_OVERFLOW_MIB = 2.0**24  # 16 TiB: no card is near it, so the size itself is wrong


def wrong_size(message: AllocatorMessage, _: Arithmetic) -> Finding | None:
    """The size itself cannot be meant."""
    tried = message.mib("tried_to_allocate")
    if message.tried_lower_bound is None and (tried is None or tried < _OVERFLOW_MIB):
        return None
    size = f"more than {message.tried_lower_bound}" if tried is None else str(message.tried_to_allocate)
    return Finding(
        id="shape_overflow",
        summary="The size that was asked for is nonsense: a shape is wrong",
        why=f"One request asks for {size}, far beyond any card. A dimension is negative or overflowed, a "
        "length tensor holds garbage, or an index is used as a size. This is not a memory problem.",
        remedies=(
            "Print the shapes at the failing line; look for an integer overflow or a garbage length.",
            "Run the same batch on the CPU, where the error points to the line.",
        ),
        not_helpful=("A smaller batch size.", "Allocator settings."),
        evidence=evidence(message),
    )


def contradiction(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """Two figures cannot both be true."""
    if sums.contradiction is None:
        return None
    if sums.contradiction == "free_exceeds_total":
        return Finding(
            id="oom.contradictory_free_exceeds_total",
            summary="The report contradicts itself: more is free than the card has",
            why=f"{message.free} free of {message.total_capacity} cannot be: the runtime mixes two memory "
            "pools (a carve-out and shared system memory). No sum or difference with these two figures "
            f"means anything. Certain is only that {message.tried_to_allocate or 'a request'} was refused.",
            remedies=(
                "Take the report as inconsistent: check the memory split (BIOS carve-out, GTT size) and the "
                "version of the runtime and driver, and make the tensor smaller.",
            ),
            not_helpful=(
                f"Trusting the {message.free} as room, or concluding fragmentation from it.",
                "expandable_segments as a cure.",
            ),
            evidence=evidence(message),
        )
    return Finding(
        id="oom.contradictory_allocated_exceeds_total",
        summary="More is allocated than the card has: memory has spilled into the computer's own",
        why=f"{message.allocated} allocated on a card of {message.total_capacity}: under Windows, WSL or on "
        "unified memory the driver lends system memory, slowly, until that ends too. The figures of the card "
        "do not say how much was left.",
        remedies=(
            f"Lower the peak until it fits the card's {message.total_capacity}: {LOWER_PEAK}; spilled "
            "memory is many times slower, so fitting is also faster.",
            "Set the driver's 'CUDA - Sysmem Fallback Policy' to 'Prefer No Sysmem Fallback', so that the "
            "limit shows at once.",
        ),
        not_helpful=(EMPTY_CACHE, ALLOCATOR_SETTINGS),
        evidence=evidence(message),
    )


def unexplained(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """Far more is free than was asked for."""
    if not sums.figures_inconsistent:
        return None
    slack = sums.reserved_unallocated_mib
    held = f" and {show_mib(slack)} held unused" if slack and slack >= 64 else ""
    return Finding(
        id="oom.contradictory_free_exceeds_request",
        summary="The figures do not explain the failure: far more is free than was asked for",
        why=f"{message.tried_to_allocate} was refused with {message.free} free{held}. Neither capacity nor "
        "fragmentation explains that: the driver's call failed for another reason (a runtime fault, the "
        "number of mappings, a limit of a container or virtual machine), or free was read after memory had "
        "been returned.",
        remedies=(
            "Take it as an unexplained refusal: try again in a fresh process while watching "
            f"{'nvidia-smi' if message.backend == 'cuda' else process_lister(message)}, read the kernel log "
            "(dmesg), update the driver and PyTorch, and search the issue tracker for this message.",
            "Rule out a short peak of another process or thread that had the memory at that moment.",
        ),
        not_helpful=(
            "A smaller batch: the request would fit many times.",
            "Fragmentation advice: a small block fits almost anywhere.",
        ),
        evidence=evidence(message),
        certainty="likely",
    )
