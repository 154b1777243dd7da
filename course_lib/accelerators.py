"""Which cards does the course know, and what does each bring: memory, bandwidth, peak rates, power?

A card sold with 24 GB shows 23.7 GiB to a program, and one with error correction only 22: the rest
belongs to the driver and the checks. The table ``data/accelerators.csv`` holds what
``torch.cuda.get_device_properties().total_memory`` says where a public message tells it, and beside it what
decides speed. Each row names its sources and their date; what no source tells is empty, and None here.

Peak rates are dense, with FP32 accumulation: a data sheet that counts 2:4 sparsity doubles them, and one
that counts FP16 accumulation on GeForce cards doubles them once more.
"""

from __future__ import annotations

import csv
import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from course_lib.errors import CourseError
from course_lib.files import data_path

# Of the size on the box: the smallest shares among the rows that a message tells (L4 and A10; Apple's M1).
_LEAST_USABLE_SHARE = 0.918
_LEAST_SHARE_OF_SHARED_MEMORY = 0.666


@dataclass(frozen=True)
class Accelerator:
    """One card. None and "" stand for what no source tells. ``aliases``: other names it goes by.

    ``advertised_gb`` is the number on the box. ``usable_mib`` is what a program can have, in MiB.
    ``bandwidth_gb_s`` is that of its memory, in 10**9 bytes a second. Rates are in 10**12 operations a
    second. ``interconnect_gb_s`` counts both directions together, as makers do; PCIe stands where no faster
    link is. ``sm_count`` counts compute units (AMD), Xe cores (Intel) or GPU cores (Apple) on other makes.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    advertised_gb: float
    usable_mib: int | None
    common: bool
    source: str
    aliases: tuple[str, ...] = ()
    kind: str = ""
    launch: str = ""
    bandwidth_gb_s: float | None = None
    l2_mib: float | None = None
    sm_count: int | None = None
    boost_clock_mhz: float | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    fp16_tflops: float | None = None
    bf16_tflops: float | None = None
    int8_tops: float | None = None
    tdp_w: float | None = None
    interconnect: str = ""
    interconnect_gb_s: float | None = None
    memory_source: str = ""
    rates_source: str = ""
    source_date: str = ""
    note: str = ""

    @property
    def memory_gib(self) -> float | None:
        """What a program can have, in GiB, its own context included; None where no message tells it."""
        return None if self.usable_mib is None else self.usable_mib / 1024

    @property
    def usable_bytes(self) -> int:
        """What a program can have, in bytes, its own context included.

        Where no public message tells it, this is the smallest share of the advertised size that any card of
        the table leaves: a bound, on the safe side. A computer that shares its memory keeps a third.
        """
        if self.usable_mib is not None:
            return self.usable_mib * 2**20
        share = _LEAST_SHARE_OF_SHARED_MEMORY if self.kind == "shared memory" else _LEAST_USABLE_SHARE
        return int(self.advertised_gb * 2**30 * share)

    def __str__(self) -> str:
        least = "" if self.usable_mib is not None else "at least "
        return f"{self.name} ({least}{self.usable_bytes / 2**30:.1f} GiB usable)"


@lru_cache(maxsize=1)
def accelerators() -> tuple[Accelerator, ...]:
    """Every card of the table, in its order: by maker and class, then by generation and size."""
    with data_path("accelerators.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(_card(row) for row in csv.DictReader(stream))


def _card(row: dict[str, str]) -> Accelerator:
    def number(column: str) -> float | None:
        return float(row[column]) if row[column] else None

    return Accelerator(
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=row["compute_capability"],
        advertised_gb=float(row["advertised_gb"]),
        usable_mib=int(row["usable_mib"]) if row["usable_mib"] else None,
        common=row["common"] == "yes",
        source=row["source"],
        aliases=tuple(filter(None, row["aliases"].split(";"))),
        kind=row["kind"],
        launch=row["launch"],
        bandwidth_gb_s=number("bandwidth_gb_s"),
        l2_mib=number("l2_mib"),
        sm_count=int(row["sm_count"]) if row["sm_count"] else None,
        boost_clock_mhz=number("boost_clock_mhz"),
        fp32_tflops=number("fp32_tflops"),
        tf32_tflops=number("tf32_tflops"),
        fp16_tflops=number("fp16_tflops"),
        bf16_tflops=number("bf16_tflops"),
        int8_tops=number("int8_tops"),
        tdp_w=number("tdp_w"),
        interconnect=row["interconnect"],
        interconnect_gb_s=number("interconnect_gb_s"),
        memory_source=row["memory_source"],
        rates_source=row["rates_source"],
        source_date=row["source_date"],
        note=row["note"],
    )


# Words that makers, drivers and shops put around the name of a card.
_AROUND = re.compile(
    r"\((?:r|tm|c)\)|[®™]|\b(?:nvidia|geforce|tesla|amd|radeon|instinct|intel|apple|google|cloud|huawei|"
    r"graphics|gpu|generation|workstation|edition|ddr\d|hbm\d?e?|with max-q design)\b"
)
_FORM = re.compile(r"\b(pcie|nvl|sxm\d?|oam)\b")
_SERIES = ("", "rtx", "gtx", "rx", "arc", "apple", "tpu", "nvidia")


@dataclass(frozen=True)
class _Name:
    """A name without what people leave out or add: ``("a100", 40, "pcie")``."""

    core: str
    memory_gb: int | None
    form: str


def _parse(name: str) -> _Name:
    text = re.sub(r"[-_/,]", " ", name.lower())
    text = re.sub(r"(?<=\d)(?=ti\b|super\b)", " ", _AROUND.sub(" ", text))
    form = _FORM.search(text)
    text = _FORM.sub(" ", text)
    memory = re.search(r"\b(\d{1,3})\s*gi?b\b", text) or re.search(r"(?<=[a-z\d])\s(\d{1,3})\s*g\b", text)
    if memory:
        text = text[: memory.start()] + " " + text[memory.end() :]
    core = re.sub(r"[^a-z0-9]", "", text)
    return _Name(core, int(memory[1]) if memory else None, form[1].rstrip("0123456789") if form else "")


@lru_cache(maxsize=1)
def _known() -> tuple[tuple[_Name, Accelerator], ...]:
    return tuple((_parse(name), card) for card in accelerators() for name in (card.name, *card.aliases))


def find_accelerator(name: str, total_bytes: int | None = None) -> Accelerator:
    """The card that a name means: ``"3090"``, ``"rtx3090"``, ``"NVIDIA A100-SXM4-40GB"``.

    Takes what people write, what ``torch.cuda.get_device_name()`` says and what ``nvidia-smi`` prints.
    ``total_bytes``, what a program sees on that card, tells apart cards of one name with different memories.
    A name that fits several cards (``"A100"``: 40 or 80 GB) is refused, and so is an unknown one: with near
    matches, never with a guess. Raises CourseError.
    """
    if not isinstance(name, str):
        raise CourseError(f"{name!r} is no name of a card: write it as text, such as 'RTX 3090'.")
    if name.rstrip().endswith(("...", "…")):
        return _cut_short(name)
    wanted = _parse(name)
    named = _named(wanted)
    fits = _narrowed(wanted, named, total_bytes)
    if len(fits) == 1:
        return fits[0]
    if fits:
        options = " or ".join(card.name for card in fits)
        raise CourseError(f"{name!r} is sold with different memories; say {options}.")
    if named:
        sizes = ", ".join(card.name for card in named)
        raise CourseError(f"The card {name!r} is not in the table; near it are {sizes}.")
    raise CourseError(f"The card {name!r} is not in the table; {_near(wanted)}")


find = find_accelerator


def _named(wanted: _Name) -> list[Accelerator]:
    """The cards of that name, whatever their memory and form; a left-out series name is filled in."""
    if not wanted.core:
        return []
    for series in _SERIES:
        cards = [card for known, card in _known() if known.core == series + wanted.core]
        if cards:
            return list(dict.fromkeys(cards))
    return []


def _narrowed(wanted: _Name, cards: list[Accelerator], total_bytes: int | None) -> list[Accelerator]:
    """Those of the cards that have the memory and the form that the name says."""
    if wanted.memory_gb is not None:
        said = [card for known, card in _known() if known == wanted and card in cards]
        cards = said or [card for card in cards if abs(card.advertised_gb - wanted.memory_gb) < 1]
    if total_bytes is not None and cards:
        sizes = {card.advertised_gb for card in cards}
        # A program sees a little less than the box says, never more.
        nearest = min(sizes, key=lambda size: abs(size * 2**30 * 0.97 - total_bytes))
        cards = [card for card in cards if card.advertised_gb == nearest]
    forms = {card: _parse(card.name).form for card in cards}
    form = wanted.form if wanted.form in forms.values() else ""
    return [card for card in cards if forms[card] == form] or cards


def _cut_short(name: str) -> Accelerator:
    """``nvidia-smi`` cuts long names: ``"NVIDIA A100-SXM..."``, ``"NVIDIA GeForce ..."``."""
    start = _parse(name.rstrip().rstrip(".…")).core
    cards = list(dict.fromkeys(card for known, card in _known() if start and known.core.startswith(start)))
    if len(cards) == 1:
        return cards[0]
    which = f"begins the names of {len(cards)} cards" if cards else "begins no name in the table"
    raise CourseError(f"{name!r} is cut short and {which}; `nvidia-smi -L` prints names in full.")


def _near(wanted: _Name) -> str:
    by_core = {known.core: card.name for known, card in reversed(_known())}
    close = difflib.get_close_matches(wanted.core, by_core, n=3, cutoff=0.5)
    if close:
        return "near it are " + ", ".join(by_core[core] for core in close) + "."
    common = ", ".join(card.name for card in common_accelerators())
    return f"it knows {len(accelerators())}, among them {common} (all: course cards)."


def common_accelerators() -> tuple[Accelerator, ...]:
    """The cards that most learners have, rent or are offered."""
    return tuple(card for card in accelerators() if card.common)
