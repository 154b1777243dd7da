"""Which failure does a line report: the tool cannot reach the driver, or a card is gone?"""

import re

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.model import GpuStatus

_BUS = r"((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?)"
_LINES = {
    label: re.compile(pattern, re.IGNORECASE)
    for label, pattern in {
        "gpu lost": rf"Unable to determine the device handle for GPU\s*{_BUS}|GPU is lost|fallen off the bus"
        r"|No longer available on the bus",
        "driver not running": r"couldn't communicate with the NVIDIA driver",
        "library mismatch": r"Driver/library version mismatch",
        "nvml unknown error": r"Failed to initialize NVML: Unknown Error",
        "no permission": r"Failed to initialize NVML: Insufficient Permissions",
        "no driver library": r"NVML Shared Library Not Found"
        r"|libnvidia-ml\.so[^\n]{0,60}(?:not found|cannot open)",
        "no devices": r"No devices were found",
        "tool missing": r"nvidia-smi['\"]?(?::| is) (?:command )?not (?:found|recognized)"
        r"|command not found: nvidia-smi",
        "xid": r"Xid \(PCI:(?P<bus>[0-9A-Fa-f:.]{7,20})\):\s*(?P<xid>\d{1,3})",
    }.items()
}
_CODE = re.compile(r"^\s*(?:#|//|print\(|echo |raise |if |elif )")


def read(paste: Paste) -> list[GpuStatus]:
    """All failures that the text reports, as one GpuStatus with ``trouble``, or none."""
    found: dict[str, str] = {}
    bus_id = None
    lines: list[int] = []
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:2000]
        if _CODE.match(text):
            continue
        for label, pattern in _LINES.items():
            match = pattern.search(text)
            if match is None:
                continue
            name = f"xid {match['xid']}" if label == "xid" else label
            if found.setdefault(name, text.strip()) == text.strip():
                lines.append(line_number)
            if bus_id is None and match.groups():
                bus_id = match.group(1)
    if not found:
        return []
    return [
        GpuStatus(
            source="failure of the card or its driver",
            first_line=min(lines),
            last_line=max(lines),
            trouble=found,
            pci_bus_id=bus_id,
        )
    ]
