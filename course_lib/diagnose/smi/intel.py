"""What can be read of ``xpu-smi``, of Intel's cards? The rows of ``dump``, and the names of ``discovery``."""

import re
from dataclasses import replace

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number, split_row, whole
from course_lib.diagnose.smi.model import Gpu, GpuStatus

XPU = "xpu-smi"
_HEADER = re.compile(r"^\W*Timestamp,\s*DeviceId,\s*\S")
_NAME = re.compile(r"Device Name:\s*(Intel\(R\) .{1,60}?)\s*(?:\||$)")
_DEVICE = re.compile(r"^\W{0,6}?\|?\s*(\d{1,3})\s*\|\s*Device Type: GPU")
_COLUMNS = {
    "GPU Utilization (%)": "util_percent",
    "GPU Power (W)": "power_w",
    "GPU Frequency (MHz)": "sm_clock_mhz",
    "GPU Core Temperature (Celsius Degree)": "temp_c",
    "GPU Memory Used (MiB)": "used_mib",
}


def read(paste: Paste) -> list[GpuStatus]:
    """The devices that the text names as one GpuStatus, or none; of ``dump`` the last row of each."""
    cards: dict[int | None, Gpu] = {}
    samples: list[Gpu] = []
    lines: list[int] = []
    columns: list[str] = []
    device: int | None = None
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:1000].strip(" >|")
        if _HEADER.match(text):
            columns = split_row(text)
        elif len(columns) > 1 and len(cells := split_row(text)) == len(columns) and cells[1].isdecimal():
            values = {_COLUMNS[n]: number(c) for n, c in zip(columns, cells, strict=True) if n in _COLUMNS}
            card = Gpu(index=whole(cells[1]), time=cells[0], **values)  # type: ignore[arg-type]
            cards[card.index] = card
            samples.append(card)
        elif match := _DEVICE.match(line[:300]):
            device = int(match.group(1))
            cards.setdefault(device, Gpu(index=device))
        elif match := _NAME.search(line[:300]):
            cards[device] = replace(cards.get(device, Gpu(index=device)), name=match.group(1))
        else:
            continue
        lines.append(line_number)
    if not lines:
        return []
    gpus = tuple(cards.values())
    return [
        GpuStatus(
            source=XPU,
            first_line=lines[0],
            last_line=lines[-1],
            gpus=gpus,
            samples=tuple(samples) or gpus,
            memory_asked=False,
        )
    ]
