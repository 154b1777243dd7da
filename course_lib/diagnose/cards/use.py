"""How are the cards used: idle, busy, full, held without work, starved?"""

from collections.abc import Iterator
from dataclasses import replace

from course_lib.diagnose.cards.common import (
    BUSY_UTIL,
    EMPTY,
    HELD,
    IDLE_UTIL,
    MOMENT,
    NO_JOB_MIB,
    evidence,
    fill,
    label,
    power_share,
    span,
)
from course_lib.diagnose.cards.links import links
from course_lib.diagnose.cards.other_makers import OTHER_MAKERS
from course_lib.diagnose.cards.starved import in_bursts, one_starved, starved
from course_lib.diagnose.finding import Finding
from course_lib.diagnose.size import show_mib
from course_lib.diagnose.smi.model import Gpu, GpuStatus

_FULL = 0.85
_WAITING = 0.6  # of the power of the card that draws most
_SPINNING = 90.0


def use(status: GpuStatus) -> Iterator[Finding]:
    """How the cards are used, or connected: one Finding, or two where one is not all there is to say."""
    if status.links:
        yield links(status)
        return
    if status.source in OTHER_MAKERS or any(gpu.mig_enabled for gpu in status.gpus):
        return
    # A card of which a cut text only has the name says nothing about its use. All others get a number.
    known = tuple(
        replace(gpu, index=place if gpu.index is None else gpu.index)
        for place, gpu in enumerate(status.gpus)
        if gpu.used_mib is not None or gpu.util_percent is not None
    )
    missing = [
        label(gpu, place)
        for place, gpu in enumerate(status.gpus)
        if gpu.used_mib is None and gpu.util_percent is None
    ]
    if known:
        for finding in _told(replace(status, gpus=known)):
            yield _without(finding, missing) if missing else finding


def _without(finding: Finding, missing: list[str]) -> Finding:
    """The finding, with a word on the cards of which the text has no figures."""
    return replace(
        finding,
        summary=finding.summary.replace("The card is", "The one card that can be read is", 1),
        why=f"{finding.why} How {', '.join(missing[:8])} is used does not stand in this text.",
        certainty="likely" if finding.certainty == "certain" else finding.certainty,
    )


def _told(status: GpuStatus) -> Iterator[Finding]:
    if finding := _choose_idle(status):
        yield finding
        in_use = replace(status, gpus=tuple(gpu for gpu in status.gpus if not _is_idle(gpu)))
        if starving := starved(in_use):
            yield replace(starving, severity="note")
        return
    for check in (starved, one_starved, in_bursts, _held_idle, _nearly_full, _idle, _busy):
        if finding := check(status):
            yield finding
            if check is _nearly_full and (busy := _busy(status)):
                yield busy
            return


def _is_idle(gpu: Gpu) -> bool:
    nothing_held = gpu.used_mib is not None and (
        gpu.used_mib < NO_JOB_MIB if fill(gpu) is None else _empty(gpu)
    )
    return nothing_held and (gpu.util_percent is None or gpu.util_percent < IDLE_UTIL)


def _empty(gpu: Gpu) -> bool:
    share = fill(gpu)
    return share is not None and (share < EMPTY or (gpu.used_mib or 0.0) < NO_JOB_MIB)


def _is_busy(gpu: Gpu) -> bool:
    return (gpu.util_percent or 0.0) >= BUSY_UTIL or (fill(gpu) or 0.0) >= 0.5


def _choose_idle(status: GpuStatus) -> Finding | None:
    idle = [gpu for gpu in status.gpus if _is_idle(gpu)]
    busy = [gpu for gpu in status.gpus if not _is_idle(gpu) and _is_busy(gpu)]
    if not idle or not busy:
        return None
    free, taken = ", ".join(map(label, idle)), ", ".join(map(label, busy))
    unknown = "" if all(gpu.total_mib for gpu in status.gpus) else " How full they are is unknown: no total."
    return Finding(
        id="smi.choose_idle_gpu",
        summary=f"{free} {'is' if len(idle) == 1 else 'are'} free, {taken} in use",
        why="A job that does not say otherwise takes the first card, busy or not." + unknown,
        remedies=(
            f"CUDA_VISIBLE_DEVICES={idle[0].index}, with CUDA_DEVICE_ORDER=PCI_BUS_ID: without it CUDA may "
            "number unlike cards differently from nvidia-smi.",
        ),
        not_helpful=(
            "Deriving a total or a share from memory.used alone.",
            "Assuming that CUDA's numbers are nvidia-smi's where cards differ.",
        ),
        evidence=evidence(status),
        severity="note",
    )


def _held_idle(status: GpuStatus) -> Finding | None:
    held = [
        (place, gpu)
        for place, gpu in enumerate(status.gpus)
        if gpu.util_percent is not None
        and gpu.util_percent < IDLE_UTIL
        and (fill(gpu) or 0.0) >= HELD
        and (power_share(gpu) or 0.0) < 0.5
    ]
    if not held:
        return None
    place, gpu = held[0]
    owners = sorted(
        {f"{p.name or 'process'} ({p.pid})" for p in status.processes or () if p.gpu == gpu.index}
    )
    who = f" Named: {', '.join(owners[:4])}." if owners else ""
    others = [other for other in status.gpus if other is not gpu and (other.util_percent or 0.0) >= _SPINNING]
    if others:
        who += (
            f" At full utilisation: {', '.join(label(other) for other in others[:8])}. In one job they "
            "would be waiting for this card's rank, which hangs or has died."
        )
    return Finding(
        id="smi.memory_held_idle",
        summary=f"{label(gpu, place)} holds {show_mib(gpu.used_mib or 0.0)} and computes nothing at this "
        "moment",
        why=f"{fill(gpu):.0%} of the memory is taken at {gpu.util_percent:.0f} % utilisation: a notebook "
        f"kernel left open, a served model, a job that loads data or waits, or one that hangs.{who}{MOMENT}",
        remedies=(
            "If the process is yours and done, end it (shut the notebook's kernel down); if a job should "
            "be running, see where it waits (py-spy dump).",
        ),
        not_helpful=("torch.cuda.empty_cache() in another process: it cannot free this one's memory.",),
        evidence=evidence(status),
        severity="warning",
        certainty="likely",
    )


