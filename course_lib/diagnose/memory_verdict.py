"""What do the figures of a memory summary say, and what do they not say?

"Tot Alloc" and "Tot Freed" add up a whole life and say nothing about size or leaks. The card's own size is
not in a summary, so nothing here is said about how much room is left.
"""

from course_lib.diagnose.finding import Evidence, Finding, Reading
from course_lib.diagnose.memory_summary import MemorySummary, memory_summaries
from course_lib.diagnose.oom.words import LOWER_PEAK
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.size import show_mib

KIND = "memory summary"
_GAPS_MATTER = 0.15  # of what is reserved, and unused even at the peak
_LEAST_GAPS_MIB = 512.0
_TYPED = (
    " The layout is not the one PyTorch prints (missing rows, other labels, decimals): it was typed or "
    "changed by hand."
)
_NOT_A_SIZE = "Reading 'Tot Alloc' as a size or as a leak: it adds up everything that was ever allocated."


def read(paste: Paste) -> list[Reading]:
    """One Reading for each table or set of statistics in the text."""
    readings = []
    for summary in memory_summaries(paste):
        readings.append(
            Reading(
                kind=KIND,
                figures=summary.figures(),
                derived={"reserved_unallocated_mib": _slack(summary)},
                first_line=summary.first_line,
                last_line=summary.last_line,
                findings=(diagnose(summary),),
                source=summary,
            )
        )
    return readings


def _slack(summary: MemorySummary) -> float | None:
    allocated, reserved = summary.mib.get("allocated_cur"), summary.mib.get("reserved_cur")
    return None if allocated is None or reserved is None else round(reserved - allocated, 2)


def diagnose(summary: MemorySummary) -> Finding:
    """The one finding that the figures of ``summary`` support best."""
    allocated, peak = summary.mib.get("allocated_cur"), summary.mib.get("allocated_peak")
    reserved, reserved_peak = summary.mib.get("reserved_cur"), summary.mib.get("reserved_peak")
    known = [v for v in (allocated, peak, reserved, reserved_peak) if v is not None]
    if known and not any(known) and not any(summary.mib.values()):
        return _empty(summary)
    if reserved is not None and reserved_peak and reserved_peak >= 256 and reserved <= 0.1 * reserved_peak:
        return _given_back(summary, reserved, reserved_peak)
    gaps = _fragmented(summary)
    if gaps:
        return gaps
    if summary.ooms:
        return _full(summary)
    if summary.retries:
        return _pressure(summary)
    if allocated is None or reserved is None:
        return _figures_missing(summary)
    slack = reserved - allocated
    if slack >= max(_LEAST_GAPS_MIB, 0.3 * reserved):
        return _cached(summary, slack, reserved)
    if allocated == peak and summary.mib.get("allocated_freed") == 0:
        return _weights_only(summary, allocated, slack)
    return Finding(
        id="memory.healthy",
        summary="Nothing is wrong in this summary",
        why=f"{show_mib(allocated)} in use now, {show_mib(peak or allocated)} at the peak, "
        f"{show_mib(reserved)} reserved; no out-of-memory error and no retry. The peak is what must fit on "
        "the card, not the current value." + _typed(summary),
        remedies=("Compare the peak with the card's memory before you raise the batch size.",),
        not_helpful=(_NOT_A_SIZE,),
        evidence=_evidence(summary),
        severity="note",
    )


def _typed(summary: MemorySummary) -> str:
    return "" if summary.as_printed_by_torch else _TYPED


def _empty(summary: MemorySummary) -> Finding:
    return Finding(
        id="memory.empty",
        summary="This process has never allocated anything on the device",
        why="All figures are 0, also the peaks: a fresh process, or one that uses another device. Nothing "
        "was cleared or freed, since there was nothing." + _typed(summary),
        remedies=(
            "There is nothing to diagnose here; if another program shows a full card, look in nvidia-smi "
            "for who holds it.",
        ),
        not_helpful=("Taking it as proof that memory was freed.",),
        evidence=_evidence(summary),
        severity="note",
    )


