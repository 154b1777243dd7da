"""Units that cannot be mixed up: what adds, what is refused, and what a product becomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.plan.quantities import Quantity, grams, hours, kilowatt_hours, money, watts, years
from course_lib.units import Money

VALUES = st.floats(-1e6, 1e6, allow_nan=False)


def test_the_guides_example_with_its_units_gives_the_right_sum() -> None:
    depreciation = money(10_000, "CNY") / years(3) * hours(100)
    energy = watts(350) * hours(100) * (money(0.6, "CNY") / kilowatt_hours(1))
    assert (depreciation + energy).amount().amount == pytest.approx(59.0518, abs=1e-4)
    assert str(depreciation) == "38.05 CNY"


def test_the_guides_formula_as_written_is_refused() -> None:
    price, hourly_fee = money(10_000, "CNY"), money(4, "CNY") / hours(1)
    energy = watts(350) * hours(100) * (money(0.6, "CNY") / kilowatt_hours(1))
    with pytest.raises(CourseError, match="CNY/h"):
        price / years(3) + energy
    with pytest.raises(CourseError, match="units differ"):
        energy + hourly_fee * 2


@pytest.mark.parametrize(
    ("quantity", "unit"),
    [
        (money(1, "EUR"), "EUR"),
        (money(1, "EUR") / hours(1), "EUR/h"),
        (money(1, "EUR") / kilowatt_hours(1), "EUR/kWh"),
        (watts(1), "kW"),
        (watts(1) * hours(2), "kWh"),
        (grams(1) / kilowatt_hours(1), "g/kWh"),
        (grams(1) / kilowatt_hours(1) * watts(1000) * hours(3), "g"),
        (hours(2) * hours(2), "h^2"),
        (hours(1) / hours(2), ""),
        (1 / hours(2), "1/h"),
    ],
)
def test_a_product_gets_the_unit_that_it_must_have(quantity: Quantity, unit: str) -> None:
    assert quantity.unit == unit
    assert unit in str(quantity)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: money(1, "EUR") + money(1, "USD"),
        lambda: money(1, "EUR") / money(1, "USD"),
        lambda: hours(1) + watts(1),
        lambda: hours(1) + 1,  # type: ignore[operator]
        lambda: money(1, "EUR") / hours(0),
        lambda: hours(float("nan")),
        lambda: watts("350"),  # type: ignore[arg-type]
        lambda: float(hours(1) * 2),
        (money(1, "EUR") / hours(1)).amount,
        kilowatt_hours(1).amount,
        lambda: hours(2) - money(1, "EUR"),
    ],
)
def test_a_mixture_is_refused(wrong: object) -> None:
    with pytest.raises(CourseError):
        wrong()  # type: ignore[operator]


@given(VALUES, VALUES, st.floats(0.1, 1e3))
def test_arithmetic_is_that_of_numbers(a: float, b: float, c: float) -> None:
    assert (money(a, "CNY") + money(b, "CNY") - money(b, "CNY")).value == pytest.approx(a, abs=1e-6)
    assert (money(a, "CNY") / hours(c) * hours(c)).amount().amount == pytest.approx(a, abs=1e-6)
    assert float(hours(a) / hours(c)) == pytest.approx(a / c)
    assert money(Money(a, "CNY")) == money(a, "CNY")
