"""How fast do cards exchange gradients over each kind of link? What was measured, not what the box says.

A link's advertised rate counts both directions and no protocol. ``data/interconnects.csv`` holds what an
all-reduce reaches (the *bus bandwidth* of nccl-tests), and what one hop takes for the smallest message.
"""

from __future__ import annotations

import csv
import difflib
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from course_lib.accelerators import Accelerator
from course_lib.errors import CourseError
from course_lib.files import data_path


@dataclass(frozen=True)
class Interconnect:
    """One kind of link.

    ``bandwidth``: bytes a second and card that a ring of all-reduce reaches. ``latency``: seconds of one
    hop. ``network``: whether it joins computers rather than cards in one.
    """

    name: str
    bandwidth: float
    latency: float
    network: bool
    source: str
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.bandwidth / 1e9:g} GB/s, {self.latency * 1e6:g} µs a hop)"


@lru_cache(maxsize=1)
def interconnects() -> tuple[Interconnect, ...]:
    """Every link of the table."""
    with data_path("interconnects.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(
            Interconnect(
                row["name"],
                float(row["ring_gb_s"]) * 1e9,
                float(row["latency_us"]) * 1e-6,
                row["scope"] == "network",
                row["source"],
                tuple(row["aliases"].split(";")),
            )
            for row in csv.DictReader(stream)
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_interconnect(name: str) -> Interconnect:
    """The link that a name means (``"nvlink 3"``, ``"PCIe 4.0 x16"``, ``"10GbE"``).

    A PCIe slot of fewer lanes (``"PCIe 4.0 x8"``) has its share of the bandwidth. Raises CourseError for an
    unknown one, with near matches.
    """
    name = str(name)  # a number is answered as an unknown name is
    lanes = re.fullmatch(r"(?P<link>pci.*?)\s*x(?P<lanes>1|2|4|8)", name.strip(), re.IGNORECASE)
    if lanes:
        whole = find_interconnect(lanes["link"])
        count = int(lanes["lanes"])
        return replace(whole, name=f"{whole.name} x{count}", bandwidth=whole.bandwidth * count / 16)
    known = {_plain(word): link for link in interconnects() for word in (link.name, *link.aliases)}
    wanted = _plain(name)
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = ", ".join(dict.fromkeys(known[word].name for word in close)) or ", ".join(
        link.name for link in interconnects()
    )
    raise CourseError(
        f"The interconnect {name!r} is not in the table; {'near it are' if close else 'it knows'} {hint}."
    )


def interconnect_of(card: Accelerator) -> Interconnect:
    """The link between cards of this kind in one computer.

    GeForce cards of the 40 and 50 series and all without a bridge exchange through PCIe. Raises CourseError
    if the table does not tell.
    """
    if not card.interconnect:
        raise CourseError(f"The table does not tell how {card.name} cards are joined; name an interconnect.")
    return find_interconnect(card.interconnect)
