"""Advice over all cards: what is in, what is out, what it costs, and the front."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.accelerators import accelerators, find
from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.advise import Advice, advise, pareto_front
from course_lib.plan.batch_size import BatchTraces
from course_lib.plan.job import Assumptions, job_on
from course_lib.plan.memory import plan_memory
from course_lib.plan.speed import predict
from course_lib.plan.step_trace import StepTrace, load_trace
from course_lib.units import Money

CARDS = tuple(
    find(name) for name in ("T4", "RTX 3060", "3090", "4090", "A100 80GB", "H100", "M2", "TPU v4", "2060")
)


@pytest.fixture(scope="module")
def trace() -> StepTrace:
    return load_trace(data_path("traces/resnet50_b32_fp16.json.gz"))


@pytest.fixture(scope="module")
def traces(trace: StepTrace) -> BatchTraces:
    """A saved trace, stretched to other batches as far as bytes and operations go: enough for the advice."""

    def at(batch_size: int) -> StepTrace:
        factor = batch_size / trace.batch_size
        grow = {"activation", "input", "temporary", "gradient_of_activation"}
        blocks = tuple(
            replace(block, nbytes=max(1, int(block.nbytes * factor))) if block.category in grow else block
            for block in trace.blocks
        )
        return replace(trace, batch_size=batch_size, blocks=blocks)

    return BatchTraces(at)


@pytest.fixture(scope="module")
def advice(traces: BatchTraces) -> Advice:
    return advise(traces, batch_size=32, samples=1_281_167, epochs=90, cards=CARDS)


def test_every_card_is_either_possible_or_out_with_a_reason(advice: Advice) -> None:
    assert len(advice.choices) == len(CARDS)
    assert {choice.card.name for choice in advice.out} == {"M2", "TPU v4"}
    assert all("no peak rate" in choice.why_out for choice in advice.out)
    assert len(advice.possible) == len(CARDS) - 2
    hours = [choice.job.hours for choice in advice.possible if choice.job]
    assert hours == sorted(hours)


def test_hours_energy_and_money_follow_from_the_step_time(advice: Advice, trace: StepTrace) -> None:
    card = find("3090")
    choice = next(choice for choice in advice.possible if choice.card is card)
    assert choice.time
    assert choice.job
    assert choice.job.hours == pytest.approx(1_281_167 * 90 / choice.time.samples_per_second / 3600)
    assert choice.job.low < choice.job.hours < choice.job.high
    assert choice.job.energy_kwh == pytest.approx(0.5 * choice.job.hours)
    assert choice.job.own
    assert choice.job.own.depreciation.amount == pytest.approx(704 / (3 * 8760 * 0.25) * choice.job.hours)
    assert choice.job.rent
    assert choice.job.rent.total.amount == pytest.approx(0.25 * choice.job.hours)
    assert choice.job.cheapest == min(
        (choice.job.own.total, choice.job.rent.total), key=lambda money: money.amount
    )


def test_the_front_is_beaten_by_no_card_and_beats_all_others(advice: Advice) -> None:
    front = [(c.job.hours, c.job.cheapest.amount) for c in advice.front if c.job and c.job.cheapest]
    assert front
    assert [money for _, money in front] == sorted((money for _, money in front), reverse=True)
    for choice in advice.possible:
        if choice.job and choice.job.cheapest and not choice.on_front:
            hours, money = choice.job.hours, choice.job.cheapest.amount
            assert any(h <= hours and m <= money for h, m in front)


def test_within_a_budget_and_a_time(advice: Advice) -> None:
    some = advice.within(hours=40, budget=Money(20, "USD"))
    assert 0 < len(some) < len(advice.possible)
    for choice in some:
        assert choice.job
        assert choice.job.hours <= 40
        assert choice.job.cheapest
        assert choice.job.cheapest.amount <= 20


def test_a_small_card_is_timed_at_the_largest_batch_that_fits(traces: BatchTraces) -> None:
    found = advise(traces, batch_size=512, samples=1000, epochs=1, cards=[find("2060"), find("H100")])
    small = next(choice for choice in found.choices if choice.card.name == "RTX 2060")
    large = next(choice for choice in found.choices if choice.card.name == "H100 80GB")
    assert (large.batch_size, large.largest_batch >= 512) == (512, True)
    assert small.batch_size == small.largest_batch < 512
    card = find("2060")
    assert plan_memory(traces.at(small.largest_batch), card).fits
    assert not plan_memory(traces.at(round(small.largest_batch * 1.15)), card).fits


def test_a_card_on_which_nothing_fits_is_out(traces: BatchTraces) -> None:
    tiny = replace(find("2060"), name="tiny", usable_mib=300)
    found = advise(traces, batch_size=8, samples=1000, epochs=1, cards=[tiny])
    assert "not even one sample fits" in found.out[0].why_out


def test_assumptions_change_what_owning_costs(trace: StepTrace) -> None:
    card = find("3090")
    time = predict(trace, card)
    always = job_on(card, time, 1000, 90, Assumptions(utilisation=1.0))
    seldom = job_on(card, time, 1000, 90, Assumptions(utilisation=0.1))
    assert always.own
    assert seldom.own
    assert seldom.own.depreciation.amount == pytest.approx(10 * always.own.depreciation.amount)
    assert always.rent
    assert seldom.rent
    assert always.rent.total == seldom.rent.total
    euros = job_on(card, time, 1000, 90, Assumptions(tariff=Money(0.3, "EUR")))
    assert (euros.own, euros.rent, euros.cheapest, euros.basis) == (None, None, None, "no price is known")


@pytest.mark.parametrize(("samples", "epochs"), [(0, 1), (-1, 1), (1, 0), (1, -2)])
def test_nothing_to_train_is_refused(trace: StepTrace, samples: int, epochs: float) -> None:
    with pytest.raises(CourseError, match="above 0"):
        job_on(find("3090"), predict(trace, find("3090")), samples, epochs)


POINTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=30)


def test_no_card_and_no_batch_are_refused(traces: BatchTraces) -> None:
    with pytest.raises(CourseError, match="There is no card to choose from"):
        advise(traces, batch_size=1, samples=10, epochs=1, cards=())
    with pytest.raises(CourseError, match="The batch size cannot be 0"):
        advise(traces, batch_size=0, samples=10, epochs=1, cards=CARDS)


@given(POINTS)
def test_a_front_is_what_no_point_beats(points: list[tuple[int, int]]) -> None:
    front = pareto_front(points)
    assert front
    assert min(points) in [points[index] for index in front]
    for index, (x, y) in enumerate(points):
        beaten = any(u <= x and v <= y and (u, v) != (x, y) for u, v in points)
        assert (index in front) == (not beaten)


def test_it_prints_and_turns_into_plain_data(advice: Advice) -> None:
    told = json.loads(json.dumps(advice.to_json()))
    assert {choice["card"] for choice in told["choices"]} == {card.name for card in CARDS}
    assert "RTX 3090" in str(advice)
    assert "own, USD" in advice._repr_html_()
    assert len(accelerators()) > len(CARDS)
