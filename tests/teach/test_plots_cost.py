"""The pictures of lessons 01 and 09: what they say in words, what they refuse, labels that stay apart."""

from dataclasses import replace

import pytest
from laid_out import assert_laid_out

from course_lib.accelerators import find
from course_lib.errors import CourseError
from course_lib.plan.cost import Market, Owned, Rented, StraightLine, cost_of
from course_lib.plan.prices import offers_for
from course_lib.teach.labs.cost import break_even
from course_lib.teach.labs.hardware import price_table, which_card
from course_lib.teach.plots_cost import plot_break_even, plot_hour, plot_value
from course_lib.teach.plots_front import plot_front
from course_lib.teach.plots_hardware import (
    Operation,
    plot_hours_by_images,
    plot_prices,
    plot_roofline,
)
from course_lib.units import Money

OWN = Owned(Money(10_000, "CNY"), StraightLine(3), 350, Money(0.6, "CNY"))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({}, "cross at 18,182 hours"),
        ({"price": 100_000, "utilisation_percent": 1}, "do not cross"),
        ({"price": 1000, "rent": 30, "utilisation_percent": 100, "years": 6}, "cross at 34 hours"),
        ({"price": 15_000}, "do not cross"),
        ({"rent": 0.1}, "do not cross"),
        ({"price": 1000, "rent": 0.22, "tariff": 0.6, "years": 1}, "do not cross"),
        ({"tariff": 3.0, "rent": 16}, "cross at"),
    ],
)
def test_buying_against_renting_at_all_ends_of_the_sliders(setting: dict[str, float], says: str) -> None:
    answer = break_even(**setting)  # type: ignore[arg-type]
    picture = plot_break_even(answer.owned, answer.rented)
    assert_laid_out(picture)
    assert says in picture.alt


def test_an_hour_in_parts() -> None:
    costs = {
        "all the time": cost_of(100, owned=OWN),
        "a quarter of the time": cost_of(100, owned=replace(OWN, utilisation=0.25)),
        "rented": cost_of(100, rented=Rented(Money(0.76, "CNY"))),
    }
    picture = plot_hour(costs)
    assert_laid_out(picture)
    assert "all the time: 0.591 CNY an hour (depreciation 0.381, electricity 0.21)" in picture.alt
    assert "rented: 0.76 CNY an hour (rent 0.76)" in picture.alt


def test_what_is_no_hour_is_not_drawn() -> None:
    dollars = cost_of(1, rented=Rented(Money(1, "USD")))
    for costs in ({}, {"none": cost_of(0, owned=OWN)}, {"a": dollars, "b": cost_of(1, owned=OWN)}):
        with pytest.raises(CourseError):
            plot_hour(costs)


def test_a_cards_value_over_time() -> None:
    dollars = [o for o in offers_for(find("3090")) if o.price.currency == "USD" and o.per == "card"]
    picture = plot_value(dollars, StraightLine(3), Market(3, 0.22))
    assert_laid_out(picture)
    assert "1,499 after 0.0 years" in picture.alt
    with pytest.raises(CourseError, match="two or more"):
        plot_value(dollars[:1], StraightLine(3), Market(3, 0.22))


def test_a_roof_with_operations_under_and_over_it() -> None:
    ops = [
        Operation("large product", 2 * 512**3, 12 * 512**2, 0.003),
        Operation("thin product", 2 * 512 * 512 * 8, 4 * (512 * 512 + 16 * 512), 1e-4),
        Operation("ReLU", 2**23, 2**26, 0.01),
        Operation("sum", 2**23, 2**25, 0.004),
    ]
    picture = plot_roofline(9e10, 9e9, ops)
    assert_laid_out(picture)
    assert "large product: 85.3 FLOP a byte" in picture.alt
    with pytest.raises(CourseError):
        plot_roofline(9e10, 9e9, [])


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"model": "gpt", "size": "large", "precision": "fp32", "batch_size": 512, "samples": 20_000_000,
         "epochs": 300, "budget": 10_000},
        {"model": "vit_b_16", "size": "small", "batch_size": 8, "samples": 10_000, "epochs": 1, "budget": 1},
        {"budget": 1},
        {"budget": 10_000},
    ],
)  # fmt: skip
def test_hours_against_money_at_the_ends_of_the_controls(setting: dict[str, object]) -> None:
    answer = which_card(**setting)  # type: ignore[arg-type]
    picture = plot_front(answer.advice, budget=answer.budget)
    assert_laid_out(picture)
    for choice in answer.advice.front:
        assert f"{choice.card.name} " in picture.alt
    assert "on the front" in picture.alt


def test_the_table_of_prices_is_drawn_in_one_order() -> None:
    picture = plot_prices(price_table())
    assert_laid_out(picture)
    assert picture.alt.index("RTX 3090") < picture.alt.index("H100")


def test_hours_by_images_are_straight_lines() -> None:
    each = {"RTX 3060": 1 / 350, "RTX 3090": 1 / 900, "RTX 4090": 1 / 1300, "A100 80GB": 1 / 2400}
    picture = plot_hours_by_images(each, 90, (100_000, 1_000_000), title="Hours by images")
    assert_laid_out(picture)
    assert "RTX 3090 278 hours for 10 million" in picture.alt
    with pytest.raises(CourseError):
        plot_hours_by_images({}, 90, (), title="nothing")
