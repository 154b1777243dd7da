"""What does the table say that plain ``nvidia-smi`` prints, of any driver since 2013?

Three widths; two lines a card, and from driver 450 on a third for MIG; persistence or, on Windows, the driver
model; processes with and without a type and with MIG's two columns; a table of slices. nvitop draws the same
rows in a frame of its own. Rows are found by what they hold, not by columns: pastes lose blanks and lines.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import failed, number, whole, word
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus, MigDevice

# From driver 610 on its kernel part is called KMD and CUDA's version UMD; nvitop has a head like it.
_HEAD = re.compile(
    r"(?:NVIDIA-SMI\s+([\d.]{3,20})|NVITOP\s+[\d.]{3,20}).{0,80}?(?:Driver|KMD) Version:\s*([\w.]{2,20})"
    r"(?:.{0,40}?CUDA (?:UMD |Driver )?Version:\s*([\w./!]{2,10}))?"
)
_DATE = re.compile(r"^\s*\|?\s*((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})")
_CARD = re.compile(
    r"^\W{0,6}?\|?\s*(\d{1,3})\s+(\S.{0,60}?)\s+(On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*\|\s*"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|N/A)\s+(On|Off|N/A|ERR!)\s*\|\s*"
    r"([^|]{1,40}?)\s*(?:\||$)"
)
_SENSORS = (
    r"^\W{0,6}?\|?\s*(MAX|\d{1,3}%|N/A|ERR!|\[?Unknown Error\]?)\s+(\d{1,3}C|N/A|ERR!)\s+"
    r"(P\d{1,2}|N/A|ERR!|\?)\s+(N/A|[^|/]{1,20}?)\s*/\s*([^|]{1,12}?)\s*\|"
)
_STATE = re.compile(_SENSORS + r"\s*([^|]{1,40}?)\s*\|\s*(\S+?|GPU is lost)\s+([^|]{1,20}?)\s*(?:\||$)")
_CUT_STATE = re.compile(_SENSORS + r"([^|]{0,40})")
_MEMORY = re.compile(r"(\d{1,9})\s*Mi?B\s*/\s*(\d{1,9})\s*Mi?B")
_MIG_LINE = re.compile(r"^\W*\|?\s+\|\s+\|\s*(Enabled\*?|Disabled\*?|N/A)\s*\|?\s*$")
_PROCESS_HEAD = re.compile(r"(?:Processes|Compute processes):", re.IGNORECASE)
_PROCESS = re.compile(
    r"^\W{0,6}?\|?\s*(\d{1,3})\s+(?:(N/A|\d{1,3})\s+(N/A|\d{1,3})\s+)?(\d{1,10})\s+"
    r"(?:(C\+G|M\+C|M\+C\+G|C|G)\s+)?(\S.{0,400}?)\s+"
    r"(\d{1,9}\s*Mi?B|N/A|Not Supported|ERR!|Insufficient Perm\S*)\s*(?:\||$)"
)
# GeForce cards of before 2014: a row for the card, and no process in it.
_NOT_TOLD = re.compile(r"^\W{0,6}?\|?\s*\d{1,3}\s+Not Supported\s*(?:\||$)")
_NOBODY = re.compile(r"No running (?:compute )?processes found", re.IGNORECASE)
_MIG_HEAD = re.compile(r"MIG devices:", re.IGNORECASE)
_SLICE = re.compile(
    r"^\W{0,6}?\|?\s*(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s+(\d{1,3})\s*\|\s*"
    r"(\d{1,9})\s*Mi?B\s*/\s*(\d{1,9})\s*Mi?B\s*"
    r"\|\s*(\d{1,4})?"
)
_RULE = re.compile(r"^\W*[+|][-=+|]{10,}")
_LAST_RULE = re.compile(r"^\W*\+[-=+|]{10,}[+|][\s`*]*$")
_FRAME = ("|", "+")
_WIDEST = 130
_TABLE_LINE = re.compile(r"^\W{0,6}?[|+]|[|+]\s*$")


@dataclass
class _Table:
    """A table while it is being read."""

    first_line: int
    head: dict[str, Any] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)
    slices: list[MigDevice] = field(default_factory=list)
    processes: list[GpuProcess] | None = None
    tells_memory: bool = False
    lists_processes: bool = False  # the head of the list has been read, and no row yet
    last_line: int = 0
    ends_with_rule: bool = False

    def status(self) -> GpuStatus:
        return GpuStatus(
            source="nvidia-smi table",
            first_line=self.first_line,
            last_line=self.last_line,
            gpus=tuple(self.gpus),
            samples=tuple(self.gpus),
            processes=None if self.processes is None else tuple(self.processes),
            mig_devices=tuple(self.slices),
            truncated=not self.ends_with_rule,
            memory_asked=self.tells_memory,
            **self.head,
        )


def read(paste: Paste) -> list[GpuStatus]:
    """All tables of the text; a new head line begins a new one."""
    return [table.status() for table in _tables(paste) if table.gpus or table.processes or table.slices]


def _tables(paste: Paste) -> Iterator[_Table]:
    table: _Table | None = None
    date: tuple[int, str] | None = None
    for line_number, line in _whole_lines(paste):
        if match := _DATE.match(line):
            date = (line_number, match.group(1))
        if match := _HEAD.search(line):
            if table:
                yield table
            table = _Table(line_number, _head(match, date, line_number))
            date = None
        if "|" not in line and "+" not in line:
            continue
        begun = table or _Table(line_number)
        if _take(begun, line):
            table, begun.last_line, begun.ends_with_rule = begun, line_number, False
        elif table and _RULE.match(line):
            table.last_line, table.ends_with_rule = line_number, bool(_LAST_RULE.match(line))
            if table.lists_processes and table.ends_with_rule:
                # The list is whole and names nobody, as in a container.
                table.processes, table.lists_processes = table.processes or [], False
        elif table and _TABLE_LINE.search(line) and line_number <= table.last_line + 4:
            table.last_line, table.ends_with_rule = line_number, False
    if table:
        yield table


def _whole_lines(paste: Paste) -> Iterator[tuple[int, str]]:
    """Number and text of each line; a row that was broken at the terminal's width is put together again."""
    lines = iter(enumerate(paste.lines, start=1))
    for line_number, full_line in lines:
        line = full_line[:600].strip()
        rest = paste.lines[line_number][:600].rstrip() if line_number < len(paste.lines) else ""
        if line.startswith(_FRAME) and rest.endswith(_FRAME) and not rest.startswith(_FRAME):
            begins_a_row, ended = rest.lstrip().startswith(_FRAME), full_line.endswith(_FRAME)
            if not (begins_a_row and ended) and len(line) + len(rest) <= _WIDEST:
                next(lines)
                line = full_line[:600].lstrip() + rest
        yield line_number, line


