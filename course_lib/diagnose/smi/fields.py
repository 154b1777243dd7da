"""Which name of a figure in nvidia-smi's long forms means which field of a Gpu?

``-q`` and ``-q -x`` name the same things as paths ("fb_memory_usage/used"); ``--query-gpu`` as dotted names
("memory.used"). One table for each, and one place that fills a Gpu from them.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from course_lib.diagnose.smi.cells import failed, number, whole, word
from course_lib.diagnose.smi.model import Gpu

# Names of --query-gpu; older spellings included.
QUERY_FIELDS: dict[str, str] = {
    "index": "index",
    "name": "name",
    "gpu_name": "name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "pci.bus_id": "bus_id",
    "gpu_bus_id": "bus_id",
    "timestamp": "time",
    "memory.used": "used_mib",
    "memory.total": "total_mib",
    "memory.free": "free_mib",
    "utilization.gpu": "util_percent",
    "utilization.memory": "memory_activity_percent",
    "temperature.gpu": "temp_c",
    "fan.speed": "fan_percent",
    "power.draw": "power_w",
    "power.draw.average": "power_w",
    "power.draw.instant": "power_w",
    "power.limit": "power_cap_w",
    "enforced.power.limit": "power_cap_w",
    "power.default_limit": "default_power_cap_w",
    "pstate": "pstate",
    "clocks.sm": "sm_clock_mhz",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.gr": "sm_clock_mhz",
    "clocks.current.graphics": "sm_clock_mhz",
    "clocks.max.sm": "max_sm_clock_mhz",
    "clocks.max.graphics": "max_sm_clock_mhz",
    "clocks.max.gr": "max_sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "clocks.current.memory": "memory_clock_mhz",
    "pcie.link.gen.current": "pcie_generation",
    "pcie.link.gen.gpucurrent": "pcie_generation",
    "pcie.link.gen.max": "pcie_generation_max",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "pcie_width_max",
    "ecc.mode.current": "ecc",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
    "remapped_rows.pending": "repair_pending",
    "retired_pages.pending": "repair_pending",
    "compute_mode": "compute_mode",
    "driver_model.current": "driver_model",
    "mig.mode.current": "mig_enabled",
    "display_active": "display",
}
# Other names that --query-gpu knows, so that a header made of them is known as one.
OTHER_QUERY_FIELDS = frozenset(
    {
        "accounting.mode",
        "clocks.applications.gr",
        "clocks.applications.graphics",
        "clocks.applications.memory",
        "clocks.current.video",
        "clocks.max.mem",
        "clocks.max.memory",
        "clocks.video",
        "clocks_event_reasons.active",
        "clocks_throttle_reasons.active",
        "compute_cap",
        "count",
        "display_mode",
        "driver_version",
        "ecc.errors.corrected.aggregate.total",
        "ecc.errors.corrected.volatile.total",
        "ecc.errors.uncorrected.aggregate.total",
        "encoder.stats.sessionCount",
        "host_name",
        "hostname",
        "inforom.img",
        "memory.reserved",
        "module_power_draw_instant",
        "pci.bus",
        "pci.device",
        "pci.device_id",
        "persistence_mode",
        "power.management",
        "power.max_limit",
        "power.min_limit",
        "serial",
        "temperature.memory",
        "utilization.decoder",
        "utilization.encoder",
        "vbios_version",
    }
)
REASON_PREFIXES = ("clocks_throttle_reasons.", "clocks_event_reasons.")
# Bits of "clocks_throttle_reasons.active" (nvml.h: nvmlClocksEventReasons)
REASON_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
# -q and the XML form spell two of them otherwise.
_REASON_NAMES = {"idle": "gpu_idle", "display_clocks_setting": "display_clock_setting"}
_WORDS = {"name", "uuid", "bus_id", "time", "pstate", "ecc", "compute_mode", "driver_model"}
_WHOLE = {
    "index",
    "pcie_generation",
    "pcie_generation_max",
    "pcie_width",
    "pcie_width_max",
    "ecc_uncorrected",
}
_YES_OR_NO = {"mig_enabled", "display", "repair_pending"}
_MEANINGS = {"enabled": True, "yes": True, "disabled": False, "no": False}
_NAMES = {entry.name for entry in fields(Gpu)}


def make_gpu(cells: Mapping[str, str], *, index: int | None = None, time: str | None = None) -> Gpu:
    """A Gpu from cells under the names of its fields; "throttle_reasons" is filled by ``reasons``."""
    values: dict[str, Any] = {}
    for name, cell in cells.items():
        if name not in _NAMES:
            continue
        if name in _WORDS:
            values[name] = word(cell)
        elif name in _WHOLE:
            values[name] = whole(cell)
        elif name in _YES_OR_NO:
            values[name] = _MEANINGS.get(cell.strip().strip("[]").lower())
        else:
            values[name] = number(cell)
    if index is not None:
        values["index"] = index
    if time is not None:
        values["time"] = time
    broken = tuple(name for name, cell in cells.items() if name in _NAMES and failed(cell))
    return Gpu(**values, unreadable=broken)


def reasons(active: Mapping[str, str], mask: str | None = None) -> tuple[str, ...] | None:
    """The throttle reasons that are active, from names with "Active" or "Not Active", or from the bit mask.

    None when the text says nothing about them.
    """
    names: list[str] = []
    known = False
    for name, state in active.items():
        text = state.strip().lower()
        if text in ("active", "not active"):
            known = True
            if text == "active":
                reason = name.strip().lower().replace(" ", "_")
                names.append(_REASON_NAMES.get(reason, reason))
    if mask is not None and re.fullmatch(r"0x[0-9a-fA-F]{16}", mask.strip()):  # a shorter one was cut off
        bits, known = int(mask.strip(), 16), True
        names += [name for bit, name in REASON_BITS.items() if bits & bit and name not in names]
    return tuple(names) if known else None
