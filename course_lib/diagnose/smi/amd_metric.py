"""What does ``amd-smi metric`` say, with a name a line or, with ``--json``, with the same names in JSON?"""

import re
from dataclasses import replace
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number
from course_lib.diagnose.smi.model import Gpu

_FIELDS = {
    "gfx_activity": "util_percent",
    "umc_activity": "memory_activity_percent",
    "socket_power": "power_w",
    "hotspot": "temp_c",
    "edge": "temp_c",
    "total_vram": "total_mib",
    "used_vram": "used_mib",
}
# In JSON most figures are objects of a value and its unit.
_ENTRY = re.compile(
    r"^[ \t>*]*[\"']?(gpu|gfx_activity|umc_activity|socket_power|hotspot|edge|total_vram|used_vram)[\"']?\s*:"
    r"\s*(?:\{\s*[\"']value[\"']\s*:\s*)?[\"']?(\d{1,9}(?:\.\d{1,3})?|N/A)\b",
    re.IGNORECASE | re.MULTILINE,
)


def read(paste: Paste) -> tuple[list[Gpu], list[int]]:
    """The cards, and the lines on which their figures stand."""
    cards: list[Gpu] = []
    lines: list[int] = []
    begun: Gpu | None = None  # a card of which only the number has been read
    for match in _ENTRY.finditer(paste.text):
        name, value = match.group(1).lower(), match.group(2)
        if name == "gpu":
            begun = Gpu(index=int(value)) if value.isdecimal() else None
            continue
        if begun is not None or not cards:
            cards.append(begun or Gpu())
            begun = None
        field = _FIELDS[name]
        if getattr(cards[-1], field) is None:
            change: dict[str, Any] = {field: number(value)}
            cards[-1] = replace(cards[-1], **change)
        lines.append(paste.line_of(match.start(1)))
    own = {"util_percent", "memory_activity_percent", "power_w"}
    told = [any(getattr(card, field) is not None for field in own) for card in cards]
    return (cards, lines) if any(told) else ([], [])
