"""What do ``nvidia-smi dmon`` and ``pmon`` say?

Two header lines that begin with "#", the second with units, then one row a card (or process) and moment. The
columns depend on ``-s`` and on the driver: "temp" became "gtemp" and "mtemp", "jpg" and "ofa" came later.
``-o D`` and ``-o T`` put date and time in front; ``--format csv`` puts commas between.
"""

import re
from collections.abc import Sequence

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number, whole
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus

_HEADER = re.compile(r"^\s*\\?#\s*(?:Date[\s,]+)?(?:Time[\s,]+)?gpu[\s,]+\w+", re.IGNORECASE)
_UNITS = re.compile(r"^\s*\\?#\s*(?:YYYYMMDD[\s,]+)?(?:HH:MM:SS[\s,]+)?Idx\b", re.IGNORECASE)
_FIELDS = {
    "gpu": "index",
    "pwr": "power_w",
    "temp": "temp_c",
    "gtemp": "temp_c",
    "sm": "util_percent",
    "mem": "memory_activity_percent",
    "mclk": "memory_clock_mhz",
    "pclk": "sm_clock_mhz",
    "fb": "used_mib",
    "rxpci": "pcie_rx_mb_s",
    "txpci": "pcie_tx_mb_s",
}
# "pviol" counts time lost to the power cap, "tviol" to heat (older drivers: a yes or no).
_VIOLATIONS = {"pviol": "sw_power_cap", "tviol": "sw_thermal_slowdown"}
_MOST_ROWS = 100_000


def read(paste: Paste) -> list[GpuStatus]:
    """One GpuStatus for dmon's rows and one for pmon's, as far as they stand in the text."""
    statuses = []
    columns: list[str] = []
    samples: list[Gpu] = []
    processes: list[GpuProcess] = []
    shown: dict[bool, tuple[str, ...]] = {}
    lines: dict[bool, list[int]] = {True: [], False: []}
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:1000].lstrip(" *")  # also from the comment of a program
        if _HEADER.match(text):
            columns = _split(text.lstrip(" \t\\#").lower())
            shown.setdefault("pid" in columns, tuple(columns))
        elif columns and not _UNITS.match(text):
            of_processes = "pid" in columns
            cells = _split(text)
            if not _is_row(columns, cells):
                continue
            lines[of_processes].append(line_number)
            if of_processes:
                processes.append(_process(columns, cells))
            elif len(samples) < _MOST_ROWS:
                samples.append(_sample(columns, cells))
    if samples:
        latest = {sample.index: sample for sample in samples}
        statuses.append(
            GpuStatus(
                source="nvidia-smi dmon",
                first_line=lines[False][0],
                last_line=lines[False][-1],
                columns=shown[False],
                gpus=tuple(latest.values()),
                samples=tuple(samples),
                memory_asked="fb" in shown[False],
            )
        )
    if processes:
        known = {(p.gpu, p.pid): p for p in processes if p.pid is not None}
        statuses.append(
            GpuStatus(
                source="nvidia-smi pmon",
                first_line=lines[True][0],
                last_line=lines[True][-1],
                columns=shown[True],
                processes=tuple(known.values()),
            )
        )
    return statuses


def _split(text: str) -> list[str]:
    return [cell for cell in re.split(r"[\s,]+", text) if cell]


def _is_row(columns: Sequence[str], cells: Sequence[str]) -> bool:
    # The last column of pmon is a command, which may hold blanks; dmon's rows have as many cells as names.
    enough = len(cells) >= len(columns) if "pid" in columns else len(cells) == len(columns)
    position = columns.index("gpu") if "gpu" in columns else 0
    return enough and cells[position].isdecimal()


def _cells(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    return dict(zip(columns, cells, strict=False))


def _sample(columns: Sequence[str], row: Sequence[str]) -> Gpu:
    cells = _cells(columns, row)
    values = {field: number(cells[name]) for name, field in _FIELDS.items() if name in cells}
    index = whole(cells.get("gpu"))
    values.pop("index", None)
    violations = {name: number(cells[name]) for name in _VIOLATIONS if name in cells}
    known = any(value is not None for value in violations.values())
    active = tuple(_VIOLATIONS[name] for name, value in violations.items() if value)
    moment = " ".join(cells[name] for name in ("date", "time") if name in cells)
    return Gpu(
        index=index,
        time=moment or None,
        throttle_reasons=active if known else None,
        **values,  # type: ignore[arg-type]
    )


def _process(columns: Sequence[str], row: Sequence[str]) -> GpuProcess:
    cells = _cells(columns, row)
    command = " ".join(row[len(columns) - 1 :]) if columns[-1] in ("command", "name") else None
    return GpuProcess(
        gpu=whole(cells.get("gpu")),
        pid=whole(cells.get("pid")),
        kind=cells["type"] if cells.get("type") in ("C", "G", "C+G", "M+C") else None,
        name=None if command in (None, "-") else command,
        mib=number(cells.get("fb")),
        sm_percent=number(cells.get("sm")),
    )
