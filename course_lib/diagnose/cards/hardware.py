"""What do the figures say about the hardware: throttling, link, memory errors, slices, a card that waits?"""

from collections.abc import Iterator

from course_lib.diagnose.cards.common import (
    BUSY_UTIL,
    IDLE_UTIL,
    NO_JOB_MIB,
    THROTTLING,
    label,
    power_share,
    span,
)
from course_lib.diagnose.finding import Evidence, Finding
from course_lib.diagnose.smi.model import GpuStatus

_IDLE_POWER = 0.2  # of the limit
_WAITING_POWER = 0.3


def throttled(status: GpuStatus) -> Iterator[Finding]:
    """Cards that slow themselves down, or are about to."""
    for place, gpu in enumerate(status.gpus):
        active = sorted(THROTTLING & set(gpu.throttle_reasons or ()))
        brake = "hw_power_brake_slowdown" in active
        rests = gpu.util_percent is not None and gpu.util_percent < IDLE_UTIL
        if not active or (rests and not brake):
            continue
        clock = "" if gpu.sm_clock_mhz is None else f" at {gpu.sm_clock_mhz:.0f} MHz"
        top = "" if gpu.max_sm_clock_mhz is None else f" of {gpu.max_sm_clock_mhz:.0f}"
        heat = "" if gpu.temp_c is None else f" and {gpu.temp_c:.0f} °C"
        yield Finding(
            id="hardware.power_brake" if brake else "hardware.thermal_throttling",
            summary=f"{label(gpu, place)} slows itself down: {', '.join(active).replace('_', ' ')}",
            why=f"The card reports {', '.join(active)}{clock}{top}{heat}. All ranks wait for the slowest, "
            "so one hot card slows the whole job.",
            remedies=(
                "Check the server's power supply and cables (a power brake comes from outside the card)."
                if brake
                else "Improve the cooling: fans, dust, free slots, room temperature; as a test, lower the "
                "power limit a little (nvidia-smi -pl), which often costs little speed.",
                "Watch the clocks for some minutes: nvidia-smi dmon -s pucv.",
            ),
            not_helpful=("Changing the training code.", "A smaller batch."),
            severity="warning" if rests else "problem",
        )
    for place, gpu in enumerate(status.gpus):
        known = gpu.temp_c is not None and gpu.slowdown_temp_c is not None
        if known and gpu.temp_c >= gpu.slowdown_temp_c - 3 and not gpu.throttle_reasons:  # type: ignore[operator]
            yield Finding(
                id="hardware.near_throttling",
                summary=f"{label(gpu, place)} is within 3 °C of the temperature at which it slows down",
                why=f"{gpu.temp_c:.0f} °C against {gpu.slowdown_temp_c:.0f} °C.",
                remedies=("Improve the cooling before a long run.",),
                severity="warning",
            )


def pcie(status: GpuStatus) -> Iterator[Finding]:
    """Links to the computer that are slower than they could be."""
    for place, gpu in enumerate(status.gpus):
        narrow = gpu.pcie_width is not None and gpu.pcie_width < (gpu.pcie_width_max or 0)
        # Cards lower the generation when they rest; the width should stay.
        slow = (
            gpu.pcie_generation is not None
            and gpu.pcie_generation < (gpu.pcie_generation_max or 0)
            and (gpu.util_percent or 0.0) >= BUSY_UTIL
        )
        if not narrow and not slow:
            continue
        now = f"x{gpu.pcie_width or '?'} generation {gpu.pcie_generation or '?'}"
        best = f"x{gpu.pcie_width_max or '?'} generation {gpu.pcie_generation_max or '?'}"
        yield Finding(
            id="pcie.link_degraded",
            summary=f"{label(gpu, place)} is connected more slowly than it could be: {now}, at best {best}",
            why="Copies to the card and, without NVLink, gradients between cards pass this link. Some "
            "slots are wired narrower by design; then it is no fault.",
            remedies=(
                "Look up the slot in the board's manual; reseat the card or riser; then compare under load: "
                "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv -l 1.",
            ),
            not_helpful=("More loader workers: they do not widen the link.",),
            severity="warning",
        )


