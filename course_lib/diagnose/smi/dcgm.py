"""What does ``dcgmi dmon`` say, the monitor of data centres?

A header line of short names that begins with "#Entity", one of "ID", then a row a card and moment. Which
columns there are is the user's choice (``-e 203,252,155``); those not known here are passed over.
"""

import re
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number
from course_lib.diagnose.smi.model import Gpu, GpuStatus

DCGM = "dcgmi dmon"
_HEADER = re.compile(r"^[\s\\]*#\s*Entity((?:\s+[A-Z][A-Z0-9]{2,7}){1,30})\s*$")
_ROW = re.compile(r"^\s*GPU\s+(\d{1,3})((?:\s+(?:\d{1,12}(?:\.\d{1,9})?|N/A)){1,30})\s*$")
_FIELDS = {
    "GPUTL": "util_percent",
    "MCUTL": "memory_activity_percent",
    "FBTTL": "total_mib",
    "FBUSD": "used_mib",
    "FBFRE": "free_mib",
    "POWER": "power_w",
    "TMPTR": "temp_c",
    "SMCLK": "sm_clock_mhz",
    "MMCLK": "memory_clock_mhz",
}
_MOST_ROWS = 100_000


def read(paste: Paste) -> list[GpuStatus]:
    """All rows of the text as one series."""
    columns: list[str] = []
    samples: list[Gpu] = []
    lines: list[int] = []
    for line_number, line in enumerate(paste.lines, start=1):
        if header := _HEADER.match(line[:400]):
            columns = header.group(1).split()
            lines.append(line_number)
        elif columns and len(samples) < _MOST_ROWS and (row := _ROW.match(line[:400])):
            cells = row.group(2).split()
            if len(cells) == len(columns):
                samples.append(_sample(int(row.group(1)), dict(zip(columns, cells, strict=True))))
                lines.append(line_number)
    if not samples:
        return []
    return [
        GpuStatus(
            source=DCGM,
            first_line=lines[0],
            last_line=lines[-1],
            columns=tuple(columns),
            gpus=tuple({sample.index: sample for sample in samples}.values()),
            samples=tuple(samples),
            memory_asked="FBUSD" in columns,
        )
    ]


def _sample(index: int, cells: dict[str, str]) -> Gpu:
    values: dict[str, Any] = {
        field: number(cells[name]) for name, field in _FIELDS.items() if cells.get(name) is not None
    }
    return Gpu(index=index, **values)
