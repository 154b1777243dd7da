"""What does ``nvidia-smi -q -x`` say? An XML form of -q, of which a cut-off beginning is read too."""

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number, whole, word
from course_lib.diagnose.smi.fields import make_gpu, reasons
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus, MigDevice

_START = re.compile(r"<nvidia_smi_log\b")
_END = "</nvidia_smi_log>"
_PATHS: dict[str, str] = {
    "product_name": "name",
    "uuid": "uuid",
    "fan_speed": "fan_percent",
    "performance_state": "pstate",
    "compute_mode": "compute_mode",
    "display_active": "display",
    "mig_mode/current_mig": "mig_enabled",
    "driver_model/current_dm": "driver_model",
    "ecc_mode/current_ecc": "ecc",
    "fb_memory_usage/total": "total_mib",
    "fb_memory_usage/used": "used_mib",
    "fb_memory_usage/free": "free_mib",
    "utilization/gpu_util": "util_percent",
    "utilization/memory_util": "memory_activity_percent",
    "temperature/gpu_temp": "temp_c",
    "temperature/gpu_temp_slow_threshold": "slowdown_temp_c",
    "gpu_power_readings/power_draw": "power_w",
    "gpu_power_readings/average_power_draw": "power_w",
    "gpu_power_readings/instant_power_draw": "power_w",
    "gpu_power_readings/current_power_limit": "power_cap_w",
    "gpu_power_readings/power_limit": "power_cap_w",
    "gpu_power_readings/default_power_limit": "default_power_cap_w",
    "power_readings/power_draw": "power_w",
    "power_readings/power_limit": "power_cap_w",
    "power_readings/enforced_power_limit": "power_cap_w",
    "power_readings/default_power_limit": "default_power_cap_w",
    "clocks/sm_clock": "sm_clock_mhz",
    "clocks/mem_clock": "memory_clock_mhz",
    "max_clocks/sm_clock": "max_sm_clock_mhz",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "pcie_generation",
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "pcie_generation_max",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "pcie_width",
    "pci/pci_gpu_link_info/link_widths/max_link_width": "pcie_width_max",
    "ecc_errors/volatile/dram_uncorrectable": "ecc_uncorrected",
}
_REASON = re.compile(r"clocks_(?:throttle|event)_reason_(\w+)")


def read(paste: Paste) -> list[GpuStatus]:
    """One GpuStatus for each log of the text."""
    statuses = []
    starts = [match.start() for match in _START.finditer(paste.text)]
    for start, following in zip(starts, [*starts[1:], len(paste.text)][: len(starts)], strict=True):
        end = paste.text.find(_END, start, following)
        whole_log = end >= 0
        end = end + len(_END) if whole_log else following
        status = _status(paste.text[start:end], truncated=not whole_log)
        if status:
            lines = (paste.line_of(start), paste.line_of(max(end - 1, start)))
            statuses.append(replace(status, first_line=lines[0], last_line=lines[1]))
    return statuses


def _status(text: str, *, truncated: bool) -> GpuStatus | None:
    # Only elements are fed: the DOCTYPE stands before the start, so no entity can be declared.
    parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(["start"])
    root: ElementTree.Element | None = None
    parser.feed(text)
    try:
        for event in parser.read_events():
            if root is None and isinstance(event[-1], ElementTree.Element):
                root = event[-1]
    except ElementTree.ParseError:
        truncated = True  # what was read until then stands
    if root is None:
        return None
    cards = root.findall("gpu")
    gpus = tuple(_gpu(card, index) for index, card in enumerate(cards))
    if not gpus:
        return None
    listed = [card.find("processes") for card in cards]
    return GpuStatus(
        source="nvidia-smi -q -x",
        driver_version=word(root.findtext("driver_version")),
        cuda_version=word(root.findtext("cuda_version")),
        time=word(root.findtext("timestamp")),
        gpus=gpus,
        samples=gpus,
        processes=tuple(_processes(cards)) if any(entry is not None for entry in listed) else None,
        mig_devices=tuple(_slices(cards)),
        truncated=truncated,
    )


def _gpu(card: ElementTree.Element, index: int) -> Gpu:
    cells = {field: text for path, field in _PATHS.items() if (text := card.findtext(path))}
    cells.setdefault("bus_id", card.get("id", ""))
    minor = whole(card.findtext("minor_number"))
    gpu = make_gpu(cells, index=index if minor is None else minor)
    states = {
        match.group(1): element.text or ""
        for element in card.iter()
        if (match := _REASON.fullmatch(element.tag)) and element.text
    }
    return replace(gpu, throttle_reasons=reasons(states))


def _processes(cards: list[ElementTree.Element]) -> Iterator[GpuProcess]:
    for index, card in enumerate(cards):
        minor = whole(card.findtext("minor_number"))
        for entry in card.iterfind("processes/process_info"):
            yield GpuProcess(
                gpu=index if minor is None else minor,
                pid=whole(entry.findtext("pid")),
                kind=word(entry.findtext("type")),
                name=word(entry.findtext("process_name")),
                mib=number(entry.findtext("used_memory")),
            )


def _slices(cards: list[ElementTree.Element]) -> Iterator[MigDevice]:
    for index, card in enumerate(cards):
        for entry in card.iterfind("mig_devices/mig_device"):
            yield MigDevice(
                gpu=index,
                gi=whole(entry.findtext("gpu_instance_id")) or 0,
                ci=whole(entry.findtext("compute_instance_id")) or 0,
                dev=whole(entry.findtext("index")) or 0,
                used_mib=number(entry.findtext("fb_memory_usage/used")),
                total_mib=number(entry.findtext("fb_memory_usage/total")),
                sm=whole(entry.findtext("device_attributes/shared/multiprocessor_count")),
            )
