"""Prices and electricity: what is chosen, what is called old, and what is refused."""

from datetime import date

import pytest

from course_lib.accelerators import accelerators, find
from course_lib.errors import CourseError
from course_lib.plan.electricity import carbon_intensities, carbon_intensity, tariff, tariffs
from course_lib.plan.prices import Offer, latest_day, offers, offers_for, to_buy, to_rent, yearly_loss
from course_lib.units import Money


@pytest.mark.parametrize(
    ("day", "last"),
    [
        ("2023", date(2023, 12, 31)),
        ("2023-10", date(2023, 10, 31)),
        ("2024-02", date(2024, 2, 29)),
        ("2023-12", date(2023, 12, 31)),
        ("2023-08-16", date(2023, 8, 16)),
    ],
)
def test_a_date_without_its_day_counts_from_its_end(day: str, last: date) -> None:
    assert latest_day(day) == last


def test_an_offer_older_than_a_year_says_so() -> None:
    offer = Offer("T4", "spot", Money(0.16, "USD"), "2023-08-16", "AWS", "a test", "")
    assert not offer.is_old(date(2024, 8, 15))
    assert offer.is_old(date(2024, 8, 18))
    assert offer.age_years(date(2023, 1, 1)) == 0
    assert "older than a year" in str(offer)


def test_every_offer_is_of_a_card_in_the_catalogue_and_makes_sense() -> None:
    names = {card.name for card in accelerators()}
    for offer in offers():
        assert offer.card in names
        assert offer.kind in {"launch", "new", "used", "on demand", "spot"}
        low, high = (0.01, 100) if offer.per == "hour" else (50, 400_000)
        assert low < offer.price.amount < high, offer
    assert len({offer.card for offer in offers()}) >= 50


def test_spot_is_cheaper_than_the_same_machine_on_demand() -> None:
    for spot in (offer for offer in offers() if offer.kind == "spot"):
        same = [
            offer
            for offer in offers_for(find(spot.card))
            if (offer.kind, offer.seller, offer.day) == ("on demand", spot.seller, spot.day)
        ]
        assert same
        assert spot.price.amount < same[0].price.amount


def test_the_newest_street_price_stands_before_the_list_price() -> None:
    offer = to_buy(find("3090"))
    assert offer is not None
    assert (offer.kind, offer.day) == ("used", "2023-10")
    listed = to_buy(find("RTX 5090"))
    assert listed is not None
    assert listed.kind == "launch"
    assert to_buy(find("TPU v5e")) is None
    assert to_buy(find("RTX 3090"), "EUR") is None


def test_the_cheapest_recent_rent_is_taken() -> None:
    offer = to_rent(find("H100 80GB"))
    assert offer is not None
    assert offer.price.amount == min(
        o.price.amount for o in offers_for(find("H100 80GB")) if o.kind == "on demand" and o.day >= "2025"
    )
    assert to_rent(find("RTX 3090"), "spot") is None
    assert to_rent(find("GTX 1080")) is None


def test_a_yearly_loss_comes_from_two_offers() -> None:
    loss, first, last = yearly_loss(find("RTX 3090"))
    assert (first.kind, last.kind) == ("launch", "used")
    assert first.price.amount * (1 - loss) ** (
        (latest_day(last.day) - latest_day(first.day)).days / 365.25
    ) == pytest.approx(last.price.amount)
    assert 0.1 < loss < 0.4
    with pytest.raises(CourseError, match="not known"):
        yearly_loss(find("H200"))


def test_electricity_by_place() -> None:
    assert tariff("germany").price == Money(0.402, "EUR")
    assert tariff("China", "business").price.currency == "USD"
    assert carbon_intensity("China").grams_per_kwh == 582
    for row in tariffs():
        assert 0.03 < row.price.amount < 1, row
    for intensity in carbon_intensities():
        assert 1 < intensity.grams_per_kwh < 1200, intensity


@pytest.mark.parametrize("place", ["Germny", "", "Atlantis"])
def test_an_unknown_place_is_not_guessed(place: str) -> None:
    with pytest.raises(CourseError, match="The table holds no"):
        tariff(place)
    with pytest.raises(CourseError, match="The table holds no"):
        carbon_intensity(place)
