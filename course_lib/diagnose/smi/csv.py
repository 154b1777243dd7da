"""What does ``nvidia-smi --query-gpu=... --format=csv`` say, with and without header and units?

The columns are the user's choice. Their meaning comes from the header, or from the command line above the
rows; bare numbers without either are not guessed at: they are reported as "columns unknown".
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number, split_row, whole, word
from course_lib.diagnose.smi.fields import (
    OTHER_QUERY_FIELDS,
    QUERY_FIELDS,
    REASON_PREFIXES,
    make_gpu,
    reasons,
)
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus

_COMMAND = re.compile(r"--query-(gpu|compute-apps|accounted-apps)[= ]\s*[\"']?([\w.,]{2,2000})")
_UNIT = re.compile(r"\[[^\[\]]*\]$")
_PROCESS_FIELDS = {
    "pid",
    "process_name",
    "name",
    "used_gpu_memory",
    "used_memory",
    "gpu_uuid",
    "gpu_bus_id",
    "gpu_name",
    "gpu_serial",
    "timestamp",
}
_FIGURE = re.compile(
    r"\d{1,9}(?:\.\d{1,4})? (?:MiB|%|W|MHz)|\[(?:N/A|Not Supported|Unknown Error|Not Found)\]|N/A"
)
_VALUE = re.compile(
    r"-?\d{1,15}(?:\.\d{1,6})?\s?(?:MiB|MB|%|W|MHz|C|KB/s|MB/s|us)?|\[.{2,30}\]|N/A|Not \w{1,12}|ERR!?"
    r"|\w{1,30}"
)
# Columns that no other table has; "index" and "name" alone are anybody's, if no card is named in them.
_OWN_COLUMNS = {
    "gpu_uuid",
    "gpu_bus_id",
    "gpu_name",
    "used_gpu_memory",
    "used_memory",
    "driver_version",
    "pstate",
}
_CARD_NAME = re.compile(r"\b(?:NVIDIA|GeForce|Tesla|Quadro|TITAN|GRID)\b", re.IGNORECASE)
_REST = re.compile(
    r"\s?[\w.%/\]]{1,20}(?: [\w.%/\]]{1,10}){0,2}"
)  # the end of a last cell, on a line of its own
_MOST_PIECES = 4
_ONE_MOMENT_S = 0.1  # rows of the cards of one look are written within some milliseconds
COLUMNS_UNKNOWN = "columns unknown"


@dataclass
class _Block:
    """Rows under one header or one command."""

    of_processes: bool
    columns: tuple[str, ...]
    first_line: int
    last_line: int
    rows: list[list[str]]
    asked: bool = False  # by a command in the text


def read(paste: Paste) -> list[GpuStatus]:
    """The readings of all blocks of rows; rows about processes join the cards they stand with."""
    cards: list[GpuStatus] = []
    for block in _blocks(paste):
        if not block.rows or not _is_of_cards(block):
            continue
        status = _processes(block) if block.of_processes else _cards(block)
        before = cards[-1] if cards else None
        if block.of_processes and before and before.processes is None and before.source == status.source:
            cards[-1] = replace(before, processes=status.processes, last_line=status.last_line)
        else:
            cards.append(status)
    return cards


def _blocks(paste: Paste) -> Iterator[_Block]:
    block: _Block | None = None
    asked: tuple[int, bool, tuple[str, ...]] | None = None  # line, processes, columns
    read_to = 0
    for line_number, line in enumerate(paste.lines, start=1):
        if len(line) > 5000 or line_number <= read_to:
            continue
        if command := _COMMAND.search(line):
            if block:
                yield block
            if "--format" not in line:  # the rest of a broken command
                command = _COMMAND.search("".join(paste.lines[line_number - 1 : line_number + 2])) or command
            columns = tuple(name for name in command.group(2).split(",") if name)
            asked = (line_number, command.group(1) != "gpu", columns)
            block = _Block(asked[1], columns, line_number, line_number, [], asked=True)
            continue
        cells, header, read_to = _whole_line(paste, line_number, block)
        if header is not None:
            if block and (block.rows or block.first_line != (asked or (0,))[0]):
                yield block
            of_processes = "pid" in header
            block = _Block(of_processes, header, line_number, line_number, [])
        elif block and len(cells) == len(block.columns) and _is_row(cells, block):
            block.rows.append(cells)
            block.last_line = line_number
        elif block is None and _is_anonymous(cells):
            yield _Block(False, (COLUMNS_UNKNOWN,), line_number, line_number, [cells])
        elif block and block.rows and line.strip() and not _looks_like_noise(line):
            yield block
            block = None
    if block:
        yield block


def _whole_line(
    paste: Paste, line_number: int, block: _Block | None
) -> tuple[list[str], tuple[str, ...] | None, int]:
    """Cells of the line, its columns if it is a header, and the last line read: it may have been broken."""
    cells = split_row(paste.lines[line_number - 1])
    if header := _header(cells, strict=True):
        return cells, header, line_number
    for more in range(1, _MOST_PIECES if len(cells) > 2 else 1):
        pieces = paste.lines[line_number - 1 : line_number + more]
        longer = split_row("".join(piece[:1000] for piece in pieces))
        if header := _header(longer, strict=True):
            return longer, header, line_number + more
        broken = len(cells) < len(longer) or _REST.fullmatch(pieces[-1])
        if block and broken and len(longer) == len(block.columns) and _is_row(longer, block):
            return longer, None, line_number + more
    return cells, _header(cells, strict=False), line_number


def _header(cells: Sequence[str], *, strict: bool) -> tuple[str, ...] | None:
    """The columns that the cells name; unless ``strict``, also with fields of a later driver among them."""
    names = tuple(_UNIT.sub("", cell).strip().lower() for cell in cells)
    if not names or not all(names):
        return None
    for known in (_is_gpu_field, _PROCESS_FIELDS.__contains__):
        hits = [name for name in names if known(name)]
        # A lone column needs a dot to be no common word.
        if len(hits) == len(names) and (len(names) > 1 or "." in names[0]):
            return names
        likely = len(names) >= 3 and (len(hits) == len(names) - 1 or sum("." in n for n in hits) >= 2)
        if not strict and likely and all(re.fullmatch(r"[a-z][\w.]*", name) for name in names):
            return names
    return None


def _is_gpu_field(name: str) -> bool:
    return name in QUERY_FIELDS or name in OTHER_QUERY_FIELDS or name.startswith(REASON_PREFIXES)


def _is_row(cells: Sequence[str], block: _Block) -> bool:
    """Whether the cells can be values of the block's columns: numbers where numbers belong."""
    if len(cells) == 1 and not cells[0]:
        return False
    words = {"name", "gpu_name", "process_name", "timestamp", "pstate", "uuid", "gpu_uuid", "gpu_bus_id"}
    for name, cell in zip(block.columns, cells, strict=True):
        if name in words or not (
            name in QUERY_FIELDS or name in _PROCESS_FIELDS or name.startswith(REASON_PREFIXES)
        ):
            continue
        if not _VALUE.fullmatch(cell):
            return False
    return True


