"""Which figures stand in ``torch.cuda.memory_summary()`` or ``memory_stats()``, of any release?

The table: sizes in MB until 1.12 and in MiB after (both are 2**20 bytes); rows "Requested memory" and
"Oversize ..." came later; the last two columns add up all that was ever allocated and freed, and are no
sizes. The statistics: bytes under dotted names, as a dict, a list of pairs, JSON or lines. Both may be cut
off, indented, or printed by a logger; what is not there stays None.
"""

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.size import PrintedSize, show_mib

_TITLE = re.compile(r"memory summary, device ID\s*(\d{1,4})", re.IGNORECASE)
_OOMS = re.compile(r"\b(?:CUDA|XPU|HIP)?\s*OOMs:\s*(\d{1,10})", re.IGNORECASE)
_RETRIES = re.compile(r"\b\w*Malloc retries:\s*(\d{1,10})", re.IGNORECASE)
_ROW = re.compile(r"\|\s*([A-Za-z][A-Za-z -]{2,40}?)\s*\|(.*)")
_RULE = re.compile(r"\|[=]{20,}")
_SIZE_CELL = re.compile(r"^\s*(\d{1,15}(?:\.\d{1,4})?)\s*([KMGTPE]i?B|B)\s*$")
_COUNT_CELL = re.compile(r"^\s*(\d{1,15}(?:\.\d{1,4})?)\s*([KMG]?)\s*$")
_COLUMNS = ("cur", "peak", "tot_alloc", "freed")
_LABELS = {
    "allocated memory": "allocated",
    "active memory": "active",
    "requested memory": "requested",
    "gpu reserved memory": "reserved",
    "reserved memory": "reserved",
    "non-releasable memory": "non_releasable",
    "allocations": "allocations",
    "active allocs": "active_allocs",
    "gpu reserved segments": "segments",
    "reserved segments": "segments",
    "non-releasable allocs": "non_releasable_allocs",
    "oversize allocations": "oversize_allocations",
    "oversize gpu segments": "oversize_segments",
}
_POOLS = {"from large pool": "large_pool", "from small pool": "small_pool"}
_ESCAPED = "|\\n|"
_LONGEST_TABLE = 120  # lines

_STAT = re.compile(
    r"""(?<![a-z_])([a-z_]{4,40})(?:\.(all|large_pool|small_pool))?\.(current|peak|allocated|freed)['"]?[,:=)(]{1,3}(\d{1,20})"""
)
_STAT_COUNT = re.compile(r"""(num_ooms|num_alloc_retries)['"]?[,:=]{1,2}(\d{1,15})""")
_STAT_NAMES = {
    "allocated_bytes": "allocated",
    "active_bytes": "active",
    "requested_bytes": "requested",
    "reserved_bytes": "reserved",
    "inactive_split_bytes": "inactive_split",
    "allocation": "allocations",
    "active": "active_allocs",
    "segment": "segments",
    "inactive_split": "inactive_split_allocs",
    "oversize_allocations": "oversize_allocations",
    "oversize_segments": "oversize_segments",
}
_STAT_COLUMNS = {"current": "cur", "peak": "peak", "allocated": "tot_alloc", "freed": "freed"}


@dataclass(frozen=True)
class MemorySummary:
    """The figures of one table or of one set of statistics.

    ``mib`` holds sizes under "<metric>_<column>" ("allocated_cur", "reserved_peak", with the pool as in
    "allocated_large_pool_cur"), ``counts`` numbers of blocks in the same way. The columns "tot_alloc" and
    "freed" are sums over the whole life of the process. ``truncated``: the table has no end.
    ``as_printed_by_torch`` is False for a table that somebody has typed or changed.
    """

    form: Literal["table", "statistics"]
    device: int | None
    ooms: int | None
    retries: int | None
    mib: Mapping[str, float]
    counts: Mapping[str, int]
    first_line: int
    last_line: int
    truncated: bool = False
    as_printed_by_torch: bool = True
    tot_alloc: PrintedSize | None = None

    def figures(self) -> dict[str, Any]:
        """All that stands in the text, as JSON data."""
        names = ("cuda_ooms", "cudamalloc_retries")
        if self.form == "statistics":
            names = ("num_ooms", "num_alloc_retries")
        figures: dict[str, Any] = {
            "form": self.form,
            "device": self.device,
            names[0]: self.ooms,
            names[1]: self.retries,
        }
        figures |= {f"{name}_mib": round(value, 2) for name, value in self.mib.items()}
        figures |= self.counts
        for metric in ("oversize_allocations", "oversize_segments"):
            if f"{metric}_cur" in self.counts:
                figures[metric] = self.counts[f"{metric}_cur"]
        if self.form == "table":
            figures["tot_alloc"] = self.tot_alloc.to_json() if self.tot_alloc else None
            figures["truncated"] = self.truncated
            figures["as_printed_by_torch"] = self.as_printed_by_torch
        return figures

    def __str__(self) -> str:
        device = "" if self.device is None else f" of device {self.device}"
        sizes = [f"  {name.replace('_', ' ')}: {show_mib(size)}" for name, size in self.mib.items()]
        ends = f"  out-of-memory errors: {_known(self.ooms)}, retries: {_known(self.retries)}"
        return "\n".join([f"Memory summary{device}", ends, *sizes])

    def _repr_html_(self) -> str:
        return f'<pre style="white-space:pre;overflow-x:auto">{html.escape(str(self))}</pre>'


