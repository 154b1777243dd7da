"""The cost of a job: worked by hand, in limits, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.plan.cost import (
    Market,
    Owned,
    Rented,
    StraightLine,
    best_checkpoint_interval,
    break_even_hours,
    break_even_share,
    cost_of,
    lost_work,
)
from course_lib.units import Money

CARD = Owned(Money(10_000, "CNY"), StraightLine(3), 350, Money(0.6, "CNY"))
FEE = Rented(Money(0.76, "CNY"))


def test_the_guides_example() -> None:
    answer = cost_of(100, owned=CARD)
    assert answer.depreciation.amount == pytest.approx(10_000 / 3 / 365 / 24 * 100)
    assert answer.energy.amount == pytest.approx(21)
    assert answer.total.amount == pytest.approx(59.0518, abs=1e-4)
    assert answer.energy_kwh == pytest.approx(35)


def test_idle_hours_are_paid_by_the_hours_of_use() -> None:
    used_a_tenth = cost_of(100, owned=replace(CARD, utilisation=0.1))
    assert used_a_tenth.depreciation.amount == pytest.approx(380.5175, abs=1e-4)
    assert used_a_tenth.energy.amount == pytest.approx(21)  # only the hours of the job draw power


def test_host_and_site_draw_power_too() -> None:
    answer = cost_of(10, owned=replace(CARD, host_w=150, pue=1.58), carbon_g_per_kwh=582)
    assert answer.energy_kwh == pytest.approx(0.5 * 1.58 * 10)
    assert answer.energy.amount == pytest.approx(0.5 * 1.58 * 10 * 0.6)
    assert answer.carbon_g == pytest.approx(0.5 * 1.58 * 10 * 582)


def test_market_depreciation_loses_a_share_each_year() -> None:
    assert Market(2, 0.2).lost_share() == pytest.approx(1 - 0.8**2)
    assert Market(1, 0.2).lost_share() == pytest.approx(StraightLine(1, residual_share=0.8).lost_share())
    sold = cost_of(8760 * 2, owned=replace(CARD, depreciation=Market(2, 0.2)))
    assert sold.depreciation.amount == pytest.approx(3600)


def test_all_hours_of_its_life_cost_what_was_lost_of_the_price() -> None:
    assert cost_of(3 * 8760, owned=CARD).depreciation.amount == pytest.approx(10_000)
    left = replace(CARD, depreciation=StraightLine(3, residual_share=0.5))
    assert cost_of(3 * 8760, owned=left).depreciation.amount == pytest.approx(5_000)


def test_rent_counts_instances_hours_and_lost_work() -> None:
    assert cost_of(10, rented=Rented(Money(2, "USD"), 3)).cloud.amount == pytest.approx(60)
    assert cost_of(10, rented=Rented(Money(2, "USD"), 3, lost_work=0.1)).cloud.amount == pytest.approx(66)
    both = cost_of(100, owned=CARD, rented=FEE)
    assert both.total.amount == pytest.approx(59.0518 + 76, abs=1e-4)


def test_the_break_even_is_where_both_cost_the_same() -> None:
    hours = break_even_hours(CARD, FEE)
    assert hours == pytest.approx(10_000 / (0.76 - 0.21))
    assert hours is not None
    bought = 10_000 + hours * 0.21
    assert bought == pytest.approx(cost_of(hours, rented=FEE).total.amount)
    assert break_even_share(CARD, FEE) == pytest.approx(hours / (3 * 8760))


def test_no_break_even_where_renting_stays_cheaper() -> None:
    assert break_even_hours(CARD, Rented(Money(0.2, "CNY"))) is None  # less than the electricity
    dear = replace(CARD, price=Money(100_000, "CNY"))
    assert break_even_share(dear, FEE) is None  # not within its life


@given(st.floats(100, 1e5), st.floats(0.5, 10), st.floats(50, 700), st.floats(0.05, 1), st.floats(0.01, 1))
def test_at_the_break_even_share_an_hour_costs_the_fee(
    price: float, life: float, power: float, tariff: float, share: float
) -> None:
    """The other way round: from a utilisation to the fee that equals it, and back."""
    owned = Owned(Money(price, "USD"), StraightLine(life), power, Money(tariff, "USD"), utilisation=share)
    fee = Money(cost_of(1, owned=owned).total.amount, "USD")
    found = break_even_share(owned, Rented(fee))
    assert found == pytest.approx(share, rel=1e-6) or share > 1 - 1e-6


def test_lost_work_grows_with_the_interval_and_has_a_best() -> None:
    assert lost_work(1, 10, restart_h=0.1) == pytest.approx(0.06)
    assert lost_work(2, 10) > lost_work(1, 10)
    best = best_checkpoint_interval(0.02, 10)

    def lost(interval: float) -> float:
        return 0.02 / interval + lost_work(interval, 10, 0)

    assert best == pytest.approx(math.sqrt(0.4))
    assert lost(best) < min(lost(best * 0.8), lost(best * 1.25))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cost_of(-1, owned=CARD),
        lambda: cost_of(math.nan, owned=CARD),
        lambda: cost_of(1),
        lambda: cost_of("1", owned=CARD),  # type: ignore[arg-type]
        lambda: StraightLine(0),
        lambda: StraightLine(-3),
        lambda: StraightLine(3, residual_share=1.2),
        lambda: Market(3, 2),
        lambda: replace(CARD, price=Money(-1, "CNY")),
        lambda: replace(CARD, power_w=-1),
        lambda: replace(CARD, tariff=Money(0.1, "USD")),
        lambda: replace(CARD, pue=0.9),
        lambda: replace(CARD, utilisation=0),
        lambda: replace(CARD, utilisation=1.1),
        lambda: Rented(Money(-1, "USD")),
        lambda: Rented(Money(1, "USD"), -1),
        lambda: Rented(Money(1, "USD"), 1.5),  # type: ignore[arg-type]
        lambda: cost_of(1, owned=CARD, rented=Rented(Money(1, "USD"))),
        lambda: lost_work(1, 0),
        lambda: lost_work(1, 1e-300),
        lambda: best_checkpoint_interval(1e300, 1),
        lambda: cost_of(1e300, owned=CARD),
        lambda: cost_of(10**400, owned=CARD),
        lambda: StraightLine(1e-300),
        lambda: replace(CARD, price=Money(1e300, "CNY")),
        lambda: replace(CARD, utilisation=1e-300),
        lambda: Rented(Money(1, "USD"), 10**20),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(wrong: Any) -> None:
    with pytest.raises(CourseError) as caught:
        wrong()
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 150


def test_it_prints_and_turns_into_plain_data() -> None:
    answer = cost_of(100, owned=CARD, carbon_g_per_kwh=582)
    assert answer.to_json()["total"] == pytest.approx(59.0518, abs=1e-4)
    assert "59.05 CNY" in str(answer)
    assert "59.05 CNY" in answer._repr_html_()
    assert cost_of(0, owned=CARD).to_json()["per_hour"] is None
