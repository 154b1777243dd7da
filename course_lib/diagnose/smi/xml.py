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
_TAG = re.compile(r"<(/?)([a-z]\w{0,60})[^<>]{0,80}>")
# Two of these are the middle of a log whose beginning is cut off.
_MARK = re.compile(
    r"<(?:fb_memory_usage|clocks_(?:throttle|event)_reasons|performance_state|product_name|gpu_util|gpu_temp"
    r"|(?:gpu_)?power_readings|process_info|max_clocks|pci_gpu_link_info)>"
)
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
    "memory_usage/total": "total_mib",
    "memory_usage/used": "used_mib",
    "memory_usage/free": "free_mib",
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
    "remapped_rows/remapped_row_pending": "repair_pending",
    "retired_pages/pending_retirement": "repair_pending",
}
_UNCORRECTED = (
    "dram_uncorrectable",
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "double_bit/total",
)
_OF_THE_PAGE = frozenset(
    {"details", "summary", "pre", "code", "p", "br", "div", "span", "a", "b", "td", "tr", "li"}
)
_DEEPEST = 50  # elements in each other; a log has six
_MEMORY = ("fb_memory_usage", "memory_usage")
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
    return statuses or _middle(paste)


def _middle(paste: Paste) -> list[GpuStatus]:
    """The card of a log whose first line, and so its root, is not in the text."""
    marks = list(_MARK.finditer(paste.text))
    if len(marks) < 2:
        return []
    tags = list(_TAG.finditer(paste.text))
    first, last = tags[0].start(), tags[-1].end()
    body = _without_strays(paste.text[first:last])
    status = _status(f"<nvidia_smi_log><gpu>{body}", truncated=True)
    if status is None:
        return []
    return [replace(status, first_line=paste.line_of(first), last_line=paste.line_of(last - 1))]


def _without_strays(text: str) -> str:
    """The text without closing tags of elements that began before it."""
    kept: list[str] = []
    open_tags: list[str] = []
    end = 0
    for tag in _TAG.finditer(text):
        kept.append(text[end : tag.start()])
        end = tag.end()
        closes, name = bool(tag.group(1)), tag.group(2)
        if name in _OF_THE_PAGE or (closes and name not in open_tags):
            continue
        if closes:
            while open_tags.pop() != name:
                pass
        elif name == "gpu":
            kept.append("</gpu>")
        elif len(open_tags) < _DEEPEST:
            open_tags.append(name)
        kept.append(tag.group())
    return "".join(kept)


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
        driver_version=_first_text(root, "driver_version", "kmd_version"),
        cuda_version=_first_text(root, "cuda_version", "cuda_umd_version"),
        time=word(root.findtext("timestamp")),
        gpus=gpus,
        samples=gpus,
        processes=tuple(_processes(cards)) if any(entry is not None for entry in listed) else None,
        mig_devices=tuple(_slices(cards)),
        truncated=truncated,
        memory_asked=any(card.find(name) is not None for card in cards for name in _MEMORY),
    )


def _first_text(root: ElementTree.Element, *names: str) -> str | None:
    """The text of the first of the elements that is there and names a version."""
    texts = (word(root.findtext(name)) for name in names)
    return next((text for text in texts if text and text[0].isdigit()), None)


def _gpu(card: ElementTree.Element, index: int) -> Gpu:
    cells: dict[str, str] = {}
    for path, field in _PATHS.items():
        if (text := card.findtext(path)) and word(cells.get(field)) is None:
            cells[field] = text  # of several figures, the first that is one
    cells.setdefault("bus_id", card.get("id", ""))
    minor = whole(card.findtext("minor_number"))
    gpu = make_gpu(cells, index=index if minor is None else minor)
    states = {
        match.group(1): element.text or ""
        for element in card.iter()
        if (match := _REASON.fullmatch(element.tag)) and element.text
    }
    counts = [number(card.findtext(f"ecc_errors/volatile/{name}")) for name in _UNCORRECTED]
    known = [count for count in counts if count is not None]
    return replace(gpu, throttle_reasons=reasons(states), ecc_uncorrected=int(sum(known)) if known else None)


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
                gi=whole(entry.findtext("gpu_instance_id")),
                ci=whole(entry.findtext("compute_instance_id")),
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
