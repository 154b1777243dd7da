"""Which processes have opened a context on a card that is not theirs?

A rank sits on the card it computes on, and on a foreign one too where its device was not set before the first
CUDA call. That is told from one process that works on several cards (DataParallel, a model in parts) by the
company: all ranks are guests on one card, or the card has an owner and the guest holds little there.
"""

from collections.abc import Iterable

from course_lib.diagnose.smi.model import GpuProcess

_GUEST_SHARE = 0.25  # of what the process holds on its own card: a context and little else


def foreign_contexts(processes: Iterable[GpuProcess]) -> dict[int, list[GpuProcess]]:
    """The guests on each card that has some: card -> processes whose own card is another one."""
    computing = [p for p in processes if p.pid is not None and p.gpu is not None and p.kind != "G"]
    cards: dict[int, dict[int, GpuProcess]] = {}
    for process in computing:
        cards.setdefault(process.pid or 0, {})[process.gpu or 0] = process
    several = {pid: on for pid, on in cards.items() if len(on) > 1}
    if not several or any(len(on) != 2 for on in several.values()):
        return {}
    if len(several) > 1:
        common = set.intersection(*(set(on) for on in several.values()))
        return {card: [on[card] for on in several.values()] for card in common} if len(common) == 1 else {}
    (on,) = several.values()
    owned = {card for pid, own in cards.items() if pid not in several for card in own}
    small, large = sorted(on.values(), key=lambda process: process.mib or 0.0)
    if small.mib is None or large.mib is None or small.mib > _GUEST_SHARE * large.mib:
        return {}
    return {small.gpu or 0: [small]} if small.gpu in owned else {}
