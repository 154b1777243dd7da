"""Is it this process's own use: one huge request, gaps in the reserved memory, or a full card?

Each function answers with a Finding, or None where its case does not apply.
"""

from course_lib.diagnose.finding import Finding
from course_lib.diagnose.oom.arithmetic import Arithmetic
from course_lib.diagnose.oom.message import AllocatorMessage
from course_lib.diagnose.oom.others import is_outside_use, rest_of_the_card
from course_lib.diagnose.oom.words import (
    ALLOCATOR_SETTINGS,
    EMPTY_CACHE,
    LAST_STRAW,
    LOWER_PEAK,
    device,
    evidence,
    process_lister,
)
from course_lib.diagnose.size import show_mib

_ONE_REQUEST_IS_LARGE = 0.5  # of the card
_SLACK_MATTERS = 0.05  # slack below a twentieth of the card is rounding, not fragmentation
_LARGE_SLACK_MIB = 1024.0
_MOSTLY_GRAPHS = 0.5  # of what is in use
_FEWER_GRAPHS = (
    "Capture fewer CUDA graphs, or none: torch.compile without mode='reduce-overhead' or 'max-autotune' "
    "(each new shape is captured again: mark it dynamic, or pad), enforce_eager or fewer capture sizes in a "
    "server."
)


