"""What does ``nvidia-smi -q`` say, whole or in part (``-q -d MEMORY``), of any driver?

Its lines are "Key : Value", indented under sections. "Utilization / Memory" there is activity, not fill.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number, whole, word
from course_lib.diagnose.smi.fields import make_gpu, reasons
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus

_LOG = re.compile(r"=+\s*NVSMI LOG\s*=+", re.IGNORECASE)
_CARD = re.compile(r"^(\s*)GPU\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_KEY = re.compile(r"^(\s*)([A-Za-z][\w /().,-]{1,60}?)\s*:\s(.{0,300})$")
_SECTION = re.compile(r"^(\s*)([A-Za-z][\w /().-]{1,60}?)\s*:?\s*$")
_REASONS = re.compile(r"clocks (?:throttle|event) reasons$")
# A section and a key that together are nobody else's; the other words of -q are common English.
_MARKS = re.compile(
    r"^\s*(?:FB Memory Usage|BAR1 Memory Usage|Clocks (?:Throttle|Event) Reasons|GPU Link Info|Max Clocks"
    r"|(?:GPU )?Power Readings|Product Name\s+:.*|Utilization|GPU Current Temp\s*:.*"
    r"|Performance State\s+:.*)\s*$"
)
# path of sections and key, in lower case -> field; the section may be anywhere above
_PATHS: dict[tuple[str, str], str] = {
    ("", "product name"): "name",
    ("", "gpu uuid"): "uuid",
    ("", "performance state"): "pstate",
    ("", "fan speed"): "fan_percent",
    ("", "compute mode"): "compute_mode",
    ("", "display active"): "display",
    ("mig mode", "current"): "mig_enabled",
    ("driver model", "current"): "driver_model",
    ("ecc mode", "current"): "ecc",
    ("fb memory usage", "total"): "total_mib",
    ("fb memory usage", "used"): "used_mib",
    ("fb memory usage", "free"): "free_mib",
    ("memory usage", "total"): "total_mib",
    ("memory usage", "used"): "used_mib",
    ("memory usage", "free"): "free_mib",
    ("utilization", "gpu"): "util_percent",
    ("utilization", "memory"): "memory_activity_percent",
    ("temperature", "gpu current temp"): "temp_c",
    ("temperature", "gpu"): "temp_c",
    ("temperature", "gpu slowdown temp"): "slowdown_temp_c",
    ("power readings", "power draw"): "power_w",
    ("power readings", "average power draw"): "power_w",
    ("power readings", "instantaneous power draw"): "power_w",
    ("power readings", "power limit"): "power_cap_w",
    ("power readings", "current power limit"): "power_cap_w",
    ("power readings", "enforced power limit"): "power_cap_w",
    ("power readings", "default power limit"): "default_power_cap_w",
    ("clocks", "sm"): "sm_clock_mhz",
    ("clocks", "memory"): "memory_clock_mhz",
    ("max clocks", "sm"): "max_sm_clock_mhz",
    ("pcie generation", "current"): "pcie_generation",
    ("pcie generation", "device current"): "pcie_generation",
    ("pcie generation", "max"): "pcie_generation_max",
    ("link width", "current"): "pcie_width",
    ("link width", "max"): "pcie_width_max",
    ("volatile", "dram uncorrectable"): "ecc_uncorrected",
}


def read(paste: Paste) -> list[GpuStatus]:
    """The one log of the text, or none. A part without its head still counts, as one card."""
    marks = sum(1 for line in paste.lines if _MARKS.match(line[:200]))
    logged = any(_LOG.search(line[:200]) for line in paste.lines)
    if marks < 2 and not (logged and marks):
        return []
    head: dict[str, str] = {}
    blocks: list[_Block] = []
    first = last = 0
    for number_of_line, path, key, value in _entries(paste):
        if key == "gpu" and not path and value is not None:
            blocks.append(_Block(bus_id=value))
        elif value is not None:
            if not blocks and key in ("driver version", "cuda version", "attached gpus", "timestamp"):
                head[key] = value
            else:
                if not blocks:
                    blocks.append(_Block(bus_id=None))
                blocks[-1].take(path, key, value)
        first, last = first or number_of_line, number_of_line
    gpus = tuple(block.gpu(index) for index, block in enumerate(blocks))
    gpus = tuple(gpu for gpu in gpus if gpu != Gpu(index=gpu.index))
    if not gpus:
        return []
    processes = [p for index, block in enumerate(blocks) for p in block.processes(index)]
    listed = any(block.lists_processes for block in blocks)
    return [
        GpuStatus(
            source="nvidia-smi -q",
            first_line=first,
            last_line=last,
            driver_version=word(head.get("driver version")),
            cuda_version=word(head.get("cuda version")),
            time=word(head.get("timestamp")),
            gpus=gpus,
            samples=gpus,
            processes=tuple(processes) if listed else None,
            truncated=(whole(head.get("attached gpus")) or 0) > len(gpus),
        )
    ]


class _Block:
    """The lines about one card."""

    def __init__(self, bus_id: str | None) -> None:
        self.cells: dict[str, str] = {} if bus_id is None else {"bus_id": bus_id}
        self.reasons: dict[str, str] = {}
        self.lists_processes = False
        self._processes: list[dict[str, Any]] = []

    def take(self, path: list[str], key: str, value: str) -> None:
        section = path[-1] if path else ""
        section = "power readings" if section.endswith("gpu power readings") else section
        if any(_REASONS.search(part) for part in path):
            self.reasons.setdefault(key, value)
        elif key == "processes" or "processes" in path or key == "process id":
            self.lists_processes = True
            if key == "process id":
                self._processes.append({"pid": whole(value)})
            elif self._processes:
                slot = {"type": "kind", "name": "name", "used gpu memory": "mib"}.get(key)
                if slot:
                    self._processes[-1][slot] = number(value) if slot == "mib" else word(value)
        else:
            field = _PATHS.get((section, key)) or (_PATHS.get(("", key)) if not path else None)
            if field:
                self.cells.setdefault(field, value)

    def gpu(self, index: int) -> Gpu:
        gpu = make_gpu(self.cells, index=index)
        return replace(gpu, throttle_reasons=reasons(self.reasons))

    def processes(self, index: int) -> Iterator[GpuProcess]:
        for found in self._processes:
            yield GpuProcess(gpu=index, **found)


def _entries(paste: Paste) -> Iterator[tuple[int, list[str], str, str | None]]:
    """Line number, sections above, key and value of each line; for a card's head, ("gpu", its bus id)."""
    stack: list[tuple[int, str]] = []
    base: int | None = None
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:400]
        if card := _CARD.match(text):
            stack, base = [], len(card.group(1))
            yield line_number, [], "gpu", card.group(2)
            continue
        if entry := _KEY.match(text):
            indent, key, value = len(entry.group(1)), entry.group(2).lower(), entry.group(3).strip()
            while stack and stack[-1][0] >= indent:
                stack.pop()
            if base is not None and not stack and indent <= base:
                base = None
            yield line_number, [name for _, name in stack], key, value
            if value in ("Active", "Not Active") or not value:
                stack.append((indent, key))  # "HW Slowdown : Active" has its own reasons below
        elif section := _SECTION.match(text):
            indent, name = len(section.group(1)), section.group(2).lower()
            while stack and stack[-1][0] >= indent:
                stack.pop()
            stack.append((indent, name))
