"""Which cards does ``nvidia-smi -L`` list? Names and UUIDs, and the slices of cards that are cut up."""

import re

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.model import Gpu, GpuStatus

_CARD = re.compile(r"^\s*GPU (\d{1,3}): (.{1,80}?) \(UUID: (GPU-[0-9a-fA-F-]{8,40})\)")
_SLICE = re.compile(r"^\s*MIG \S+\s+Device\s+\d+: \(UUID: MIG-")


def read(paste: Paste) -> list[GpuStatus]:
    """The listed cards as one GpuStatus, or none; nothing but names is known of them."""
    gpus: list[Gpu] = []
    cut: set[int] = set()
    lines: list[int] = []
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:300]
        if match := _CARD.match(text):
            gpus.append(Gpu(index=int(match.group(1)), name=match.group(2), uuid=match.group(3)))
            lines.append(line_number)
        elif gpus and _SLICE.match(text):
            cut.add(len(gpus) - 1)
            lines.append(line_number)
    if not gpus:
        return []
    listed = tuple(
        Gpu(index=gpu.index, name=gpu.name, uuid=gpu.uuid, mig_enabled=True if place in cut else None)
        for place, gpu in enumerate(gpus)
    )
    return [
        GpuStatus(
            source="nvidia-smi -L", first_line=lines[0], last_line=lines[-1], gpus=listed, samples=listed
        )
    ]
