"""What does ``nvidia-smi -q`` say, whole or in part (``-q -d MEMORY``), of any driver?

Its lines are "Key : Value", indented under sections. "Utilization / Memory" there is activity, not fill.
"""

import re
from collections.abc import Iterator, Sequence
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
# Two of these are nobody else's; the other words of -q are common English.
_MARKS = re.compile(
    r"^\W*(?:BAR1 Memory Usage|GPU Link Info|Max Clocks|(?:GPU )?Power Readings|Product Name\s+:.*"
    r"|Utilization|Performance State\s+:.*|Retired Pages|SM\s+:\s*\d+ MHz)\s*$"
)
# Each of these is nobody else's by itself.
_SURE_MARKS = re.compile(
    r"^\W*(?:FB Memory Usage|Clocks (?:Throttle|Event) Reasons(?:\s+:.*)?|HW Slowdown\s*:.*"
    r"|Used GPU Memory\s*:.*|Attached GPUs\s+:\s*\d{1,3}|Remapped Rows(?:\s+:.*)?"
    r"|GPU (?:Current|Slowdown) Temp\s*:.*|DRAM Uncorrectable\s*:.*|Enforced Power Limit\s*:.*)\s*$"
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
    ("retired pages", "pending"): "repair_pending",
    ("retired pages", "pending page blacklist"): "repair_pending",
    ("remapped rows", "pending"): "repair_pending",
}
_HEAD_KEYS = {
    "driver version": "driver_version",
    "kmd version": "driver_version",
    "cuda version": "cuda_version",
    "cuda umd version": "cuda_version",
    "attached gpus": "attached",
    "timestamp": "time",
}


def read(paste: Paste) -> list[GpuStatus]:
    """Each log of the text; a part without its head still counts, as one card."""
    heads = [n for n, line in enumerate(paste.lines) if _LOG.search(line[:200])]
    starts = heads if heads and not _counts(paste.lines[: heads[0]], logged=False) else [0, *heads]
    statuses = []
    for start, end in zip(starts, [*starts[1:], len(paste.lines)], strict=True):
        if _counts(paste.lines[start:end], logged=start in heads):
            statuses += _log(paste.lines[start:end], start + 1)
    return statuses


def _counts(lines: Sequence[str], *, logged: bool) -> bool:
    """Whether the lines are of -q: by its head, by one line that is nobody else's, or by two."""
    if logged or any(_SURE_MARKS.match(line[:200]) for line in lines):
        return True
    return sum(1 for line in lines if _MARKS.match(line[:200])) >= 2


def _log(lines: Sequence[str], first_line: int) -> list[GpuStatus]:
    head: dict[str, str] = {}
    blocks: list[_Block] = []
    first = last = 0
    for number_of_line, path, key, value in _entries(lines, first_line):
        if key == "gpu" and not path and value is not None:
            blocks.append(_Block(bus_id=value))
        elif value is None:
            continue
        elif not blocks and key in _HEAD_KEYS:
            # "Driver Version" may say that it is deprecated; the first that names one stays.
            head.setdefault(_HEAD_KEYS[key], value)
        elif blocks:
            blocks[-1].take(path, key, value)
        else:
            cut = _Block(bus_id=None)  # the end of a card whose beginning is cut off
            cut.take(path, key, value)
            blocks += [] if cut.is_empty() else [cut]
        first, last = first or number_of_line, number_of_line
    blocks = [block for block in blocks if not block.is_empty()]
    attached = whole(head.get("attached"))
    numbers = [block.number for block in blocks]
    if attached is None or attached == len(blocks) or None in numbers or len(set(numbers)) < len(blocks):
        numbers = list(range(len(blocks)))
    pairs = list(zip(numbers, blocks, strict=True))
    gpus = tuple(gpu for number, block in pairs if (gpu := block.gpu(number)) != Gpu(index=gpu.index))
    processes = [p for number, block in pairs for p in block.processes(number)]
    listed = any(block.lists_processes for block in blocks)
    if not gpus and not listed:
        return []
    return [
        GpuStatus(
            source="nvidia-smi -q",
            first_line=first,
            last_line=last,
            driver_version=_version(head.get("driver_version")),
            cuda_version=_version(head.get("cuda_version")),
            time=word(head.get("time")),
            gpus=gpus,
            samples=gpus,
            processes=tuple(processes) if listed else None,
            truncated=(attached or 0) > len(gpus),
            memory_asked=any(block.shows_memory for block in blocks),
        )
    ]


