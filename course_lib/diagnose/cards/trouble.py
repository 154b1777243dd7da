"""A card or its driver reports a failure: which one, and what now?"""

from collections.abc import Iterator

from course_lib.diagnose.cards.processes import zombie
from course_lib.diagnose.finding import Evidence, Finding
from course_lib.diagnose.smi.csv import COLUMNS_UNKNOWN
from course_lib.diagnose.smi.listing import INACTIVE_LINKS
from course_lib.diagnose.smi.model import GpuStatus

# What NVIDIA's list of Xid errors says, in groups that ask for the same action.
_XID_OF_PROGRAMS = {13, 31, 43, 45, 68, 69}
_XID_OF_MEMORY = {48, 63, 64, 92, 94, 95, 140}
_XID_OF_THE_BUS = {79}
_XID_OF_NVLINK = {74}
_XID_OF_FIRMWARE = {61, 62, 109, 119, 120}


def trouble(status: GpuStatus) -> Iterator[Finding]:
    """One Finding for each failure that the text reports."""
    told: set[str] = set()  # a lost card is reported in several words
    for name, line in status.trouble.items():
        finding = _finding(status, name, line)
        if finding and (finding.id != "hardware.gpu_lost" or finding.id not in told):
            told.add(finding.id)
            yield finding
    for gpu in status.gpus:
        if len(gpu.unreadable) >= 3:
            yield _lost(status, f"{', '.join(gpu.unreadable)} cannot be read", f"GPU {gpu.index}")
        elif gpu.unreadable:
            yield Finding(
                id="smi.sensor_error",
                summary=f"The tool could not read {', '.join(gpu.unreadable)} of GPU {gpu.index}",
                why="ERR! stands in these cells: a sensor or the driver did not answer. The other figures "
                "hold.",
                remedies=("Look again, and in dmesg for NVRM lines; update the driver if it stays.",),
                not_helpful=("Reading ERR! as 0.",),
                severity="warning",
            )


def _finding(status: GpuStatus, name: str, line: str) -> Finding | None:
    if name == "gpu lost":
        return _lost(status, line)
    if name.startswith("xid "):
        return _xid(status, int(name.split()[1]), line)
    if name.startswith("owner of GPU "):
        number = int(name.rsplit(" ", 1)[1])
        gpu = next((gpu for gpu in status.gpus if gpu.index == number), None)
        if gpu is not None and (gpu.used_mib or 0.0) >= 500:
            return zombie(gpu, f"the owner reads {line}")
        return None
    if name.startswith(INACTIVE_LINKS):
        return _inactive_links(name.removeprefix(INACTIVE_LINKS), line)
    texts = _TEXTS.get(name)
    if texts is None:
        return None
    identifier, summary, why, first, no_help = texts
    return Finding(identifier, summary, why, (first,), (no_help,), (Evidence("line", line),))


def _lost(status: GpuStatus, line: str, card: str = "The card") -> Finding:
    where = f" at {status.pci_bus_id}" if status.pci_bus_id else ""
    return Finding(
        id="hardware.gpu_lost",
        summary=f"{card}{where} has dropped off the bus",
        why="The driver can no longer talk to it (power, heat, riser, driver). The training code is not "
        "the cause; the process hangs or dies with an unknown error.",
        remedies=(
            "Reboot; check dmesg for Xid 79, then power and cooling; reseat the card; lower the clocks or "
            "the power limit as a test.",
        ),
        not_helpful=("Debugging the training loop.", "A smaller batch size."),
        evidence=(Evidence("line" if card == "The card" else card, line),),
    )


def _inactive_links(card: str, links: str) -> Finding:
    return Finding(
        id="hardware.nvlink_inactive",
        summary=f"GPU {card}: some of its NVLinks are inactive",
        why=f"Inactive: {links}; its other links work. Where all cards of the computer should be connected "
        "alike, a link has failed, and NCCL takes a slower way. Some boards leave links unused by design.",
        remedies=(
            "Compare with the other cards (nvidia-smi nvlink -s, nvidia-smi topo -m) and look for Xid 74 in "
            "dmesg; then reset the card or reboot, reseat card and bridge.",
        ),
        not_helpful=("Changing the training code.",),
        evidence=(Evidence(f"inactive links of GPU {card}", links),),
        severity="warning",
        certainty="likely",
    )