def _given_back(summary: MemorySummary, reserved: float, peak: float) -> Finding:
    trouble = bool(summary.ooms or summary.retries)
    retries = f" after {summary.retries} retries" if summary.retries else ""
    return Finding(
        id="leak_outside_pytorch_allocator" if trouble else "memory.given_back",
        summary="PyTorch has given its memory back; what is still held is not PyTorch's",
        why=f"{show_mib(reserved)} is reserved now, {show_mib(peak)} at the peak{retries}. If the card still "
        "shows full for this process, the memory belongs to another library in it, or to another process."
        + _typed(summary),
        remedies=(
            "Compare with nvidia-smi for this process's PID; if the memory is still held there, restart "
            "the process.",
        ),
        not_helpful=(
            "torch.cuda.empty_cache(): almost nothing is cached.",
            "Fragmentation advice: little is reserved.",
        ),
        evidence=_evidence(summary),
        severity="warning" if trouble else "note",
        certainty="possible" if trouble else "certain",
    )


def _fragmented(summary: MemorySummary) -> Finding | None:
    allocated, reserved = summary.mib.get("allocated_cur"), summary.mib.get("reserved_cur")
    if allocated is None or reserved is None:
        return None
    unused_at_peak = reserved - max(allocated, summary.mib.get("allocated_peak", allocated))
    stuck = summary.mib.get("non_releasable_cur", summary.mib.get("inactive_split_cur"))
    if unused_at_peak < max(_LEAST_GAPS_MIB, _GAPS_MATTER * reserved):
        return None
    failed = bool(summary.ooms)
    if stuck is None and failed:
        # The table is cut off there. Whole unused blocks are given back before an allocation fails.
        pieces = "the table is cut off before it says so, but whole unused blocks would have been given back"
    elif stuck is None or stuck < 0.5 * (reserved - allocated):
        return None  # whole unused blocks, which the allocator can give back
    else:
        pieces = f"{show_mib(stuck)} of the rest is stuck in pieces of blocks that are partly in use"
    unknown = summary.ooms is None and not summary.as_printed_by_torch
    return Finding(
        id="oom.fragmentation" if failed or unknown or summary.retries else "memory.fragmented",
        summary="Much is reserved that even the peak did not use: fragmentation",
        why=f"{show_mib(reserved)} reserved against {show_mib(allocated)} in use and a peak of "
        f"{show_mib(summary.mib.get('allocated_peak', allocated))}; {pieces}." + _typed(summary),
        remedies=(
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (2.1 and later; max_split_size_mb:512 "
            "before) before the program starts"
            + ("." if summary.as_printed_by_torch else "; and get the unedited table."),
            "Make sizes vary less: pad to a few lengths, bucket the samples, run the largest batch first.",
        ),
        not_helpful=("torch.cuda.empty_cache(): pieces of blocks in use cannot be given back.", _NOT_A_SIZE),
        evidence=_evidence(summary),
        severity="problem" if failed or unknown else "warning",
        certainty="likely" if unknown or stuck is None else "certain",
    )


def _full(summary: MemorySummary) -> Finding:
    allocated, reserved = summary.mib.get("allocated_cur"), summary.mib.get("reserved_cur")
    held = "" if allocated is None else f" {show_mib(allocated)} is in use"
    if reserved is not None and allocated is not None:
        little = reserved - allocated < _GAPS_MATTER * reserved
        held += f" of {show_mib(reserved)} reserved" + (": little of it is gaps" if little else " now")
    return Finding(
        id="oom.capacity",
        summary=f"Memory ran out {'once' if summary.ooms == 1 else f'{summary.ooms} times'} in this process",
        why=f"The table counts out-of-memory errors ({summary.ooms}) and retries ({summary.retries or 0})."
        f"{held}. The summary does not say how large the card is." + _typed(summary),
        remedies=(
            f"Lower the peak: {LOWER_PEAK}; and look with nvidia-smi whether the card is yours alone.",
        ),
        not_helpful=(_NOT_A_SIZE, "torch.cuda.empty_cache(): the allocator has done that before it failed."),
        evidence=_evidence(summary),
    )


def _pressure(summary: MemorySummary) -> Finding:
    return Finding(
        id="memory.under_pressure",
        summary="The allocator had to empty its cache to go on: the card is nearly full",
        why=f"{summary.retries} times an allocation failed at first and succeeded after the cache was "
        "emptied. Each of these stops the card for a moment, so the run is slower than it could "
        "be." + _typed(summary),
        remedies=(
            f"Lower the peak a little ({LOWER_PEAK}), until the retries stay at 0.",
            "See who else is on the card (nvidia-smi).",
        ),
        not_helpful=("Calling empty_cache() in the loop: it makes the same stop every time.", _NOT_A_SIZE),
        evidence=_evidence(summary),
        severity="warning",
    )


def _cached(summary: MemorySummary, slack: float, reserved: float) -> Finding:
    return Finding(
        id="memory.cached",
        summary="Much is reserved and not in use now, in whole blocks: a cache, no fault",
        why=f"{show_mib(slack)} of {show_mib(reserved)} reserved is unused at this moment. PyTorch keeps it "
        "for the next step; nvidia-smi counts it as used." + _typed(summary),
        remedies=(
            "Leave it, if this is the only program on the card; torch.cuda.empty_cache() hands it to other "
            "programs, and does not lower this one's peak.",
        ),
        not_helpful=("Calling it a leak or fragmentation.", _NOT_A_SIZE),
        evidence=_evidence(summary),
        severity="note",
    )


def _weights_only(summary: MemorySummary, allocated: float, slack: float) -> Finding:
    share = f", {show_mib(slack)} of rounding ({slack / allocated:.1%})" if allocated else ""
    return Finding(
        id="memory.healthy_weights_only",
        summary="Only what was loaded is there, nothing was freed yet: healthy, and no word about training",
        why=f"{show_mib(allocated)}: current and peak are the same and nothing was freed{share}. It says "
        "nothing about training, which still needs gradients, optimizer state and "
        "activations." + _typed(summary),
        remedies=(
            "Estimate training on top: with Adam in mixed precision roughly 16 bytes per parameter, "
            "several times these weights, plus activations; LoRA adds little.",
        ),
        not_helpful=(
            "Choosing a card that just holds this peak.",
            "Fragmentation advice because of the non-releasable allocations: they are rounding.",
        ),
        evidence=_evidence(summary),
        severity="note",
    )


def _figures_missing(summary: MemorySummary) -> Finding:
    return Finding(
        id="memory.figures_missing",
        summary="The table is cut off before the figures that would say something",
        why="Allocated and reserved memory are needed, current and peak." + _typed(summary),
        remedies=("Print it again with print(torch.cuda.memory_summary()), and paste all of it.",),
        evidence=_evidence(summary),
        severity="note",
        certainty="possible",
    )


def _evidence(summary: MemorySummary) -> tuple[Evidence, ...]:
    named = (
        ("allocated now", "allocated_cur"),
        ("allocated at the peak", "allocated_peak"),
        ("reserved now", "reserved_cur"),
        ("reserved at the peak", "reserved_peak"),
        ("non-releasable", "non_releasable_cur"),
        ("inactive split", "inactive_split_cur"),
    )
    sizes = [Evidence(words, show_mib(summary.mib[key])) for words, key in named if key in summary.mib]
    counts = [("out-of-memory errors", summary.ooms), ("retries", summary.retries)]
    return (*sizes, *(Evidence(words, str(n)) for words, n in counts if n is not None))