def single_request(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """One request is half the card or more."""
    tried, total = message.mib("tried_to_allocate"), message.mib("total_capacity")
    if tried is None or total is None or tried < _ONE_REQUEST_IS_LARGE * total:
        return None
    held = message.mib("allocated")
    rest = "" if held is None else f" while {message.allocated} is in use so far"
    thin = ""
    if sums.free_alone_covers_request:
        thin = (
            f" The {message.free} reported free exceeds the request by too little to count as room: the card "
            "is managed in blocks."
        )
    outside = ""
    if is_outside_use(message, sums):
        outside = (
            f" About {show_mib(sums.unaccounted_mib or sums.outside_mib or 0.0)} is held outside PyTorch."
        )
    return Finding(
        id="oom.single_request_too_large",
        summary=f"One tensor asks for {message.tried_to_allocate}, {tried / total:.0%} of the card",
        why=f"A single request of {message.tried_to_allocate} on a card of {message.total_capacity}{rest}: "
        "an input or an intermediate result (image size, batch, attention matrix) is far too "
        f"large.{thin}{outside}",
        remedies=(
            f"Find the line that asks for {message.tried_to_allocate} and cut what it scales with: image or "
            "sequence size, batch, a validation run on a full-size input, a matrix of all pairs.",
            "Compute it in pieces (chunks, tiles, a fused attention kernel), or in half precision.",
        ),
        not_helpful=(
            EMPTY_CACHE,
            ALLOCATOR_SETTINGS,
            "Calling it a fault of PyTorch because much is free.",
        ),
        evidence=evidence(message),
    )


def fragmentation(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """The slack would cover the request, and is large on the scale of the card."""
    tried, total = message.mib("tried_to_allocate"), message.mib("total_capacity")
    slack = sums.reserved_unallocated_mib
    if tried is None or total is None or slack is None or slack < tried or slack < _SLACK_MATTERS * total:
        return None
    share = f"{slack / total:.0%} of the card"
    gaps = (
        f"{show_mib(slack)} ({share}) is reserved but not in use, yet not one piece of "
        f"{message.tried_to_allocate}"
    )
    settings = (
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512 (before 2.1; from 1.10 on)"
        if message.reserved_unallocated is None
        else "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    )
    if message.backend == "hip":
        settings = settings.replace("PYTORCH_CUDA", "PYTORCH_HIP")
    if is_outside_use(message, sums):
        return Finding(
            id="oom.fragmentation_and_outside_use",
            summary="Two things at once: gaps in the reserved memory, and much of the card outside PyTorch",
            why=f"{gaps}: fragmentation. And about {show_mib(sums.unaccounted_mib or 0.0)} of the card is "
            "outside this allocator, more than a context and a desktop usually take: another process, or the "
            "ranks of this job (its processes, one for each card) that have opened a context on this card "
            "too.",
            remedies=(
                f"Look with {process_lister(message)} at who is on {device(message)}: if all ranks of the "
                "job are listed there, call torch.cuda.set_device(local_rank) before anything else.",
                "Then bucket or limit the longest batches, so that sizes vary less.",
                f"Set {settings}.",
            ),
            not_helpful=("Only a smaller batch.", EMPTY_CACHE),
            evidence=evidence(message),
            certainty="likely" if sums.outside_by_difference else "certain",
        )
    if slack < _LARGE_SLACK_MIB:
        return Finding(
            id="oom.capacity_with_some_fragmentation",
            summary="The card is full; gaps in the reserved memory make it a little worse",
            why=f"{gaps}, so gaps contribute. But the working set is at the limit of the card's "
            f"{message.total_capacity}: with {message.allocated} in use, closing them gains little."
            + rest_of_the_card(sums),
            remedies=(
                "Lower the footprint: half precision, a low-memory mode (attention slicing, offloading), a "
                "smaller batch or input; or use a larger card.",
                f"As a second step only: {settings}.",
            ),
            not_helpful=("Counting the computer's own memory as memory of the card.", EMPTY_CACHE),
            evidence=evidence(message),
        )
    return Finding(
        id="oom.fragmentation",
        summary="Enough memory is reserved, but in pieces: fragmentation",
        why=f"{gaps}. The requests vary in size, and the gaps they leave do not join."
        + rest_of_the_card(sums),
        remedies=(
            f"Set {settings} before the program starts, or ask for less at once (fewer tokens or samples a "
            "batch).",
            "Make sizes vary less: pad to a few lengths, bucket the samples, or run the largest batch first.",
        ),
        not_helpful=(
            "torch.cuda.empty_cache() in the loop: it returns only whole unused blocks, and the allocator "
            "has tried that already.",
        ),
        evidence=evidence(message),
    )


def capacity(message: AllocatorMessage, sums: Arithmetic) -> Finding | None:
    """The tensors in use fill the card."""
    total, allocated, tried = (message.mib(n) for n in ("total_capacity", "allocated", "tried_to_allocate"))
    if total is None or allocated is None:
        return None
    reach = sums.free_plus_reserved_unallocated_mib
    if reach is None and sums.reserved_total_mib is not None and sums.reserved_unallocated_mib is not None:
        # No figure for free: at most the rest of the card could be.
        reach = total - sums.reserved_total_mib + sums.reserved_unallocated_mib
    slack = sums.reserved_unallocated_mib
    if reach is None and allocated < 0.5 * total:
        return None  # most of the card is not accounted for
    if tried is not None and reach is not None and reach < tried:
        why = (
            f"{message.allocated} of {message.total_capacity} is in use. All that could be gathered, free "
            f"and reserved, is {show_mib(reach)}, less than the {message.tried_to_allocate} asked for: it "
            f"misses by at least {show_mib(tried - reach)}."
        )
        small = (tried - reach) < 0.03 * total
    else:
        gaps = "" if slack is None else f" The {show_mib(slack)} of slack is rounding, not fragmentation."
        why = f"{message.allocated} of {message.total_capacity} is in use by this process's tensors.{gaps}"
        small = False
    if (sums.non_pytorch_in_this_process_mib or 0.0) >= 256:
        beside = show_mib(sums.non_pytorch_in_this_process_mib or 0.0)
        why += f" Beside PyTorch's tensors, {beside} of this process is context and libraries."
    rest = rest_of_the_card(sums)
    why += rest
    if sums.other_processes_mib and sums.other_processes_mib >= 256:
        why += f" Others hold {show_mib(sums.other_processes_mib)}."
    if sums.free_alone_covers_request:
        why += f" The {message.free} reported free is a rest between blocks, not room."
    pools = message.mib("private_pools")
    if pools is not None and pools >= 0.1 * total:
        why += f" {message.private_pools} of it sits in private pools (CUDA graphs), which cannot be shared."
    graphs = [_FEWER_GRAPHS] if pools is not None and pools >= _MOSTLY_GRAPHS * allocated else []
    step = " It misses by little, so a small step is enough." if small else ""
    loading = (
        " If it fails while the model is loaded, before the first step: quantise, offload or shard the "
        "weights."
        if total <= 8192
        else ""
    )
    return Finding(
        id="oom.capacity",
        summary=f"{device(message)} is really full",
        why=why,
        remedies=(
            *graphs,
            f"Lower the peak: {LOWER_PEAK}, an optimizer with smaller state.{step}{loading}",
            *([f"See with {process_lister(message)} who else is on the card."] if rest else []),
            "Foresee it: predict the plan's memory for this card before the next run.",
        ),
        not_helpful=(LAST_STRAW, EMPTY_CACHE, ALLOCATOR_SETTINGS),
        evidence=evidence(message),
    )
