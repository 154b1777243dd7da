"""How are the cards used: idle, busy, full, held without work, starved?"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import mean

from course_lib.diagnose.cards.common import (
    BUSY_UTIL,
    EMPTY,
    IDLE_UTIL,
    NO_JOB_MIB,
    evidence,
    fill,
    label,
    power_share,
)
from course_lib.diagnose.cards.links import links
from course_lib.diagnose.cards.other_makers import OTHER_MAKERS
from course_lib.diagnose.finding import Finding
from course_lib.diagnose.size import show_mib
from course_lib.diagnose.smi.model import Gpu, GpuStatus

_STARVED_UTIL = 40.0
_FULL = 0.85
_WAITING = 0.6  # of the power of the card that draws most
_HELD = 0.25
_MOMENT = " One look is a moment: repeat it over a minute (nvidia-smi dmon) before you act."


def use(status: GpuStatus) -> Iterator[Finding]:
    """How the cards are used, or connected: one Finding, or two where only some of the cards are free."""
    if status.links:
        yield links(status)
        return
    if status.source in OTHER_MAKERS or any(gpu.mig_enabled for gpu in status.gpus):
        return
    # A card of which a cut text only has the name says nothing about its use.
    known = tuple(gpu for gpu in status.gpus if gpu.used_mib is not None or gpu.util_percent is not None)
    if not known:
        return
    status = replace(status, gpus=known)
    if finding := _choose_idle(status):
        yield finding
        in_use = replace(status, gpus=tuple(gpu for gpu in known if not _is_idle(gpu)))
        if starving := _starved(in_use):
            yield replace(starving, severity="note")
        return
    for check in (_starved, _one_starved, _held_idle, _nearly_full, _idle, _busy):
        if finding := check(status):
            yield finding
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
    named = list(enumerate(status.gpus))
    idle = [label(gpu, place) for place, gpu in named if _is_idle(gpu)]
    busy = [label(gpu, place) for place, gpu in named if not _is_idle(gpu) and _is_busy(gpu)]
    if not idle or not busy:
        return None
    first = idle[0].split()[1]
    unknown = "" if all(gpu.total_mib for gpu in status.gpus) else " How full they are is unknown: no total."
    return Finding(
        id="smi.choose_idle_gpu",
        summary=f"{', '.join(idle)} {'is' if len(idle) == 1 else 'are'} free, {', '.join(busy)} in use",
        why="A job that does not say otherwise takes the first card, busy or not." + unknown,
        remedies=(
            f"CUDA_VISIBLE_DEVICES={first}, with CUDA_DEVICE_ORDER=PCI_BUS_ID: without it CUDA may number "
            "unlike cards differently from nvidia-smi.",
        ),
        not_helpful=(
            "Deriving a total or a share from memory.used alone.",
            "Assuming that CUDA's numbers are nvidia-smi's where cards differ.",
        ),
        evidence=evidence(status),
        severity="note",
    )


def _starved(status: GpuStatus) -> Finding | None:
    """Memory is held by a job that hardly computes."""
    known = [gpu for gpu in status.gpus if gpu.util_percent is not None]
    if not known or len(known) < len(status.gpus):
        return None
    utils = [gpu.util_percent or 0.0 for gpu in known]
    held = [gpu for gpu in known if (fill(gpu) or 0.0) >= _HELD or (gpu.used_mib or 0.0) >= 4096]
    if len(held) < len(known) or not IDLE_UTIL <= mean(utils) < _STARVED_UTIL:
        return None
    several = len(status.samples) > len(status.gpus) or len(known) > 1
    hot = [gpu for gpu in known if (gpu.temp_c or 0.0) >= 83]
    heat = ""
    if hot and all(gpu.throttle_reasons == () for gpu in hot):
        heat = (
            f" {max(gpu.temp_c or 0.0 for gpu in hot):.0f} °C is near the point of throttling, which none "
            "reports."
        )
    return Finding(
        id="perf.gpu_starved",
        summary=f"The cards compute {mean(utils):.0f} % of the time and wait for the rest",
        why=f"Utilisation {min(utils):.0f} to {max(utils):.0f} % with memory in use: the usual cause is "
        "input that comes "
        f"too slowly (decoding, workers, storage).{heat}" + ("" if several else _MOMENT),
        remedies=(
            "Profile the input pipeline (workers, decoding, storage): time the loader alone, and the step "
            "on a batch that is already there.",
        ),
        not_helpful=(
            "A smaller batch because memory is full: some frameworks reserve all of it in advance.",
            "A bigger card: it would wait longer.",
        ),
        evidence=evidence(status),
        severity="problem" if several else "warning",
        certainty="likely" if several else "possible",
    )


def _one_starved(status: GpuStatus) -> Finding | None:
    """A card that holds a job's memory and computes little, beside others that are busy."""
    held = [
        (label(gpu, place), gpu.util_percent)
        for place, gpu in enumerate(status.gpus)
        if gpu.util_percent is not None and ((fill(gpu) or 0.0) >= _HELD or (gpu.used_mib or 0.0) >= 4096)
    ]
    low = [(name, util) for name, util in held if IDLE_UTIL <= util < _STARVED_UTIL]
    busy = [util for _, util in held if util >= BUSY_UTIL]
    if not low or not busy:
        return None
    listed = ", ".join(f"{name} at {util:.0f} %" for name, util in low)
    return Finding(
        id="perf.one_gpu_starved",
        summary=f"{listed}: little work, beside {'a card' if len(busy) == 1 else 'cards'} at "
        f"{max(busy):.0f} %",
        why="If they belong to one job, the card with little work waits for its input while the others "
        "wait for "
        "it, at full utilisation. If they are different jobs, this one is starved by itself." + _MOMENT,
        remedies=(
            "Time the loader of the rank on that card alone (workers, its share of the cores, storage), and "
            "compare the cards over a minute: nvidia-smi dmon -c 60.",
        ),
        not_helpful=("A faster card: it would wait longer.", "A smaller batch."),
        evidence=evidence(status),
        severity="warning",
        certainty="possible",
    )


def _held_idle(status: GpuStatus) -> Finding | None:
    held = [
        (place, gpu)
        for place, gpu in enumerate(status.gpus)
        if gpu.util_percent is not None
        and gpu.util_percent < IDLE_UTIL
        and (fill(gpu) or 0.0) >= _HELD
        and (power_share(gpu) or 0.0) < 0.5
    ]
    if not held:
        return None
    place, gpu = held[0]
    owners = sorted(
        {f"{p.name or 'process'} ({p.pid})" for p in status.processes or () if p.gpu == gpu.index}
    )
    who = f" Named: {', '.join(owners[:4])}." if owners else ""
    return Finding(
        id="smi.memory_held_idle",
        summary=f"{label(gpu, place)} holds {show_mib(gpu.used_mib or 0.0)} and computes nothing at this "
        "moment",
        why=f"{fill(gpu):.0%} of the memory is taken at {gpu.util_percent:.0f} % utilisation: a notebook "
        f"kernel left open, a served model, a job that loads data or waits, or one that hangs.{who}{_MOMENT}",
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
        power = (
            f" Power is at {min(shares):.0%} to {max(shares):.0%} of the limit{_power_says(status, shares)}"
        )
    return Finding(
        id="smi.busy",
        summary=f"The cards are busy: utilisation {min(utils):.0f} to {max(utils):.0f} %",
        why="Utilisation says that some kernel ran, not that the card was well used." + power + _MOMENT,
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
            "collective, "
            f"at full utilisation, and {works} is the one that it waits for."
        )
    return ", which agrees." if min(shares) >= 0.5 else ": low for full work; small kernels look like that."