def _xid(status: GpuStatus, xid: int, line: str) -> Finding:
    if xid in _XID_OF_THE_BUS:
        return _lost(status, line)
    if xid in _XID_OF_PROGRAMS:
        return Finding(
            id="program.gpu_fault",
            summary=f"Xid {xid}: a program did something that the card does not allow",
            why="An illegal address or instruction in a kernel, or a process that was ended while it "
            "worked. The card itself is usually fine.",
            remedies=(
                "Run the program with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to see which line.",
            ),
            not_helpful=("Replacing the card.",),
            evidence=(Evidence("line", line),),
            certainty="likely",
        )
    if xid in _XID_OF_FIRMWARE:
        return Finding(
            id="hardware.xid",
            summary=f"Xid {xid}: the card, or its own firmware, does not answer",
            why="The driver waited in vain for the card (a change from one program to the next), or for the "
            "processor on it (GSP, or its power management). Programs on the card hang or die; the training "
            "code is rarely the cause.",
            remedies=(
                "Reset the card (nvidia-smi --gpu-reset, with nothing running on it) or reboot; update "
                "driver and firmware if it returns, then have the card looked at.",
            ),
            not_helpful=("Debugging the training loop.",),
            evidence=(Evidence("line", line),),
            certainty="likely",
        )
    memory = xid in _XID_OF_MEMORY
    nvlink = xid in _XID_OF_NVLINK
    return Finding(
        id="hardware.memory_errors" if memory else "hardware.nvlink_error" if nvlink else "hardware.xid",
        summary=f"Xid {xid}: "
        + (
            "memory errors on the card"
            if memory
            else "NVLink failed"
            if nvlink
            else "the driver reports a fault"
        ),
        why="The kernel log holds the driver's own error number; NVIDIA's list of Xid errors says what "
        "each means.",
        remedies=(
            "Reset the card or reboot; look at nvidia-smi -q -d ECC,ROW_REMAPPER; have it replaced if it "
            "returns."
            if memory
            else "Reboot, reseat card and bridges, and look up the number in NVIDIA's list of Xid errors.",
        ),
        not_helpful=("Debugging the training loop.",),
        evidence=(Evidence("line", line),),
        certainty="likely",
    )


_TEXTS: dict[str, tuple[str, str, str, str, str]] = {
    "driver not running": (
        "smi.driver_not_running",
        "The driver of the card is not loaded",
        "nvidia-smi is there, the kernel module is not: a kernel update without a rebuilt module, secure "
        "boot, or no driver for this kernel.",
        "Reboot; if that does not help, reinstall the driver for the running kernel (dkms status, lsmod | "
        "grep nvidia), and check secure boot.",
        "Reinstalling PyTorch or CUDA in the Python environment.",
    ),
    "library mismatch": (
        "smi.driver_library_mismatch",
        "The driver was updated, and the old kernel module is still loaded",
        "The library is newer than the kernel module that runs. It happens after an automatic update.",
        "Reboot (or unload and load the nvidia modules while nothing uses the card).",
        "Reinstalling PyTorch.",
    ),
    "nvml unknown error": (
        "smi.container_lost_device",
        "The container has lost its access to the card",
        "NVML answers with an unknown error: in containers that happens when the host reloads systemd and "
        "the device rights are set anew. The card itself is usually fine.",
        "Restart the container; to prevent it, use the cgroupfs driver or pass the devices with --device.",
        "Reinstalling the driver inside the container.",
    ),
    "no permission": (
        "smi.no_permission",
        "The tool may not read the card",
        "The device files belong to another group.",
        "Run it as a user of the video (or render) group, or ask the administrator.",
        "Reinstalling the driver.",
    ),
    "no driver library": (
        "smi.no_driver_library",
        "The driver's library NVML is not on this computer",
        "Either there is no NVIDIA driver, or the container was started without access to it.",
        "On the host, install the driver; in a container, start it with --gpus all and the NVIDIA "
        "container toolkit.",
        "Installing CUDA in the Python environment.",
    ),
    "access blocked": (
        "smi.access_blocked",
        "Windows does not let this Linux (WSL) use the card",
        "NVML is there and Windows blocks the card: its driver or the WSL kernel is too old, or was updated "
        "while WSL ran.",
        "On Windows: wsl --shutdown, wsl --update, and a current NVIDIA driver for Windows; then start WSL "
        "again.",
        "Installing a Linux driver inside WSL.",
    ),
    "init failed": (
        "hardware.init_failed",
        "The driver cannot start the card",
        "The kernel module found the card, and its start failed (RmInitAdapter): a fault of power, slot or "
        "card, or a driver that does not know it.",
        "Reboot with the power off for a minute; reseat the card and its power cables, try another slot, and "
        "a driver that supports the card.",
        "Reinstalling PyTorch.",
    ),
    "no devices": (
        "smi.no_devices",
        "The driver runs and sees no card",
        "The card is not there, is switched off, or has failed to start.",
        "Look at lspci | grep -i nvidia and at dmesg | grep NVRM; check slot and power.",
        "Setting CUDA_VISIBLE_DEVICES.",
    ),
    "tool missing": (
        "smi.tool_missing",
        "nvidia-smi is not on this computer",
        "There is no NVIDIA driver here, or the tool is not on the PATH (or it is not an NVIDIA card).",
        "Install the NVIDIA driver if the computer has such a card; course doctor says what this computer "
        "has.",
        "pip install nvidia-smi.",
    ),
    COLUMNS_UNKNOWN: (
        "smi.columns_unknown",
        "These are figures without names",
        "Neither a header nor the command line is in the text. Which of two numbers is the total cannot be "
        "told.",
        "Paste the command with the rows, or run it again without noheader.",
        "Guessing what the columns mean.",
    ),
}
