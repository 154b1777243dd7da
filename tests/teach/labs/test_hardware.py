"""Labs of lessons 01 and 09: answers that follow from their parts, and settings that are refused."""

from dataclasses import replace

import pytest

from course_lib.accelerators import find
from course_lib.errors import CourseError
from course_lib.plan.memory import plan_memory
from course_lib.plan.prices import to_buy
from course_lib.teach.labs.cost import break_even
from course_lib.teach.labs.hardware import CARDS, price_table, tokens_per_second, which_card
from course_lib.teach.saved_jobs import job_traces


def test_the_table_is_what_its_numbers_say() -> None:
    table = price_table()
    assert len(table.rows) >= 9
    for row in table.rows:
        assert row.hours == pytest.approx(1_281_167 * 90 / row.measured / 3600)
        assert row.price_per_rate == pytest.approx(row.price.amount / row.measured)
        assert 0.6 < row.predicted / row.measured < 1.6  # from the other cards, one software for all
    assert table.median_error < 0.2
    assert table.best("price").card.name == "RTX 3090"
    assert table.best("energy").card.name == "A100 40GB PCIe"
    assert table.best("hours").card.name == "H100 80GB PCIe"
    assert "RTX 3090" in str(table)
    assert "<table>" in table._repr_html_()
    with pytest.raises(CourseError, match="price, energy or hours"):
        table.best("colour")


def test_more_samples_change_the_hours_and_not_the_front() -> None:
    few, many = which_card(samples=10_000), which_card(samples=1_281_167)
    assert [c.card.name for c in few.advice.front] == [c.card.name for c in many.advice.front]
    ratio = many.advice.front[0].job.hours / few.advice.front[0].job.hours  # type: ignore[union-attr]
    assert ratio == pytest.approx(128.1167)


def test_a_budget_lets_some_cards_in() -> None:
    rich, poor = which_card(budget=10_000), which_card(budget=1)
    assert len(rich.affordable) == len(CARDS)
    assert not poor.affordable
    assert "No card does this" in str(poor)
    assert "the fastest is" in str(rich)
    assert "<img" in rich._repr_html_()


def test_a_large_job_makes_small_cards_take_a_smaller_batch() -> None:
    answer = which_card(model="gpt", size="large", batch_size=64)
    batches = {choice.card.name: choice.batch_size for choice in answer.advice.choices}
    assert batches["RTX 3070"] < batches["RTX 3090"] < batches["H200 141GB"] <= 64
    traces = job_traces("gpt", 2048, "fp16")
    for choice in answer.advice.choices:  # the largest power of two that fits
        assert plan_memory(traces.at(choice.batch_size), choice.card).fits
        if choice.batch_size < 64:
            assert choice.batch_size & (choice.batch_size - 1) == 0
            boundless = replace(choice.card, usable_mib=1 << 30)  # where the allocator gives nothing back
            assert plan_memory(traces.at(2 * choice.batch_size), boundless).safe > choice.card.usable_bytes


def test_a_batch_that_is_no_power_of_two_is_kept_where_it_fits() -> None:
    batches = {c.card.name: c.batch_size for c in which_card(batch_size=100).advice.choices}
    assert batches["H200 141GB"] == 100
    assert set(batches.values()) <= {1, 2, 4, 8, 16, 32, 64, 100}


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "vgg"},
        {"size": "huge"},
        {"precision": "int8"},
        {"budget": 0},
        {"batch_size": 0},
        {"samples": 0},
        {"epochs": -1},
        {"epochs": "many"},
        {"samples": 0.5},
        {"samples": 10**400},
        {"batch_size": True},
        {"model": []},
    ],
)
def test_what_the_lab_does_not_know_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(CourseError):
        which_card(**wrong)  # type: ignore[arg-type]


def test_longer_texts_get_slower_without_a_cliff() -> None:
    rates = tokens_per_second("RTX 3090")
    assert rates[128] > rates[512] > rates[2048] > 0.5 * rates[128]


def test_buying_or_renting() -> None:
    answer = break_even()
    assert answer.cheaper == "rent"
    assert break_even(utilisation_percent=90).cheaper == "own"
    assert answer.at_hours == pytest.approx(10_000 / (0.76 - 0.21))
    assert "18,182 hours" in str(answer)
    assert str(break_even(hours=1)).startswith("1 hour at 25% use")
    assert str(break_even(hours=3000)).startswith("3,000 hours at")
    assert "<img" in answer._repr_html_()
    for hours in (1, 3000):  # the length of the job changes the bill, not which is cheaper
        assert break_even(hours=hours).cheaper == "rent"
    with pytest.raises(CourseError, match="utilisation"):
        break_even(utilisation_percent=0)
    with pytest.raises(CourseError, match="price cannot be -1"):
        break_even(price=-1)


def test_every_card_of_the_lab_is_in_the_table_with_a_price_or_a_rent() -> None:
    for name in CARDS:
        assert find(name).name == name
    assert to_buy(find("RTX 4090")) is not None
