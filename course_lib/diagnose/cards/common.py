"""What do all checks on one look at the cards share?"""

from collections.abc import Sequence

from course_lib.diagnose.finding import Evidence
from course_lib.diagnose.smi.model import Gpu, GpuStatus

IDLE_UTIL = 10.0
BUSY_UTIL = 60.0
NO_JOB_MIB = 600.0  # less than a context with a small model
HELD = 0.25  # of a card's memory: a job sits there
EMPTY = 0.1  # of a card's memory: a context and a desktop
# What a finding from one look says of itself.
MOMENT = " One look is a moment: repeat it over a minute (nvidia-smi dmon) before you act."
# Reasons that slow a card against its will. "sw_power_cap" is how a card at full work runs, "gpu_idle" how it
# rests.
THROTTLING = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"}
)


def label(gpu: Gpu, position: int = 0) -> str:
    """The card's number, or its place in the list where it has none."""
    return f"GPU {position if gpu.index is None else gpu.index}"


def power_share(gpu: Gpu) -> float | None:
    """Power drawn as a share of the limit, from 0 to about 1."""
    if gpu.power_w is None or not gpu.power_cap_w:
        return None
    return gpu.power_w / gpu.power_cap_w


def span(percents: Sequence[float]) -> str:
    """From the least to the most of them, "36 to 83 %"; "100 %" where they read the same."""
    least, most = f"{min(percents):.0f}", f"{max(percents):.0f}"
    return f"{least} %" if least == most else f"{least} to {most} %"


def fill(gpu: Gpu) -> float | None:
    """How full the card's memory is, from 0 to 1."""
    if gpu.used_mib is None or not gpu.total_mib:
        return None
    return gpu.used_mib / gpu.total_mib


def pids_on_several(status: GpuStatus) -> set[int]:
    """The processes that compute on more than one card."""
    cards: dict[int, set[int]] = {}
    for process in status.processes or ():
        if process.pid is not None and process.gpu is not None and process.kind in (None, "C", "M+C"):
            cards.setdefault(process.pid, set()).add(process.gpu)
    return {pid for pid, gpus in cards.items() if len(gpus) > 1}


def evidence(status: GpuStatus) -> tuple[Evidence, ...]:
    """Memory, utilisation and power of each card, as far as they are known; of 16 cards at most."""
    found = []
    for place, gpu in enumerate(status.gpus[:16]):
        parts = []
        if gpu.used_mib is not None:
            parts.append(
                f"{gpu.used_mib:.0f}" + (f" of {gpu.total_mib:.0f}" if gpu.total_mib else "") + " MiB"
            )
        if gpu.util_percent is not None:
            parts.append(f"{gpu.util_percent:.0f} %")
        if gpu.power_w is not None:
            parts.append(
                f"{gpu.power_w:.0f}" + (f" of {gpu.power_cap_w:.0f}" if gpu.power_cap_w else "") + " W"
            )
        if parts:
            found.append(Evidence(label(gpu, place), ", ".join(parts)))
    return tuple(found)
