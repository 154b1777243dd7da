"""What does nvtop's screen show? A line with the name, one with clocks and power, one with two bars.

``Device 0 [NAME] PCIe GEN 4@16x ...``, ``GPU 1695MHz MEM 9501MHz TEMP 62°C FAN 45% POW 336 / 350 W`` and
``GPU[|||100%] MEM[|||20.125Gi/24.000Gi]``. The rows of processes are not read.
"""

import re
from dataclasses import replace

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number
from course_lib.diagnose.smi.model import Gpu, GpuStatus

_DEVICE = re.compile(r"\bDevice (\d{1,3}) \[([^\]]{1,80})\]")
_STATE = re.compile(
    r"\bGPU\s+(\d{1,5}|N/A)\s*MHz\s+MEM\s+(\d{1,5}|N/A)\s*MHz(?:\s+TEMP\s+(\d{1,3}|N/A)\s*°?\s*C)?"
    r"(?:\s+FAN\s+(\d{1,3}|N/A|CPU FAN)\s*%?)?(?:\s+POW\s+(\d{1,4}|N/A)\s*(?:/\s*(\d{1,4}|N/A)\s*)?W)?"
)
_UTIL = re.compile(r"\bGPU\[[|\s]{0,300}(\d{1,3})%\]")
_MEMORY = re.compile(r"\bMEM\[[|\s]{0,300}(\d{1,6}(?:\.\d{1,4})?)([KMG])i/(\d{1,6}(?:\.\d{1,4})?)([KMG])i\]")
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


def read(paste: Paste) -> list[GpuStatus]:
    """The devices of the screen as one GpuStatus, or none."""
    gpus: list[Gpu] = []
    lines: list[int] = []
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:1000]
        if match := _DEVICE.search(text):
            gpus.append(Gpu(index=int(match.group(1)), name=match.group(2)))
        elif gpus and (match := _STATE.search(text)):
            clock, memory_clock, temperature, fan, draw, cap = match.groups()
            gpus[-1] = replace(
                gpus[-1],
                sm_clock_mhz=number(clock),
                memory_clock_mhz=number(memory_clock),
                temp_c=number(temperature),
                fan_percent=number(fan),
                power_w=number(draw),
                power_cap_w=number(cap),
            )
        elif gpus and ((match := _UTIL.search(text)) or _MEMORY.search(text)):
            memory = _MEMORY.search(text)
            gpus[-1] = replace(
                gpus[-1],
                util_percent=float(match.group(1)) if match else None,
                used_mib=float(memory.group(1)) * _MIB[memory.group(2)] if memory else None,
                total_mib=float(memory.group(3)) * _MIB[memory.group(4)] if memory else None,
            )
        else:
            continue
        lines.append(line_number)
    known = tuple(gpu for gpu in gpus if gpu != Gpu(index=gpu.index, name=gpu.name))
    if not known:
        return []
    return [GpuStatus(source="nvtop", first_line=lines[0], last_line=lines[-1], gpus=known, samples=known)]