def _version(cell: str | None) -> str | None:
    version = word(cell)
    return version if version and version[0].isdigit() else None


class _Block:
    """The lines about one card."""

    def __init__(self, bus_id: str | None) -> None:
        self.cells: dict[str, str] = {} if bus_id is None else {"bus_id": bus_id}
        self.reasons: dict[str, str] = {}
        self.number: int | None = None
        self.lists_processes = self.shows_memory = False
        self._uncorrected: dict[str, float | None] = {}
        self._processes: list[dict[str, Any]] = []

    def is_empty(self) -> bool:
        """Whether nothing of the card is known, not even that it is one."""
        known = self.cells or self.reasons or self._processes or self.lists_processes or self._uncorrected
        return not known

    def take(self, path: list[str], key: str, value: str) -> None:
        section = path[-1] if path else ""
        if key == "minor number":
            self.number = whole(value)
        if section in ("fb memory usage", "memory usage"):
            self.shows_memory = True
        if "volatile" in path and _is_uncorrected(path, key):
            self._uncorrected[f"{section} {key}"] = number(value)
        section = "power readings" if section.endswith("gpu power readings") else section
        if any(_REASONS.search(part) for part in path):
            self.reasons.setdefault(key, value)
        elif key == "processes" or "processes" in path or key == "process id":
            self.lists_processes = key != "processes" or value.lower() == "none" or not value
            if key == "process id":
                self._processes.append({"pid": whole(value)})
            elif self._processes:
                slot = {"type": "kind", "name": "name", "used gpu memory": "mib"}.get(key)
                if slot:
                    self._processes[-1][slot] = number(value) if slot == "mib" else word(value)
        else:
            field = _PATHS.get((section, key)) or (_PATHS.get(("", key)) if not path else None)
            if field and word(self.cells.get(field)) is None:  # of several, the first that is a figure
                self.cells[field] = value

    def gpu(self, index: int | None) -> Gpu:
        gpu = make_gpu(self.cells, index=index)
        counts = [count for count in self._uncorrected.values() if count is not None]
        return replace(
            gpu,
            throttle_reasons=reasons(self.reasons),
            ecc_uncorrected=int(sum(counts)) if counts else None,
        )

    def processes(self, index: int | None) -> Iterator[GpuProcess]:
        for found in self._processes:
            yield GpuProcess(gpu=index, **found)


def _is_uncorrected(path: Sequence[str], key: str) -> bool:
    """Whether the line counts memory errors that were not corrected; older drivers called them double bit."""
    return "uncorrectable" in key or (path[-1] == "double bit" and key == "total")


def _goes_deeper(lines: Sequence[str], place: int) -> bool:
    """Whether the line at that place has lines of its own: a section has, the rest of a broken line not."""
    following = next((line for line in lines[place + 1 : place + 4] if line.strip()), "")
    return _indent(following) > _indent(lines[place])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _entries(lines: Sequence[str], first_line: int) -> Iterator[tuple[int, list[str], str, str | None]]:
    """Line number, sections above, key and value of each line; for a card's head, ("gpu", its bus id)."""
    stack: list[tuple[int, str]] = []
    base: int | None = None
    for line_number, line in enumerate(lines, start=first_line):
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
        elif (section := _SECTION.match(text)) and _goes_deeper(lines, line_number - first_line):
            indent, name = len(section.group(1)), section.group(2).lower()
            if base is not None and indent <= base:
                continue  # within a card all is indented: this is the rest of a broken line
            while stack and stack[-1][0] >= indent:
                stack.pop()
            stack.append((indent, name))
