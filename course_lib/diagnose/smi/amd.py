"""What can be read of AMD's tools: ``rocm-smi``, its table and its lines, and ``amd-smi``?

rocm-smi's columns have come and gone: VRAM% and GPU% stand last, temperature and power first. With ``-a`` and
``--show...`` it prints a line a figure, ``--csv`` and ``--json`` the same names. amd-smi draws a table of two
lines a card, ``monitor`` one row a card; ``metric``, with a name a line or in JSON, is read in amd_metric.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi import amd_metric
from course_lib.diagnose.smi.cells import number
from course_lib.diagnose.smi.model import Gpu, GpuStatus

ROCM, AMD = "rocm-smi", "amd-smi"
_TITLE = re.compile(r"ROCm System Management Interface|ROCm SMI Log", re.IGNORECASE)
_HEADER = re.compile(r"\bVRAM%\s+GPU%")
_OLD_HEADER = re.compile(r"^\W*GPU\s+Temp\s+AvgPwr\b")
_ROW = re.compile(r"^[\s>]*(\d{1,3})\s+(\S.{5,400})$")
_TEMPERATURE = re.compile(r"(\d{1,3}(?:\.\d)?)\s*°?\s*[cC]\b")
_POWER = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)W")
_PERCENTS = re.compile(r"(?:(\d{1,3})%|N/A)\s+(?:(\d{1,3})%|N/A)\s*$")
_CLOCK = re.compile(r"(\d{1,5})Mhz", re.IGNORECASE)
# One figure a line, and the same names in --csv and --json.
_LINE = re.compile(r"^[\s>]*GPU\[(\d{1,3})\]\s*:\s*(.{3,80}?)\s*:\s*(\S.{0,80})$")
_PAIR = re.compile(r'"(card\d{1,3})"\s*:\s*\{|"([^"\n]{3,60})"\s*:\s*"([^"\n]{0,80})"')
_NAMES = {
    "Temperature": "temp_c",
    "Temperature (Sensor edge) (C)": "temp_c",
    "Temperature (Sensor edge) (c)": "temp_c",
    "Temperature (Sensor junction) (C)": "temp_c",
    "Average Graphics Package Power (W)": "power_w",
    "Current Socket Graphics Package Power (W)": "power_w",
    "Max Graphics Package Power (W)": "power_cap_w",
    "GPU use (%)": "util_percent",
    "VRAM Total Memory (B)": "total_mib",
    "VRAM Total Used Memory (B)": "used_mib",
    "Card Series": "name",
    "Card series": "name",
    "Device Name": "name",
}
_AMD_TITLE = re.compile(r"\bAMD-SMI\s+\d|AMD System Management Interface")
_AMD_CARD = re.compile(
    r"^\W{0,6}?\|?\s*[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d\s+(\S.{0,60}?)\s*\|\s*(?:\d{1,3} %|N/A)\s+"
    r"(\d{1,3} °C|N/A)\s+(?:\d{1,9}|N/A)\s+(\d{1,4}|N/A)/(\d{1,4}|N/A) W"
)
_AMD_STATE = re.compile(
    r"^\W{0,6}?\|?\s*(\d{1,3})\s+\S+\s+\S+\s+\S+\s*\|\s*(\d{1,3} %|N/A)\s+(\d{1,3}(?:\.\d)? %|N/A)\s+"
    r"(\d{1,9}|N/A)/(\d{1,9}|N/A) MB"
)
_MONITOR = re.compile(r"^\W*GPU\s+(?:XCP\s+)?POWER\s+(?:PWR_CAP\s+)?GPU_T\s")
_MONITOR_ROW = re.compile(
    r"^[\s>]*(\d{1,3})\s+(?:\d{1,2}\s+)?(\d{1,4} W|N/A)\s+(?:\d{1,4} W\s+)?(\d{1,3} °C|N/A)\s"
)
_MONITOR_CLOCK = re.compile(r"(\d{1,5}) MHz")
_MONITOR_MEMORY = re.compile(r"(\d{1,5}\.\d)/\s*(\d{1,5}\.\d) GB")


def read(paste: Paste) -> list[GpuStatus]:
    """At most one GpuStatus a tool; ``trouble`` says how full a card is where only the share is told."""
    return [*_rocm(paste), *_amd(paste)]


def _rocm(paste: Paste) -> Iterator[GpuStatus]:
    titles = [n for n, line in enumerate(paste.lines, start=1) if _TITLE.search(line[:300])]
    cards: dict[int, Gpu] = {}
    full: dict[str, str] = {}
    lines = [*titles]
    header: str | None = None
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:600].rstrip()
        if _HEADER.search(text) or _OLD_HEADER.match(text):
            header = text
        elif header is not None and (row := _ROW.match(text)):
            card, share = _concise(row, has_percents=_HEADER.search(header) is not None)
            if card is None:
                continue
            cards[card.index or 0] = card
            if share is not None:
                full[f"memory of GPU {card.index} in use"] = f"{share} %"
        else:
            continue
        lines.append(line_number)
    for line_number, index, name, value in _named(paste):
        cards[index] = _with(cards.get(index, Gpu(index=index)), name, value)
        lines.append(line_number)
    if lines:
        yield _status(ROCM, lines, [cards[index] for index in sorted(cards)], full)


def _concise(row: re.Match[str], *, has_percents: bool) -> tuple[Gpu | None, str | None]:
    """The card of a row of the table, and how full its memory is, in percent."""
    text = row.group(2)
    percents = _PERCENTS.search(text)
    if has_percents and percents is None:
        return None, None
    temperature = _TEMPERATURE.search(text)
    powers, clocks = _POWER.findall(text), _CLOCK.findall(text)
    if not has_percents and not (powers and clocks):
        return None, None
    used, util = percents.groups() if percents and has_percents else (None, None)
    card = Gpu(
        index=int(row.group(1)),
        temp_c=number(temperature.group(1)) if temperature else None,
        power_w=number(powers[0]) if powers else None,
        power_cap_w=number(powers[-1]) if len(powers) > 1 else None,
        sm_clock_mhz=number(clocks[0]) if clocks else None,
        util_percent=number(util),
    )
    return card, used


def _named(paste: Paste) -> Iterator[tuple[int, int, str, str]]:
    """Line, card, name and value of the figures that stand by their names: in lines, JSON or CSV."""
    columns: list[str] = []
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:2000].strip()
        if match := _LINE.match(text):
            yield line_number, int(match.group(1)), match.group(2), match.group(3)
        elif text.startswith("device,"):
            columns = text.split(",")
        elif columns and (match := re.match(r"card(\d{1,3}),", text)):
            for name, value in zip(columns, text.split(","), strict=False):
                yield line_number, int(match.group(1)), name, value
    index: int | None = None
    for match in _PAIR.finditer(paste.text) if '"card' in paste.text else ():
        if match.group(1):
            index = int(match.group(1).removeprefix("card"))
        elif index is not None and match.group(2) in _NAMES:
            yield paste.line_of(match.start()), index, match.group(2), match.group(3)


def _with(card: Gpu, name: str, value: str) -> Gpu:
    field = _NAMES.get(name)
    if field is None or getattr(card, field) is not None:
        return card
    if field == "name":
        return replace(card, name=value)
    figure = number(value)
    changes: dict[str, Any] = {field: figure}
    if figure is not None and field.endswith("_mib"):
        changes = {field: figure / 2**20}
    return replace(card, **changes)


def _amd(paste: Paste) -> Iterator[GpuStatus]:
    cards: list[Gpu] = []
    lines: list[int] = []
    monitored = False
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:300]
        if _AMD_TITLE.search(text):
            pass
        elif _MONITOR.match(text):
            monitored = True
        elif match := _AMD_CARD.match(text):
            name, temperature, draw, cap = match.groups()
            cards.append(
                Gpu(
                    name=name,
                    temp_c=number(temperature),
                    power_w=number(draw),
                    power_cap_w=number(cap) or None,
                )
            )
        elif cards and (match := _AMD_STATE.match(text)):
            index, util, fan, used, total = match.groups()
            cards[-1] = replace(
                cards[-1],
                index=int(index),
                util_percent=number(util),
                fan_percent=number(fan),
                used_mib=number(used),
                total_mib=number(total),
            )
        elif monitored and (match := _MONITOR_ROW.match(text)):
            cards.append(_monitored(match, text))
        else:
            continue
        lines.append(line_number)
    if not cards:
        cards, more = amd_metric.read(paste)
        lines = sorted([*lines, *more])
    if len(lines) > 1 or cards:
        yield _status(AMD, lines, cards, {})


def _monitored(match: re.Match[str], text: str) -> Gpu:
    clock, memory = _MONITOR_CLOCK.search(text), _MONITOR_MEMORY.search(text)
    percents = re.findall(r"(\d{1,3}) %", text)
    return Gpu(
        index=int(match.group(1)),
        power_w=number(match.group(2)),
        temp_c=number(match.group(3)),
        sm_clock_mhz=number(clock.group(1)) if clock else None,
        util_percent=number(percents[0]) if percents else None,
        used_mib=float(memory.group(1)) * 1024 if memory else None,
        total_mib=float(memory.group(2)) * 1024 if memory else None,
    )


def _status(tool: str, lines: Sequence[int], cards: Sequence[Gpu], full: Mapping[str, str]) -> GpuStatus:
    return GpuStatus(
        source=tool,
        first_line=min(lines),
        last_line=max(lines),
        gpus=tuple(cards),
        samples=tuple(cards),
        trouble=dict(full),
        memory_asked=False,
    )
