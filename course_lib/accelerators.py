"""Which cards does the course know, and how much memory does each really give?

A card sold with 24 GB shows 23.7 GiB to a program, and one with error correction only 22: the rest
belongs to the driver and the checks. The table ``data/accelerators.csv`` holds what
``torch.cuda.get_device_properties().total_memory`` says, with the source of each row.
"""

from __future__ import annotations

import csv
import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from course_lib.errors import CourseError
from course_lib.files import data_path


@dataclass(frozen=True)
class Accelerator:
    """One card. ``advertised_gb`` is the number on the box; ``usable_mib`` is what a program can have, in
    MiB.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    advertised_gb: float
    usable_mib: int
    common: bool
    source: str

    @property
    def usable_bytes(self) -> int:
        """What a program can have, in bytes, its own context included."""
        return self.usable_mib * 2**20

    def __str__(self) -> str:
        return f"{self.name} ({self.usable_mib / 1024:.1f} GiB usable)"


@lru_cache(maxsize=1)
def accelerators() -> tuple[Accelerator, ...]:
    """Every card of the table, in its order: by generation, then by size."""
    with data_path("accelerators.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(
            Accelerator(
                row["name"],
                row["vendor"],
                row["architecture"],
                row["compute_capability"],
                float(row["advertised_gb"]),
                int(row["usable_mib"]),
                row["common"] == "yes",
                row["source"],
            )
            for row in csv.DictReader(stream)
        )


def _plain(name: str) -> str:
    text = re.sub(r"nvidia|geforce|tesla|quadro|pcie|sxm\d?|hbm\d?e?|graphics|gpu", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", text)


def find_accelerator(name: str) -> Accelerator:
    """The card that a name means: ``"RTX 3090"``, ``"rtx3090"``, ``"NVIDIA A100-SXM4-40GB"``.

    A name that fits several cards (``"A100"``: 40 or 80 GB) is refused, and so is an unknown one: with
    near matches, never with a guess. Raises CourseError.
    """
    wanted = _plain(name)
    known = {_plain(card.name): card for card in accelerators()}
    if wanted in known:
        return known[wanted]
    candidates = (
        [card for key, card in known.items() if re.fullmatch(re.escape(wanted) + r"\d+gb", key)]
        if wanted
        else []
    )
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = " or ".join(card.name for card in candidates)
        raise CourseError(f"{name!r} is sold with different memories; say {names}.")
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = ", ".join(known[key].name for key in close) or ", ".join(card.name for card in accelerators())
    raise CourseError(
        f"The card {name!r} is not in the table; {'near it are' if close else 'it knows'} {hint}."
    )


def common_accelerators() -> tuple[Accelerator, ...]:
    """The cards that most learners have, rent or are offered."""
    return tuple(card for card in accelerators() if card.common)
