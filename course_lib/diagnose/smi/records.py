"""What do ``gpustat --json`` and ``nvtop --snapshot`` say? Also as Python prints them, and cut off anywhere.

Names and values are read in the order of the text; the first name of a card begins the next card.
"""

import re
from collections.abc import Iterator
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number, whole, word
from course_lib.diagnose.smi.fields import make_gpu
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus

_PAIR = re.compile(
    r"[\"']([A-Za-z][\w. ]{0,40})[\"']\s*:\s*(?:[\"']([^\"'\n]{0,200})[\"']|(-?[\w.]{1,30})|([\[{]))"
)
_OF_GPUSTAT = {
    "index": "index",
    "uuid": "uuid",
    "name": "name",
    "temperature.gpu": "temp_c",
    "fan.speed": "fan_percent",
    "utilization.gpu": "util_percent",
    "power.draw": "power_w",
    "enforced.power.limit": "power_cap_w",
    "memory.used": "used_mib",
    "memory.total": "total_mib",
}
_OF_NVTOP = {
    "device_name": "name",
    "gpu_clock": "sm_clock_mhz",
    "mem_clock": "memory_clock_mhz",
    "temp": "temp_c",
    "fan_speed": "fan_percent",
    "power_draw": "power_w",
    "gpu_util": "util_percent",
}
_OF_PROCESS = {"username", "command", "gpu_memory_usage", "pid"}
# Tool, its names of figures, the name that begins a card, and one that no other tool prints.
_TOOLS = (
    ("gpustat --json", _OF_GPUSTAT, "index", "utilization.gpu"),
    ("nvtop --snapshot", _OF_NVTOP, "device_name", "gpu_util"),
)


def read(paste: Paste) -> list[GpuStatus]:
    """The cards of each tool's records as one GpuStatus."""
    statuses = []
    for tool, names, first_name, own_name in _TOOLS:
        if f"{own_name}'" in paste.text or f'{own_name}"' in paste.text:
            statuses += list(_status(paste, tool, names, first_name))
    return statuses


def _status(paste: Paste, tool: str, names: dict[str, str], first_name: str) -> Iterator[GpuStatus]:
    cards: list[dict[str, str]] = []
    processes: list[dict[str, Any]] = []
    listed = False
    driver = None
    places: list[int] = []
    for match in _PAIR.finditer(paste.text):
        name, value = match.group(1), match.group(2) or match.group(3) or ""
        if name == "driver_version":
            driver = word(value)
        elif name == first_name:
            cards.append({names[name]: value})
            places.append(match.start())
        elif name in names and cards:
            cards[-1].setdefault(names[name], _plain(value))
            places.append(match.start())
        elif name == "processes" and cards:
            listed = listed or match.group(4) == "["
        elif name in _OF_PROCESS and cards:
            if not processes or name in processes[-1] or processes[-1]["card"] != len(cards):
                processes.append({"card": len(cards)})
            processes[-1][name] = _plain(value)
    gpus = [make_gpu(card) for card in cards]
    if not any(gpu != Gpu(index=gpu.index, name=gpu.name) for gpu in gpus):
        return
    yield GpuStatus(
        source=tool,
        first_line=paste.line_of(places[0]),
        last_line=paste.line_of(places[-1]),
        driver_version=driver,
        gpus=tuple(gpus),
        samples=tuple(gpus),
        processes=tuple(_process(found, gpus) for found in processes) if listed else None,
        memory_asked=names is _OF_GPUSTAT,
    )


def _plain(value: str) -> str:
    return "N/A" if value in ("null", "None", "") else value


def _process(found: dict[str, Any], gpus: list[Gpu]) -> GpuProcess:
    return GpuProcess(
        gpu=gpus[found["card"] - 1].index,
        pid=whole(found.get("pid")),
        name=word(found.get("command")),
        user=word(found.get("username")),
        mib=number(found.get("gpu_memory_usage")),
    )