def _head(match: re.Match[str], date: tuple[int, str] | None, line_number: int) -> dict[str, Any]:
    smi, driver, cuda = match.groups()
    recent = date is not None and line_number - date[0] <= 6
    return {
        "smi_version": smi,
        "driver_version": driver,
        "cuda_version": word(cuda),
        "time": date[1] if recent and date else None,
    }


def _take(table: _Table, line: str) -> bool:
    """Add what the line holds to the table; False if it holds nothing."""
    if match := _CARD.match(line):
        table.gpus.append(_card(match))
    elif (match := _STATE.match(line)) and table.gpus:
        table.gpus[-1] = _with_state(table.gpus[-1], match.groups())
        # A cell that says neither how much nor that it cannot be told is damaged, and says nothing.
        memory = match.group(6)
        table.tells_memory = table.tells_memory or bool(_MEMORY.search(memory)) or word(memory) is None
    elif (match := _CUT_STATE.match(line)) and table.gpus:
        table.gpus[-1] = _with_state(table.gpus[-1], (*match.groups(), None, None))
    elif (match := _MIG_LINE.match(line)) and table.gpus:
        enabled = {"E": True, "D": False}.get(match.group(1)[0])
        table.gpus[-1] = replace(table.gpus[-1], mig_enabled=enabled)
    elif match := _SLICE.match(line):
        gpu, gi, ci, dev, used, total, sm = match.groups()
        table.slices.append(
            MigDevice(
                gpu=int(gpu),
                gi=int(gi),
                ci=int(ci),
                dev=int(dev),
                used_mib=number(used),
                total_mib=number(total),
                sm=whole(sm),
            )
        )
    elif _PROCESS_HEAD.search(line):
        table.lists_processes = True
    elif _NOT_TOLD.match(line):
        table.lists_processes = False
    elif _NOBODY.search(line):
        table.processes, table.lists_processes = table.processes or [], False
    elif match := _PROCESS.match(line):
        gpu, gi, ci, pid, kind, name, memory = match.groups()
        process = GpuProcess(
            gpu=int(gpu),
            pid=int(pid),
            kind=kind,
            name=name.strip(),
            mib=number(memory),
            gi=whole(gi),
            ci=whole(ci),
        )
        table.processes = [*(table.processes or []), process]
    else:
        return bool(_MIG_HEAD.search(line))
    return True


def _card(match: re.Match[str]) -> Gpu:
    index, name, mode, bus_id, display, ecc = match.groups()
    return Gpu(
        index=int(index),
        name=name,
        bus_id=word(bus_id),
        driver_model=mode if mode in ("WDDM", "TCC", "MCDM") else None,
        display={"On": True, "Off": False}.get(display),
        ecc=word(ecc),
        ecc_uncorrected=whole(ecc),
        unreadable=("card",) if "ERR!" in (mode, display) else (),
    )


def _with_state(gpu: Gpu, row: Sequence[Any]) -> Gpu:
    fan, temperature, pstate, draw, cap, memory, util, mode = row
    sizes = _MEMORY.search(memory)
    cells = {"fan": fan, "temperature": temperature, "performance": pstate, "power": draw, "memory": memory}
    cells["utilisation"] = util
    return replace(
        gpu,
        fan_percent=100.0 if fan == "MAX" else number(fan),
        temp_c=number(temperature),
        pstate=pstate if pstate.startswith("P") else None,
        power_w=number(draw),
        power_cap_w=number(cap),
        used_mib=float(sizes.group(1)) if sizes else None,
        total_mib=float(sizes.group(2)) if sizes else None,
        util_percent=number(util),
        compute_mode=word(mode),
        unreadable=gpu.unreadable + tuple(name for name, cell in cells.items() if failed(cell)),
    )
