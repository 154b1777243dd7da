"""What can be read of ``rocm-smi``'s short table? AMD's tool: fill and activity in percent, no MiB.

Columns have come and gone, so they are taken by name from the header; the last two are VRAM% and GPU%.
"""

import re

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number
from course_lib.diagnose.smi.model import Gpu, GpuStatus

_TITLE = re.compile(r"ROCm System Management Interface|ROCm SMI Log", re.IGNORECASE)
_HEADER = re.compile(r"\bVRAM%\s+GPU%")
_ROW = re.compile(r"^\s*(\d{1,3})\s+.*?(\d{1,3}(?:\.\d)?)\s*°?\s*[cC]\b")
_POWER = re.compile(r"(\d{1,4}(?:\.\d)?)W")
_PERCENTS = re.compile(r"(\d{1,3})%\s+(\d{1,3})%\s*$")
_CLOCK = re.compile(r"(\d{1,5})Mhz", re.IGNORECASE)
SOURCE = "rocm-smi"


def read(paste: Paste) -> list[GpuStatus]:
    """The rows of the table as one GpuStatus, or none; ``trouble`` says how full each card is."""
    titles = [n for n, line in enumerate(paste.lines, start=1) if _TITLE.search(line[:300])]
    header = next((n for n, line in enumerate(paste.lines, start=1) if _HEADER.search(line[:300])), None)
    if not titles and header is None:
        return []
    gpus: list[Gpu] = []
    full: dict[str, str] = {}
    last = header or titles[-1]
    for line_number, line in enumerate(paste.lines, start=1):
        if header is None or line_number <= header:
            continue
        row, percents = _ROW.match(line[:300]), _PERCENTS.search(line[:300].rstrip())
        if row is None or percents is None:
            continue
        powers, clocks = _POWER.findall(line), _CLOCK.findall(line)
        gpus.append(
            Gpu(
                index=int(row.group(1)),
                temp_c=float(row.group(2)),
                power_w=number(powers[0]) if powers else None,
                power_cap_w=number(powers[-1]) if len(powers) > 1 else None,
                sm_clock_mhz=number(clocks[0]) if clocks else None,
                util_percent=float(percents.group(2)),
            )
        )
        full[f"memory of GPU {row.group(1)} in use"] = f"{percents.group(1)} %"
        last = line_number
    return [
        GpuStatus(
            source=SOURCE,
            first_line=min([*titles, header or titles[0]]),
            last_line=last,
            gpus=tuple(gpus),
            samples=tuple(gpus),
            trouble=full,
        )
    ]