def _nearly_full(status: GpuStatus) -> Finding | None:
    full = [(place, gpu) for place, gpu in enumerate(status.gpus) if (fill(gpu) or 0.0) >= _FULL]
    if not full:
        return None
    listed = "; ".join(
        f"{label(gpu, place)} {gpu.used_mib:.0f} of {gpu.total_mib:.0f} MiB" for place, gpu in full
    )
    hidden = any(p.mib is None for p in status.processes or ())
    unseen = " Memory by process is not available here (WSL2 or Windows hide it)." if hidden else ""
    ask_torch = (
        "Ask PyTorch itself for the use (torch.cuda.max_memory_allocated()) before you conclude that the "
        "card is too small."
    )
    keep_command = (
        "Keep the command with the numbers: if only numbers are pasted, ask for it, and do not guess which "
        "of two numbers is the total."
    )
    remedies = (keep_command, ask_torch) if status.source == "nvidia-smi csv" else (ask_torch,)
    return Finding(
        id="smi.memory_nearly_full",
        summary=f"Memory is nearly full: {listed}",
        why="PyTorch keeps what it has once reserved, so nvidia-smi shows the largest use so far, not what "
        f"is needed now.{unseen}",
        remedies=remedies,
        not_helpful=("Guessing which of two numbers is the total.",),
        evidence=evidence(status),
        severity="note",
    )


def _idle(status: GpuStatus) -> Finding | None:
    if not all(_is_idle(gpu) or (_empty(gpu) and _only_graphics(status)) for gpu in status.gpus):
        return None
    free = [gpu.total_mib - gpu.used_mib for gpu in status.gpus if gpu.total_mib and gpu.used_mib is not None]
    room = f" {min(free):.0f} MiB are free." if free else ""
    if _only_graphics(status):
        small = [gpu.total_mib for gpu in status.gpus if gpu.total_mib and gpu.total_mib <= 4096]
        limit = (
            f" a card of {show_mib(small[0])} limits the model." if small else " the card is free for a job."
        )
        return Finding(
            id="smi.idle_desktop",
            summary="No job on the card: only the desktop uses it",
            why=f"All processes are of type G (graphics).{room}",
            remedies=(f"Nothing to free;{limit}",),
            not_helpful=("Reading the desktop's GPU-Util as a training job.",),
            evidence=evidence(status),
            severity="note",
        )
    windows = " Under WDDM memory by process is not reported." if status.driver_model == "WDDM" else ""
    one = len(status.gpus) == 1
    cards, their = ("The card is", "its") if one else ("The cards are", "their")
    computes = "Nothing computes and little is held."
    if any(gpu.util_percent is None for gpu in status.gpus):
        computes = "Less is held than a job needs to start; utilisation is not in these figures."
    return Finding(
        id="smi.card_idle_problem_elsewhere",
        summary=f"{cards} nearly empty: a failure you had is not about {their} memory",
        why=f"{computes}{room}{windows} If a job should be running, it is not here.",
        remedies=(
            "Look at the error itself and at the computer's own memory (on Windows: fewer DataLoader "
            "workers, a larger page file); check that the program uses the card at all: "
            "torch.cuda.is_available().",
        ),
        not_helpful=("GPU memory advice: smaller batch, empty_cache.",),
        evidence=evidence(status),
        severity="note",
    )


def _only_graphics(status: GpuStatus) -> bool:
    return bool(status.processes) and all(p.kind in ("G", "C+G") for p in status.processes or ())


def _busy(status: GpuStatus) -> Finding | None:
    utils = [gpu.util_percent for gpu in status.gpus if gpu.util_percent is not None]
    if not utils or len(utils) < len(status.gpus) or min(utils) < BUSY_UTIL:
        return None
    shares = [share for gpu in status.gpus if (share := power_share(gpu)) is not None]
    power = ""
    if len(shares) == len(utils):
        drawn = span([100 * share for share in shares])
        power = f" Power is at {drawn} of the limit{_power_says(status, shares)}"
    return Finding(
        id="smi.busy",
        summary=f"The cards are busy: utilisation {span(utils)}",
        why="Utilisation says that some kernel ran, not that the card was well used." + power + MOMENT,
        remedies=(
            "Compare throughput (samples a second) with what the card should reach before you change "
            "anything.",
        ),
        not_helpful=("Taking 100 % utilisation as proof of efficiency.",),
        evidence=evidence(status),
        severity="note",
    )


def _power_says(status: GpuStatus, shares: list[float]) -> str:
    """What the power of busy cards says about their work."""
    if min(shares) < _WAITING * max(shares):
        works = label(status.gpus[shares.index(max(shares))], shares.index(max(shares)))
        waits = label(status.gpus[shares.index(min(shares))], shares.index(min(shares)))
        return (
            f": {waits} draws far less than {works}. If both belong to one job, it probably waits in a "
            f"collective, at full utilisation, and {works} is the one that it waits for."
        )
    return ", which agrees." if min(shares) >= 0.5 else ": low for full work; small kernels look like that."