def _is_of_cards(block: _Block) -> bool:
    """Whether the table can only be nvidia-smi's."""
    if block.asked or block.columns == (COLUMNS_UNKNOWN,):
        return True
    if any("." in column or column in _OWN_COLUMNS for column in block.columns):
        return True
    return any(_CARD_NAME.search(cell) for row in block.rows for cell in row)


def _is_anonymous(cells: Sequence[str]) -> bool:
    """Whether a row without header is nvidia-smi's all the same: by cells that carry its units."""
    figures = [cell for cell in cells if _FIGURE.fullmatch(cell)]
    own = any(cell != "N/A" for cell in figures)  # a bare "N/A" is anybody's
    return own and len(cells) > 1 and (len(figures) == len(cells) or len(figures) >= 3)


def _looks_like_noise(line: str) -> bool:
    """A line of the terminal between two rows, such as the progress of a loop."""
    return line.lstrip().startswith(("$", "#", ">", "%"))


def _cards(block: _Block) -> GpuStatus:
    if block.columns == (COLUMNS_UNKNOWN,):
        return GpuStatus(
            source="nvidia-smi csv",
            first_line=block.first_line,
            last_line=block.last_line,
            trouble={COLUMNS_UNKNOWN: ", ".join(block.rows[0])},
        )
    samples = [_gpu(block.columns, row) for row in block.rows]
    driver = _column(block, "driver_version")
    if all(sample.index is None and sample.uuid is None and sample.bus_id is None for sample in samples):
        latest = samples[-_cards_at_once(samples) :] if "timestamp" in block.columns else samples
    else:
        by_card = {
            (s.index, s.uuid if s.index is None else None, s.bus_id if s.index is None else None): s
            for s in samples
        }
        latest = list(by_card.values())
    return GpuStatus(
        source="nvidia-smi csv",
        first_line=block.first_line,
        last_line=block.last_line,
        driver_version=word(driver),
        columns=block.columns,
        gpus=tuple(latest),
        samples=tuple(samples),
        memory_asked=any(name.startswith("memory.") for name in block.columns),
    )


