"""Can the figures of an out-of-memory message be taken at their word, and do they tell enough?

Five cases where they cannot, or do not. Each function answers with a Finding, or None where its case does not
apply.
"""

from course_lib.diagnose.finding import Finding
from course_lib.diagnose.oom.arithmetic import Arithmetic
from course_lib.diagnose.oom.message import AllocatorMessage
from course_lib.diagnose.oom.words import (
    ALLOCATOR_SETTINGS,
    EMPTY_CACHE,
    LOWER_PEAK,
    device,
    evidence,
    process_lister,
)
from course_lib.diagnose.size import show_mib

_LARGEST_BLOCK_MIB = 4096.0  # of Intel cards, unless the driver is told otherwise
_NEARLY_ALL = 0.9  # of the card: what is held and what was asked for explain the refusal
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


def block_limit(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """The card gives no piece of that size, however much is free."""
    tried, total = message.mib("tried_to_allocate"), message.mib("total_capacity")
    if message.block_limit is None:
        held = _held(message, sums)
        if message.backend != "xpu" or tried is None or total is None or held is None:
            return None
        if tried < _LARGEST_BLOCK_MIB or held + tried > _NEARLY_ALL * total:
            return None
    return Finding(
        id="oom.single_request_too_large",
        summary=f"One tensor asks for {message.tried_to_allocate or 'too much'}; this card gives "
        f"{message.block_limit or '4 GiB'} at most in one piece",
        why="Intel cards limit the size of one block to 4 GiB, however much is free, unless driver and "
        "runtime are told to relax that limit. " + _in_use(message),
        remedies=(
            f"Make the tensor smaller than {message.block_limit or '4 GiB'}: a smaller batch or input, or "
            "the computation in pieces (chunks, tiles, a fused attention kernel).",
            "A newer driver and PyTorch may allow larger blocks.",
        ),
        not_helpful=(
            EMPTY_CACHE,
            ALLOCATOR_SETTINGS,
            "Ending other processes: memory is not what is missing.",
        ),
        evidence=evidence(message),
        certainty="certain" if message.block_limit else "likely",
    )


def rest_unknown(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """This process explains little of the card, and nothing says who has the rest."""
    tried, total = message.mib("tried_to_allocate"), message.mib("total_capacity")
    held = sums.reserved_total_mib
    if message.free is not None or tried is None or total is None or held is None:
        return None  # the arithmetic has it, or the message is cut off
    if held + tried > _NEARLY_ALL * total:
        return None
    return Finding(
        id="oom.other_process",
        summary=f"This process does not fill {device(message)}: {show_mib(total - held)} is not in its "
        "figures",
        why=f"{_in_use(message)} With the {message.tried_to_allocate} asked for that is less than the card's "
        f"{message.total_capacity}. The message does not say how much was free: another process may hold the "
        "rest, or another library in this process.",
        remedies=(
            f"List the processes on the card ({process_lister(message)}) and end your own leftovers, wait "
            "for the others, or move to a free card.",
            f"If the card is yours alone: {LOWER_PEAK}.",
        ),
        not_helpful=(EMPTY_CACHE, "Calling the card full of this process's tensors: it is not."),
        evidence=evidence(message),
        certainty="possible",
    )


def _held(message: AllocatorMessage, sums: Arithmetic) -> float | None:
    return message.mib("allocated") if sums.reserved_total_mib is None else sums.reserved_total_mib


def _in_use(message: AllocatorMessage) -> str:
    if message.allocated is None:
        return ""
    return f"{message.allocated} of {message.total_capacity or 'it'} is in use by this process's tensors."
