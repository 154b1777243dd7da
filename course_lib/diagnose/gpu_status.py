"""What do the cards of this computer, or of a pasted dump, look like?

``gpu_statuses(text)`` reads every format that people paste: nvidia-smi's table, ``-q``, XML, CSV, ``dmon``
and ``pmon``, ``-L``, ``nvlink -s``, ``topo -m``, its errors, dcgmi, gpustat, nvitop's and nvtop's screens,
and what can be read of the tools of AMD and Intel (rocm-smi, amd-smi, xpu-smi).
``live_status()`` asks the driver itself, through nvidia-ml-py.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi import (
    amd,
    csv,
    dcgm,
    dmon,
    gpustat,
    intel,
    listing,
    nvtop,
    query,
    records,
    table,
    topo,
    trouble,
    xml,
)
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus, MigDevice
from course_lib.diagnose.smi.nvml import live_status

__all__ = ["Gpu", "GpuProcess", "GpuStatus", "MigDevice", "gpu_statuses", "live_status"]

_FORMATS = (table, query, xml, csv, dmon, dcgm, gpustat, records, nvtop, listing, topo, amd, intel, trouble)


def gpu_statuses(text: str | Paste) -> list[GpuStatus]:
    """Every dump in the text, in the order in which they stand; several looks of one tool become a series.

    Raises CourseError for a text of more than 20 million characters.
    """
    paste = (text if isinstance(text, Paste) else Paste.of(text)).unlabelled
    found = [status for module in _FORMATS for status in module.read(paste)]
    if not found and "\\n" in paste.text:
        found = list(_of_one_line(paste))
    return _joined(sorted(map(_with_system, found), key=lambda status: (status.first_line, status.source)))


def _with_system(status: GpuStatus) -> GpuStatus:
    """The status, with what a driver model says: only Windows has one."""
    models = {gpu.driver_model for gpu in status.gpus} - {None}
    if not models:
        return status
    return replace(status, os="windows", driver_model=models.pop() if len(models) == 1 else None)


def _of_one_line(paste: Paste) -> Iterator[GpuStatus]:
    """The dumps of a text in which line breaks are spelt, as Python prints bytes and JSON a string."""
    pieces = [line.split("\\n") for line in paste.lines]
    spread = Paste.of("\n".join(itertools.chain.from_iterable(pieces)))
    origin = [number for number, parts in enumerate(pieces, start=1) for _ in parts]
    for module in _FORMATS:
        for status in module.read(spread):
            yield replace(
                status, first_line=origin[status.first_line - 1], last_line=origin[status.last_line - 1]
            )


def _joined(statuses: list[GpuStatus]) -> list[GpuStatus]:
    """Looks of the same tool at the same cards, one after the other, are one series (nvidia-smi -l)."""
    joined: list[GpuStatus] = []
    for status in statuses:
        before = next((s for s in reversed(joined) if s.source == status.source), None)
        if before and before.gpus and status.gpus and _same_cards(before, status):
            position = joined.index(before)
            joined[position] = replace(
                status,
                first_line=before.first_line,
                samples=before.samples
                + tuple(replace(g, time=g.time or status.time) for g in status.samples),
                columns=before.columns,
            )
        else:
            joined.append(status)
    return joined


def _same_cards(one: GpuStatus, two: GpuStatus) -> bool:
    def cards(status: GpuStatus) -> list[tuple[int | None, str | None]]:
        return [(gpu.index, gpu.name) for gpu in status.gpus]

    known = all(gpu.index is not None for gpu in one.gpus)
    return known and cards(one) == cards(two) and one.columns == two.columns
