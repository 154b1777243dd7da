"""Which cards do nvidia-smi's lists name: ``-L``, ``nvlink -s`` and ``mig -lgi``?

``-L`` gives names and UUIDs, and the slices of cards that are cut up; ``nvlink -s`` the speed of each link of
each card, or that the link is inactive; ``mig -lgi`` and ``-lci`` the slices by their profiles.
"""

import re
from dataclasses import replace

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.model import Gpu, GpuStatus

_CARD = re.compile(r"^[\s>|]*GPU (\d{1,3}): (.{1,80}?) \(UUID: (GPU-[0-9a-fA-F-]{8,40}|[.x*]{3,40})\)?")
_SLICE = re.compile(r"^[\s>|]*MIG \S+\s+Device\s+\d+: \(UUID: MIG-")
_LINK = re.compile(r"^[\s>|]*Link (\d{1,2}): (?:(\d{1,4}(?:\.\d{1,6})?) GB/s|<?(inactive)>?)", re.IGNORECASE)
_INSTANCE = re.compile(r"^\W{0,6}?\|?\s*(\d{1,3})\s+MIG (\dg\.\d{1,3}gb\S*)\s+\d{1,3}\s+\d{1,3}\s")
INACTIVE_LINKS = "inactive NVLinks of GPU "


def read(paste: Paste) -> list[GpuStatus]:
    """The listed cards as one GpuStatus, and the cut ones of ``mig -lgi`` as another."""
    gpus: list[Gpu] = []
    cut: set[int] = set()
    links: dict[int, dict[int, bool]] = {}
    lines: list[int] = []
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:300]
        if match := _CARD.match(text):
            uuid = match.group(3) if match.group(3).startswith("GPU-") else None
            gpus.append(Gpu(index=int(match.group(1)), name=match.group(2), uuid=uuid))
            lines.append(line_number)
        elif gpus and _SLICE.match(text):
            cut.add(len(gpus) - 1)
            lines.append(line_number)
        elif gpus and (match := _LINK.match(text)):
            links.setdefault(gpus[-1].index or 0, {})[int(match.group(1))] = match.group(3) is None
            lines.append(line_number)
    statuses = []
    if gpus:
        listed = tuple(
            replace(gpu, mig_enabled=True if place in cut else None) for place, gpu in enumerate(gpus)
        )
        statuses.append(
            GpuStatus(
                source="nvidia-smi nvlink -s" if links else "nvidia-smi -L",
                first_line=lines[0],
                last_line=lines[-1],
                gpus=listed,
                samples=listed,
                trouble=_inactive(links),
                memory_asked=False,
            )
        )
    return statuses + _instances(paste)


def _inactive(links: dict[int, dict[int, bool]]) -> dict[str, str]:
    """The inactive links of cards of which other links work: a card without a bridge has none at all."""
    found = {}
    for card, active in links.items():
        down = [str(link) for link, works in active.items() if not works]
        if down and len(down) < len(active):
            found[f"{INACTIVE_LINKS}{card}"] = f"{', '.join(down)} (of {len(active)})"
    return found


def _instances(paste: Paste) -> list[GpuStatus]:
    found = [
        (number, match)
        for number, line in enumerate(paste.lines, start=1)
        if (match := _INSTANCE.match(line[:300]))
    ]
    if not found:
        return []
    cards = tuple(
        Gpu(index=index, mig_enabled=True) for index in sorted({int(match.group(1)) for _, match in found})
    )
    return [
        GpuStatus(
            source="nvidia-smi mig",
            first_line=found[0][0],
            last_line=found[-1][0],
            gpus=cards,
            samples=cards,
            memory_asked=False,
        )
    ]