def _known(number: int | None) -> str:
    return "not in the text" if number is None else str(number)


def memory_summaries(paste: Paste) -> list[MemorySummary]:
    """All tables and all sets of statistics in the text, in the order in which they stand."""
    if (place := paste.text.find(_ESCAPED)) >= 0:
        # From a log or a notebook in JSON: the whole table stands on one line.
        line = paste.line_of(place)
        inner = memory_summaries(Paste.of(paste.text.replace("\\n", "\n")))
        return [replace(summary, first_line=line, last_line=line) for summary in inner]
    found = [*_tables(paste), *_statistics(paste)]
    return sorted(found, key=lambda summary: summary.first_line)


def _tables(paste: Paste) -> Iterator[MemorySummary]:
    titles = [number for number, line in enumerate(paste.lines) if _TITLE.search(line)]
    if not titles:
        rows = [
            n
            for n, line in enumerate(paste.lines)
            if (m := _ROW.search(line)) and m.group(1).lower() in _LABELS
        ]
        if len(rows) >= 3:  # a table whose head was not pasted
            yield _table(paste, max(rows[0] - 4, 0), len(paste.lines))
        return
    for title, following in zip(titles, [*titles[1:], len(paste.lines)], strict=True):
        yield _table(paste, title, following)


def _table(paste: Paste, start: int, end: int) -> MemorySummary:
    lines = paste.lines[start : min(end, start + _LONGEST_TABLE)]
    mib: dict[str, float] = {}
    counts: dict[str, int] = {}
    words: set[str] = set()
    tot_alloc: PrintedSize | None = None
    metric, last, decimals, closed = None, start, False, False
    for offset, line in enumerate(lines):
        if _RULE.search(line) and metric:
            closed, last = True, start + offset
            break
        row = _ROW.search(line)
        if row is None:
            continue
        label = row.group(1).lower()
        if label in _LABELS:
            metric, key = _LABELS[label], _LABELS[label]
        elif label in _POOLS and metric:
            key = f"{metric}_{_POOLS[label]}"
        else:
            continue
        words.add(label)
        last = start + offset
        for column, cell in zip(_COLUMNS, row.group(2).split("|"), strict=False):
            if size := _SIZE_CELL.match(cell):
                printed = PrintedSize.of(*size.groups())
                mib.setdefault(f"{key}_{column}", printed.mib)
                decimals = decimals or "." in size.group(1)
                if key == "allocated" and column == "tot_alloc":
                    tot_alloc = tot_alloc or printed
            elif count := _COUNT_CELL.match(cell):
                factor = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[count.group(2)]
                counts.setdefault(f"{key}_{column}", round(float(count.group(1)) * factor))
    head = "\n".join(lines[: last - start + 1])
    title, ooms, retries = _TITLE.search(head), _OOMS.search(head), _RETRIES.search(head)
    typed = decimals or "reserved memory" in words or (closed and bool(title) and ooms is None)
    return MemorySummary(
        form="table",
        device=int(title.group(1)) if title else None,
        ooms=int(ooms.group(1)) if ooms else None,
        retries=int(retries.group(1)) if retries else None,
        mib=mib,
        counts=counts,
        first_line=start + 1,
        last_line=last + 1,
        truncated=not closed,
        as_printed_by_torch=not typed,
        tot_alloc=tot_alloc,
    )


def _statistics(paste: Paste) -> Iterator[MemorySummary]:
    """One set of statistics at most: keys may be broken by line ends, so the squeezed text is read."""
    mib: dict[str, float] = {}
    counts: dict[str, int] = {}
    places: list[int] = []
    for match in _STAT.finditer(paste.squeezed):
        name, pool, column, digits = match.groups()
        metric = _STAT_NAMES.get(name)
        if metric is None:
            continue
        key = f"{metric}_{_STAT_COLUMNS[column]}" if pool in (None, "all") else None
        key = key or f"{metric}_{pool}_{_STAT_COLUMNS[column]}"
        if name.endswith("_bytes"):
            mib.setdefault(key, int(digits) / 2**20)
        else:
            counts.setdefault(key, int(digits))
        places += [match.start(), match.end() - 1]
    numbers = {name: int(digits) for name, digits in _STAT_COUNT.findall(paste.squeezed)}
    if len(mib) + len(counts) < 2:
        return
    yield MemorySummary(
        form="statistics",
        device=None,
        ooms=numbers.get("num_ooms"),
        retries=numbers.get("num_alloc_retries"),
        mib=mib,
        counts=counts,
        first_line=paste.line_of(paste.offset(min(places))),
        last_line=paste.line_of(paste.offset(max(places))),
    )
