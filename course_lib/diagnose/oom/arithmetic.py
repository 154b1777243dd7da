"""What follows from the figures of an out-of-memory message, and what does not?

All sizes in MiB. A value is None where a figure that it needs is missing: nothing is guessed.
"""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from course_lib.diagnose.oom.message import AllocatorMessage

# A CUDA context with the libraries' code and handles takes 300 to 900 MiB of a card by itself, so this much
# outside the allocator says nothing about other users.
USUAL_CONTEXT_MIB = 600.0
# Other ranks that only opened a context on this card hold nearly the same, small amount each.
_EQUAL_WITHIN = 0.06
_MOST_MIB_OF_A_CONTEXT = 3072.0


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Sums and differences of one message's figures.

    ``reserved_unallocated_mib`` is slack inside the allocator; ``unaccounted_mib`` is total - free -
    reserved, that is context, libraries and everyone else; ``outside_mib`` is the part of it that is likely
    not this process's own context; with ``outside_by_difference`` no figure names it, it is only what is
    left over. ``contradiction`` names figures that cannot all be true
    ("free_exceeds_total", "allocated_exceeds_total"): then no difference with them means anything.
    """

    reserved_total_mib: float | None = None
    reserved_unallocated_mib: float | None = None
    unaccounted_mib: float | None = None
    free_plus_reserved_unallocated_mib: float | None = None
    would_fit_if_all_slack_were_contiguous: bool | None = None
    free_alone_covers_request: bool | None = None
    missing_mib: float | None = None
    non_pytorch_in_this_process_mib: float | None = None
    other_processes_mib: float | None = None
    other_processes_count: int | None = None
    other_processes_total_mib: float | None = None
    outside_mib: float | None = None
    outside_by_difference: bool = False
    equal_processes: int = 0
    contradiction: str | None = None
    figures_inconsistent: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain data, rounded to hundredths of a MiB."""
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(self).items()}


def arithmetic(message: AllocatorMessage) -> Arithmetic:
    """Do the sums that the figures of ``message`` allow."""
    mib = message.mib
    tried, total, free, allocated = (
        mib("tried_to_allocate"),
        mib("total_capacity"),
        mib("free"),
        mib("allocated"),
    )
    unused = mib("reserved_unallocated") if message.reserved_unallocated else mib("cached_unused")
    reserved = mib("reserved_total")
    if reserved is None and allocated is not None and unused is not None:
        reserved = allocated + unused
    elif reserved is not None and allocated is not None:
        unused = reserved - allocated
    in_use = mib("process_in_use")
    contradiction = _contradiction(total, free, allocated)
    reachable = None if free is None or unused is None else free + unused
    others = [p.in_use.mib for p in message.other_processes if p.in_use.mib < 2.0**40]
    if in_use is None and total is not None and free is not None:
        in_use = _this_process(others, reserved if reserved is not None else allocated, total - free)
        if in_use is not None:
            others.remove(in_use)
    unaccounted = other = None
    if total is not None and free is not None:
        unaccounted = None if reserved is None else total - free - reserved
        other = None if in_use is None else total - free - in_use
    outside, by_difference = None, False
    if contradiction is None:
        if other is not None:
            outside = other
        elif others:
            outside = sum(others)
        elif unaccounted is not None:
            outside, by_difference = unaccounted - USUAL_CONTEXT_MIB, True
    return Arithmetic(
        reserved_total_mib=reserved,
        reserved_unallocated_mib=unused,
        unaccounted_mib=unaccounted,
        free_plus_reserved_unallocated_mib=reachable,
        would_fit_if_all_slack_were_contiguous=_covers(reachable, tried),
        free_alone_covers_request=_covers(free, tried),
        missing_mib=None if reachable is None or tried is None or reachable >= tried else tried - reachable,
        non_pytorch_in_this_process_mib=None if in_use is None or reserved is None else in_use - reserved,
        other_processes_mib=other,
        other_processes_count=len(others) or None,
        other_processes_total_mib=sum(others) if others else None,
        outside_mib=None if outside is None else max(outside, 0.0),
        outside_by_difference=by_difference,
        equal_processes=_equal_processes(others),
        contradiction=contradiction,
        figures_inconsistent=contradiction is not None or _unexplained(message, tried, total, free),
    )


def _this_process(named: list[float], held: float | None, used: float) -> float | None:
    """The named process that must be this one: in a container a process does not know its own number.

    Then "this process has" is missing, and the named processes and this one's tensors together would be more
    than the card has in use. This one is the smallest that can hold its tensors.
    """
    if held is None or not named or sum(named) + held <= 1.02 * used:
        return None
    able = [size for size in named if size >= 0.98 * held]
    return min(able) if able else None


def _covers(available: float | None, tried: float | None) -> bool | None:
    return None if available is None or tried is None else available >= tried


def _contradiction(total: float | None, free: float | None, allocated: float | None) -> str | None:
    if total is None:
        return None
    if free is not None and free > total * 1.01:
        return "free_exceeds_total"
    if allocated is not None and allocated > total * 1.01:
        return "allocated_exceeds_total"
    return None


def _unexplained(
    message: AllocatorMessage, tried: float | None, total: float | None, free: float | None
) -> bool:
    """Whether so much more is free than was asked for that the figures do not explain the refusal.

    A little more than was asked for is a rest, not room: cards are managed in blocks, and free is read a
    moment later. So the surplus must be large on the scale of the card. A process limit explains it.
    """
    if tried is None or total is None or free is None or message.allowed:
        return False
    return free >= 2 * tried and free - tried > max(1024.0, 0.05 * total)


def _equal_processes(others: list[float]) -> int:
    """How many other processes hold nearly the same small amount: the mark of ranks on a foreign card."""
    if len(others) < 2:
        return 0
    middle = median(others)
    if not 0 < middle <= _MOST_MIB_OF_A_CONTEXT:
        return 0
    return sum(abs(other - middle) <= _EQUAL_WITHIN * middle for other in others)
