"""Do the cards wait for their input: all of them, one card by turns, one card among busy ones?"""

import itertools
from statistics import mean

from course_lib.diagnose.cards.common import BUSY_UTIL, HELD, IDLE_UTIL, MOMENT, evidence, fill, label, span
from course_lib.diagnose.finding import Finding
from course_lib.diagnose.smi.model import Gpu, GpuStatus

_STARVED_UTIL = 40.0
_SOME_LOOKS = 8
_JOB_MIB = 4096.0  # held on a card of any size, or of one that is not told
_TIME_THE_INPUT = (
    "Profile the input pipeline (workers, decoding, storage): time the loader alone, and the step on a batch "
    "that is already there."
)


def _holds_a_job(gpu: Gpu) -> bool:
    return (fill(gpu) or 0.0) >= HELD or (gpu.used_mib or 0.0) >= _JOB_MIB


def starved(status: GpuStatus) -> Finding | None:
    """Memory is held by a job that hardly computes."""
    known = [gpu for gpu in status.gpus if gpu.util_percent is not None]
    if not known or len(known) < len(status.gpus):
        return None
    utils = [gpu.util_percent or 0.0 for gpu in known]
    held = [gpu for gpu in known if _holds_a_job(gpu)]
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
        why=f"Utilisation {span(utils)} with memory in use: the usual cause is "
        f"input that comes too slowly (decoding, workers, storage).{heat}" + ("" if several else MOMENT),
        remedies=(_TIME_THE_INPUT,),
        not_helpful=(
            "A smaller batch because memory is full: some frameworks reserve all of it in advance.",
            "A bigger card: it would wait longer.",
        ),
        evidence=evidence(status),
        severity="problem" if several else "warning",
        certainty="likely" if several else "possible",
    )


def in_bursts(status: GpuStatus) -> Finding | None:
    """One card, looked at many times, that works fully and then not at all, again and again."""
    utils = [sample.util_percent for sample in status.samples if sample.util_percent is not None]
    if len(status.gpus) != 1 or len(utils) < _SOME_LOOKS:
        return None
    works = [util >= BUSY_UTIL for util in utils if util >= BUSY_UTIL or util < IDLE_UTIL]
    turns = sum(one != other for one, other in itertools.pairwise(works))
    rests = len(works) - sum(works)
    if turns < 4 or rests < len(utils) / 5 or sum(works) < len(utils) / 5:
        return None
    return Finding(
        id="perf.gpu_starved",
        summary=f"The card works in bursts: in {rests} of {len(utils)} looks it computes nothing",
        why=f"{mean(utils):.0f} % on average, full and empty by turns: it works through what is there and "
        "waits for the next batches (decoding, workers, storage), or the program does something else in "
        "between (evaluation, saving).",
        remedies=(_TIME_THE_INPUT,),
        not_helpful=("A bigger card: it would wait longer.",),
        evidence=evidence(status),
        severity="warning",
        certainty="likely",
    )


def one_starved(status: GpuStatus) -> Finding | None:
    """A card that holds a job's memory and computes little, beside others that are busy."""
    held = [
        (label(gpu, place), gpu.util_percent)
        for place, gpu in enumerate(status.gpus)
        if gpu.util_percent is not None and _holds_a_job(gpu)
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
        "wait for it, at full utilisation. If they are different jobs, this one is starved by "
        "itself." + MOMENT,
        remedies=(
            "Time the loader of the rank on that card alone (workers, its share of the cores, storage), and "
            "compare the cards over a minute: nvidia-smi dmon -c 60.",
        ),
        not_helpful=("A faster card: it would wait longer.", "A smaller batch."),
        evidence=evidence(status),
        severity="warning",
        certainty="possible",
    )
