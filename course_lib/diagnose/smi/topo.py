"""How are the cards connected, as ``nvidia-smi topo -m`` draws it?

NV# is NVLink; PIX and PXB stay under PCIe switches, PHB and NODE cross a host bridge, SYS crosses sockets.
"""

import re
from collections.abc import Iterator

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.model import GpuStatus

_HEADER = re.compile(r"^\W{0,60}GPU\d{1,3}\s+(?:GPU\d|NIC\d|mlx|CPU Aff)")
_ROW = re.compile(r"^\W{0,60}GPU(\d{1,3})\s+(.{1,2000})$")
_LINK = re.compile(r"^(?:X|NV\d{1,2}|PIX|PXB|PHB|PSB|NODE|SYS|SOC)$")
_START = re.compile(r"^\W{0,60}(?:GPU\d|NIC\d|mlx)")
_REST = re.compile(
    r"^\s*(?:[\dVXYSNPBHIOCDEAU,/-]{1,40}|NIC\d{1,2}|CPU|NUMA|GPU|Affinity|ID|fi?nity|y)(?:\s|$)"
)
_NUMA = re.compile(r"^\d{1,2}$")


def _whole_lines(paste: Paste) -> Iterator[tuple[int, str]]:
    """Number and text of each line; what a terminal has broken off a row of the matrix follows it again."""
    width = max((len(line) for line in paste.lines[:1000]), default=0) or 1  # all may be blank
    held: tuple[int, str] | None = None
    for line_number, line in enumerate(paste.lines, start=1):
        text = line[:3000]
        if held and not _START.match(text) and _REST.match(text):
            held = (held[0], held[1] + ("" if len(held[1]) % width == 0 else " ") + text)
            continue
        if held:
            yield held
        held = (line_number, text)
    if held:
        yield held


def read(paste: Paste) -> list[GpuStatus]:
    """The matrix of the text as one GpuStatus with ``links`` and ``numa``, or none."""
    cards: list[int] | None = None
    rows: dict[int, list[str]] = {}
    numa: dict[int, int | None] = {}
    first = last = 0
    for line_number, text in _whole_lines(paste):
        if cards is None:
            if _HEADER.match(text):
                cards = [int(name) for name in re.findall(r"\bGPU(\d{1,3})\b", text)]
                first = line_number
            continue
        row = _ROW.match(text)
        if row is None:
            if rows and text.strip() and not text.lstrip().startswith(("NIC", "mlx")):
                break
            continue
        cells = row.group(2).split()
        links = []
        for cell in cells:
            if not _LINK.match(cell):
                break
            links.append(cell)
        card = int(row.group(1))
        if len(links) < len(cards) or card in rows:
            continue
        rows[card], last = links[: len(cards)], line_number
        # After the links: CPU affinity, NUMA affinity and, later, the card's own NUMA node.
        rest = [cell for cell in cells[len(links) :] if _NUMA.match(cell)]
        numa[card] = int(rest[0]) if rest else None
    if not cards or len(rows) < 2:
        return []
    pairs: dict[str, str] = {}
    for card, links in sorted(rows.items()):
        for other, link in zip(cards, links, strict=True):
            if card < other and link != "X":
                pairs[f"{card}-{other}"] = link
    return [
        GpuStatus(
            source="nvidia-smi topo",
            first_line=first,
            last_line=last,
            links=pairs,
            numa=tuple(numa[card] for card in sorted(rows)),
        )
    ]
