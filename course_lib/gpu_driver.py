"""Is there a graphics card in this computer, and which driver serves it? Asked without torch.

torch answers "no CUDA" in the same way for a missing card, a missing driver, an old driver and a CPU build.
These questions go to the driver and to the operating system, so that the four can be told apart.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NVIDIA_SMI_SECONDS = 15  # a driver in trouble lets nvidia-smi hang
_WSL_SMI = "/usr/lib/wsl/lib/nvidia-smi"  # WSL2 puts it here, which is not always on the PATH
_NVIDIA, _AMD = "0x10de", "0x1002"  # PCI vendor numbers
_DISPLAY_CLASS = "0x03"  # PCI class of graphics cards, with or without a screen


@dataclass(frozen=True)
class NvidiaCard:
    """One card as the driver names it; ``memory_bytes`` is None where only the bus knows of the card."""

    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True)
class NvidiaStatus:
    """The NVIDIA cards in the machine, the version of their driver, and what the driver complains of.

    ``driver_version`` is None when no driver answers. ``complaint`` is the first line of what ``nvidia-smi``
    said when it failed, for example "Failed to initialize NVML: Driver/library version mismatch".
    """

    cards: tuple[NvidiaCard, ...] = ()
    driver_version: str | None = None
    complaint: str | None = None


def nvidia_status(root: Path = Path("/"), nvidia_smi: str | None = None) -> NvidiaStatus:
    """Ask ``nvidia-smi``; where it does not answer, ask the kernel's files below ``root``."""
    command = nvidia_smi or shutil.which("nvidia-smi") or shutil.which(_WSL_SMI)
    complaint = None
    if command is not None:
        answer, complaint = _run_nvidia_smi(command)
        if status := parse_nvidia_smi(answer):
            return status
    seen = _cards_on_the_bus(_NVIDIA, root) or int((root / "dev/nvidia0").exists())
    return NvidiaStatus((NvidiaCard("NVIDIA card"),) * seen, _kernel_module_version(root), complaint)


def parse_nvidia_smi(answer: str) -> NvidiaStatus | None:
    """The status in the lines "driver version, name, memory in MiB"; None when no line is of that shape.

    Some integrated cards (Jetson, GB10) share the computer's memory and print "[N/A]" as their own.
    """
    rows = [
        match for line in answer.splitlines() if (match := re.fullmatch(r"(\d[\d.]*), (.+), ([^,]+)", line))
    ]
    if not rows:
        return None
    cards = tuple(NvidiaCard(m[2], int(m[3]) * 2**20 if m[3].isdigit() else None) for m in rows)
    return NvidiaStatus(cards, rows[0][1])


def amd_card_count(root: Path = Path("/")) -> int:
    """How many AMD graphics cards are on the bus, those inside a processor too; 0 outside of Linux."""
    return _cards_on_the_bus(_AMD, root)


def _run_nvidia_smi(command: str) -> tuple[str, str | None]:
    query = [command, "--query-gpu=driver_version,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            query,
            capture_output=True,
            timeout=_NVIDIA_SMI_SECONDS,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return "", f"nvidia-smi gave no answer in {_NVIDIA_SMI_SECONDS} s"
    except OSError as error:
        return "", f"nvidia-smi cannot be run: {error.strerror}"
    if done.returncode == 0:
        return done.stdout, None
    said = (done.stdout + done.stderr).strip().splitlines()
    return "", said[0].strip() if said else f"nvidia-smi ended with status {done.returncode}"


def _cards_on_the_bus(vendor: str, root: Path) -> int:
    return sum(
        _line(device / "vendor") == vendor and _line(device / "class").startswith(_DISPLAY_CLASS)
        for device in (root / "sys/bus/pci/devices").glob("*")
    )


def _kernel_module_version(root: Path) -> str | None:
    # The line reads "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu ...", or, for the open
    # module, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.02  Release Build ...".
    match = re.search(
        r"Module\D*(?:x86_64|aarch64)?\s+(\d+\.\d+(?:\.\d+)?)", _line(root / "proc/driver/nvidia/version")
    )
    return match[1] if match else None


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError:
        return ""
