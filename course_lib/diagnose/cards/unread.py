"""Why can the tool not read the memory of a card that it sees?"""

import re
from collections.abc import Iterator

from course_lib.diagnose.finding import Finding
from course_lib.diagnose.smi.model import GpuStatus

# Parts on which card and computer share one memory, so that the driver has none of the card's own to tell.
_UNIFIED = re.compile(r"\bGB10\b|\bnvgpu\b|Tegra|Orin|Xavier|Jetson|\bThor\b")


def unreadable_memory(status: GpuStatus) -> Iterator[Finding]:
    """Memory that the tool cannot read, and why."""
    unread = [gpu for gpu in status.gpus if gpu.used_mib is None and gpu.total_mib is None]
    if not status.gpus or len(unread) < len(status.gpus) or not status.memory_asked:
        return
    if any(gpu.unreadable for gpu in status.gpus):
        return
    if status.smi_version and status.driver_version and status.smi_version != status.driver_version:
        yield Finding(
            id="smi.tool_driver_mismatch",
            summary="nvidia-smi and the driver are of different versions, and memory cannot be read",
            why=f"nvidia-smi {status.smi_version} runs against driver {status.driver_version}: the tool is "
            "from another installation. Nothing is known about memory; PyTorch itself may be fine.",
            remedies=(
                "Use torch.cuda.mem_get_info(), and the nvidia-smi that belongs to the driver (or complete "
                "the driver update and reboot).",
            ),
            not_helpful=("Reading N/A as 0 MiB.", "Concluding that the card has no memory."),
        )
        return
    known_part = any(_UNIFIED.search(gpu.name or "") for gpu in status.gpus)
    if known_part or any(gpu.util_percent is not None or gpu.temp_c is not None for gpu in status.gpus):
        yield Finding(
            id="smi.unified_memory",
            summary="Memory cannot be read through the driver's tool here: card and computer may share one "
            "memory",
            why="Other figures are there, memory is not available. That is so on parts with unified memory "
            "(DGX Spark, Jetson, Grace), and not a fault.",
            remedies=("Use the system's own tools for memory: free -h, or torch.cuda.mem_get_info().",),
            not_helpful=("Reading it as 0 MiB used.",),
            severity="note",
            certainty="certain" if known_part else "likely",
        )