def _cards_at_once(samples: Sequence[Gpu]) -> int:
    """How many rows belong to one moment: without numbers, only their times tell cards from moments."""
    times = [_seconds(sample.time) for sample in samples]
    steps = [
        abs(later - earlier)
        for earlier, later in itertools.pairwise(times)
        if earlier is not None and later is not None
    ]
    if len(steps) < len(samples) - 1:
        return 1
    starts = [0, *(place for place, step in enumerate(steps, start=1) if step > _ONE_MOMENT_S)]
    sizes = {end - start for start, end in itertools.pairwise([*starts, len(samples)])}
    return sizes.pop() if len(sizes) == 1 else 1


def _seconds(time: str | None) -> float | None:
    try:
        return datetime.strptime(time or "", "%Y/%m/%d %H:%M:%S.%f").timestamp()
    except ValueError:
        return None


def _column(block: _Block, name: str) -> str | None:
    return block.rows[0][block.columns.index(name)] if name in block.columns else None


def _gpu(columns: Sequence[str], row: Sequence[str]) -> Gpu:
    cells: dict[str, str] = {}
    active: dict[str, str] = {}
    mask = None
    for name, cell in zip(columns, row, strict=True):
        if name.startswith(REASON_PREFIXES):
            reason = name.split(".", 1)[1]
            if reason == "active":
                mask = cell
            elif reason != "supported":
                active[reason] = cell
        elif name in QUERY_FIELDS:
            cells.setdefault(QUERY_FIELDS[name], cell)
    return replace(make_gpu(cells), throttle_reasons=reasons(active, mask))


def _process_name(cell: str | None) -> str | None:
    """The name; "[Not Found]" stays: it tells a process that has gone from a name that was not asked."""
    return cell if cell == "[Not Found]" else word(cell)


def _processes(block: _Block) -> GpuStatus:
    processes = []
    for row in block.rows:
        cells = dict(zip(block.columns, row, strict=True))
        memory = next((cells[n] for n in ("used_gpu_memory", "used_memory") if n in cells), None)
        processes.append(
            GpuProcess(
                gpu=None,
                pid=whole(cells.get("pid")),
                kind="C",
                name=_process_name(cells.get("process_name", cells.get("name"))),
                mib=number(memory),
            )
        )
    return GpuStatus(
        source="nvidia-smi csv",
        first_line=block.first_line,
        last_line=block.last_line,
        columns=block.columns,
        processes=tuple(processes),
    )
