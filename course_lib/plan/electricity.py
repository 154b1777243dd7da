"""What does a kilowatt-hour cost and emit, by place, according to whom, and as of when?"""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass
from functools import lru_cache

from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.units import Money

# Site power over computer power. Source: Uptime Institute, Intelligence Update 221, 2023-11-23,
# https://intelligence.uptimeinstitute.com/resource/large-data-centers-are-mostly-more-efficient-analysis-confirms
PUE_OF_THE_INDUSTRY = 1.58


@dataclass(frozen=True)
class Tariff:
    """The price of a kilowatt-hour for one kind of customer."""

    place: str
    customer: str
    price: Money
    day: str
    source: str
    note: str

    def __str__(self) -> str:
        return f"{self.price.amount:g} {self.price.currency}/kWh ({self.place}, {self.customer}, {self.day})"


@dataclass(frozen=True)
class CarbonIntensity:
    """Grams of CO2 equivalents for each kilowatt-hour of a place's mix, over the life of its plants."""

    place: str
    grams_per_kwh: float
    day: str
    source: str
    note: str

    def __str__(self) -> str:
        return f"{self.grams_per_kwh:g} g CO2e/kWh ({self.place}, {self.day})"


@lru_cache(maxsize=1)
def _rows() -> tuple[dict[str, str], ...]:
    with data_path("electricity.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))


def tariffs() -> tuple[Tariff, ...]:
    """Every tariff of the table."""
    return tuple(
        Tariff(
            row["place"],
            row["customer"],
            Money(float(row["amount"]), row["unit"].removesuffix("/kWh")),
            row["date"],
            row["source"],
            row["note"],
        )
        for row in _rows()
        if row["quantity"] == "tariff"
    )


def carbon_intensities() -> tuple[CarbonIntensity, ...]:
    """Every carbon intensity of the table."""
    return tuple(
        CarbonIntensity(row["place"], float(row["amount"]), row["date"], row["source"], row["note"])
        for row in _rows()
        if row["quantity"] == "carbon"
    )


def tariff(place: str, customer: str = "household") -> Tariff:
    """The tariff of a place. Raises CourseError, with near names, for an unknown one."""
    known = {(row.place.lower(), row.customer): row for row in tariffs()}
    found = known.get((str(place).strip().lower(), customer))
    if found is None:
        raise CourseError(
            _unknown(
                place, f"tariff ({customer})", [row.place for row in tariffs() if row.customer == customer]
            )
        )
    return found


def carbon_intensity(place: str) -> CarbonIntensity:
    """The carbon intensity of a place. Raises CourseError, with near names, for an unknown one."""
    known = {row.place.lower(): row for row in carbon_intensities()}
    found = known.get(str(place).strip().lower())
    if found is None:
        raise CourseError(_unknown(place, "carbon intensity", [row.place for row in carbon_intensities()]))
    return found


def _unknown(place: str, what: str, places: list[str]) -> str:
    by_lower = {name.lower(): name for name in places}
    near = difflib.get_close_matches(str(place).lower(), by_lower, n=3)
    advice = (
        f"did you mean {' or '.join(by_lower[name] for name in near)}?"
        if near
        else f"it knows {', '.join(places)}."
    )
    return f"The table holds no {what} of {place!r}: {advice}"
