"""How many MiB does a size mean, as a tool has printed it?

PyTorch and nvidia-smi count in powers of 1024, also where they write MB or GB; so all sizes here do.
"""

from dataclasses import dataclass

_IN_MIB = {"": 2.0**-20, "k": 2.0**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20, "p": 2.0**30, "e": 2.0**40}

# For a squeezed text (see paste.py): number and unit stand together.
SIZE = r"(\d{1,20}(?:\.\d{1,6})?)(bytes?|[kKMGTPE]i?B|B)"


@dataclass(frozen=True, slots=True)
class PrintedSize:
    """A size as printed (``raw``) and in MiB."""

    raw: str
    mib: float

    @classmethod
    def of(cls, number: str, unit: str) -> "PrintedSize":
        """From the number and the unit as printed: ``of("9.18", "GiB")`` is 9400.32 MiB."""
        prefix = unit[:1].lower() if unit.lower() not in ("b", "byte", "bytes") else ""
        return cls(f"{number} {unit}", round(float(number) * _IN_MIB[prefix], 4))

    def to_json(self) -> dict[str, str | float]:
        """``{"raw": "9.18 GiB", "mib": 9400.32}``."""
        return {"raw": self.raw, "mib": self.mib}

    def __str__(self) -> str:
        return self.raw


def show_mib(mib: float) -> str:
    """A number of MiB for a person: "317 MiB", "9.18 GiB", "1.2 MiB"."""
    if abs(mib) >= 1024:
        return f"{mib / 1024:.2f} GiB"
    return f"{mib:.0f} MiB" if abs(mib) >= 10 else f"{mib:.3g} MiB"