def mig(status: GpuStatus) -> Iterator[Finding]:
    """A card that is cut into slices."""
    cut = [gpu for gpu in status.gpus if gpu.mig_enabled]
    if not cut and not status.mig_devices:
        return
    sizes = [device.total_mib for device in status.mig_devices if device.total_mib is not None]
    which = "The sizes of the slices are not in the text."
    if sizes:
        kind = "unequal" if max(sizes) > 1.05 * min(sizes) else "equal"
        listed = ", ".join(f"{size:.0f} MiB" for size in sizes)
        which = f"Slices of {kind} size: {listed}. Which one the job gets decides what fits."
    yield Finding(
        id="smi.mig",
        summary="The card is cut into slices (MIG): a job sees one slice, not the card",
        why=f"{which} Utilisation of the whole card reads N/A then.",
        remedies=(
            "Name the slice by UUID: CUDA_VISIBLE_DEVICES=MIG-..., from nvidia-smi -L; plan with the "
            "slice's memory.",
        ),
        not_helpful=(
            "Planning with the whole card's memory.",
            "Assuming slices of equal size.",
            "DDP over slices of one card: NCCL does not connect them.",
        ),
        severity="note",
    )


def waiting(status: GpuStatus) -> Iterator[Finding]:
    """All cards at idle power: a hang, or no job."""
    shares = [power_share(gpu) for gpu in status.gpus]
    known = [share for share in shares if share is not None]
    if len(known) < 2 or len(known) < len(status.gpus) or any(gpu.mig_enabled for gpu in status.gpus):
        return
    if all(gpu.used_mib is not None and gpu.used_mib < NO_JOB_MIB for gpu in status.gpus):
        return  # no job is there that could hang
    utils = [gpu.util_percent for gpu in status.gpus if gpu.util_percent is not None]
    spinning = len(utils) == len(known) and min(utils) >= 90 and max(known) <= _WAITING_POWER
    if not spinning and (utils or max(known) > _IDLE_POWER):
        return
    level = f"{span([100 * share for share in known])} of the power limit on all {len(known)} cards"
    yield Finding(
        id="hang.all_ranks_idle_power",
        summary="All cards draw idle power" + (" while they report full utilisation" if spinning else ""),
        why=f"{level}. Power tells working from waiting, utilisation does not: a card that spins in a "
        "collective reads 100 %."
        + ("" if spinning else " Without a running job the same figures simply mean idle."),
        remedies=(
            "Ask whether a job should be running; if yes, run py-spy dump on every rank and compare which "
            "collective each one is in.",
        ),
        not_helpful=(
            "Taking 100 % utilisation as proof of work.",
            "Reading the low power as a fault of the hardware.",
        ),
        evidence=tuple(
            Evidence(label(gpu, place), f"{gpu.power_w:.0f} of {gpu.power_cap_w:.0f} W")
            for place, gpu in enumerate(status.gpus)
        ),
        certainty="likely" if spinning else "possible",
    )


def compute_prohibited(status: GpuStatus) -> Iterator[Finding]:
    """Cards on which an administrator has forbidden computing."""
    for place, gpu in enumerate(status.gpus):
        if (gpu.compute_mode or "").lower() == "prohibited":
            yield Finding(
                id="smi.compute_prohibited",
                summary=f"{label(gpu, place)} may not compute: its compute mode is Prohibited",
                why="CUDA programs cannot open this card, whatever is free on it.",
                remedies=(
                    f"Choose another card, or ask the administrator for nvidia-smi -i {gpu.index or 0} -c "
                    "DEFAULT.",
                ),
                not_helpful=("Reinstalling CUDA or PyTorch.",),
            )


def ecc_errors(status: GpuStatus) -> Iterator[Finding]:
    """Cards with memory errors that could not be corrected."""
    for place, gpu in enumerate(status.gpus):
        if gpu.ecc_uncorrected:
            yield Finding(
                id="hardware.memory_errors",
                summary=f"{label(gpu, place)} counts {gpu.ecc_uncorrected} memory "
                f"{'error' if gpu.ecc_uncorrected == 1 else 'errors'} that could not be corrected",
                why="Programs on this card are killed or compute wrong numbers when such an error is hit. "
                "The count starts anew with each reset of the card.",
                remedies=(
                    "Reset the card or reboot; if the count comes back, have the card replaced (nvidia-smi "
                    "-q -d ECC,ROW_REMAPPER).",
                ),
                not_helpful=("Changing the training code.",),
            )
        elif gpu.repair_pending:
            yield Finding(
                id="hardware.memory_errors",
                summary=f"{label(gpu, place)} has marked bad memory, which is replaced at its next reset",
                why="A page or row was found faulty and waits for its replacement (Pending: Yes). Until "
                "then a program can hit it again.",
                remedies=(
                    "Reset the card or reboot when no job runs on it; if it returns soon, have the card "
                    "looked at.",
                ),
                not_helpful=("Changing the training code.",),
                severity="warning",
            )
