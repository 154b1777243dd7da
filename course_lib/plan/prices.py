"""What does a card cost to buy or to rent, according to whom, and how old is that price?

``data/prices.csv`` holds dated offers, each with its seller and source. Prices move: an offer that is older
than a year says so wherever it is shown. Nothing is converted between currencies, and a card without an offer
has none.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from course_lib.accelerators import Accelerator
from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.units import Money

BUY = (
    "used",
    "new",
    "launch",
)  # what a learner would ask for first; the list price of the launch is the last
RENT = ("on demand", "spot")
_DAYS_A_YEAR = 365.25


@dataclass(frozen=True)
class Offer:
    """One price. ``kind``: launch, new, used (for a card), on demand, spot (for one card and hour).

    ``day``: the day on which the price held, as exactly as the source says it: 2023, 2023-10 or 2023-10-31.
    """

    card: str
    kind: str
    price: Money
    day: str
    seller: str
    source: str
    note: str

    @property
    def per(self) -> str:
        """What the price is for: ``card`` or ``hour``."""
        return "hour" if self.kind in RENT else "card"

    def age_years(self, today: date | None = None) -> float:
        """Years since the price held. A date without its day counts from the end of what it names."""
        return max(0.0, ((today or date.today()) - latest_day(self.day)).days / _DAYS_A_YEAR)

    def is_old(self, today: date | None = None) -> bool:
        """Whether the price is older than a year."""
        return self.age_years(today) > 1

    def __str__(self) -> str:
        old = ", older than a year" if self.is_old() else ""
        hourly = " an hour" if self.per == "hour" else ""
        return f"{self.price}{hourly} ({self.kind}, {self.seller}, {self.day}{old})"


def latest_day(day: str) -> date:
    """The last day that ``2023``, ``2023-10`` or ``2023-10-31`` may mean."""
    parts = [int(part) for part in day.split("-")]
    if len(parts) == 3:
        return date(*parts)
    year, month = (parts[0], parts[1]) if len(parts) == 2 else (parts[0], 12)
    return date.fromordinal((date(year + month // 12, month % 12 + 1, 1)).toordinal() - 1)


@lru_cache(maxsize=1)
def offers() -> tuple[Offer, ...]:
    """Every offer of the table."""
    with data_path("prices.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(
            Offer(
                row["card"],
                row["offer"],
                Money(float(row["amount"]), row["currency"]),
                row["date"],
                row["seller"],
                row["source"],
                row["note"],
            )
            for row in csv.DictReader(stream)
        )


def offers_for(card: Accelerator) -> tuple[Offer, ...]:
    """The offers of one card, the newest first."""
    own = [offer for offer in offers() if offer.card == card.name]
    return tuple(sorted(own, key=lambda offer: latest_day(offer.day), reverse=True))


def to_buy(card: Accelerator, currency: str = "USD") -> Offer | None:
    """What a card costs: the newest used or new price, else its list price at launch, else None."""
    for kinds in (("used", "new"), ("launch",)):
        for offer in offers_for(card):
            if offer.kind in kinds and offer.price.currency == currency:
                return offer
    return None


def to_rent(card: Accelerator, kind: str = "on demand", currency: str = "USD") -> Offer | None:
    """The cheapest of the rents quoted within a year of the newest one, or None.

    Providers differ by a factor of six for the same card; whole machines count by the card.
    """
    own = [offer for offer in offers_for(card) if offer.kind == kind and offer.price.currency == currency]
    if not own:
        return None
    newest = latest_day(own[0].day)
    recent = [offer for offer in own if (newest - latest_day(offer.day)).days < _DAYS_A_YEAR]
    return min(recent, key=lambda offer: offer.price.amount)


def yearly_loss(card: Accelerator, currency: str = "USD") -> tuple[float, Offer, Offer]:
    """The share of its value that a card lost in each year between two offers, and those two offers.

    From the price at launch to the newest used price: ``1 - (used / launch) ** (1 / years)``.
    Raises CourseError for a card without both.
    """
    own = [offer for offer in offers_for(card) if offer.price.currency == currency]
    used = [offer for offer in own if offer.kind == "used"]
    launch = [offer for offer in own if offer.kind == "launch"]
    if not (used and launch):
        known = ", ".join(
            dict.fromkeys(
                offer.card for offer in offers() if offer.kind == "used" and offer.price.currency == currency
            )
        )
        raise CourseError(
            f"How {card.name} lost value is not known: it takes a price at launch and a used one, "
            f"and in {currency} these cards have both: {known or 'none'}."
        )
    first, last = launch[-1], used[0]
    years = (latest_day(last.day) - latest_day(first.day)).days / _DAYS_A_YEAR
    return 1 - (last.price.amount / first.price.amount) ** (1 / years), first, last
