"""Lesson 09, cost: what does an hour cost, when does owning pay, and what is a spot machine worth?

The learner says which term of the guide's sum is wrong, and writes:

    def cost_of_an_hour(price, years, utilisation, power_w, tariff) -> float
        money for one hour of use of a card of one's own: depreciation and electricity
        price: money; years: until it is written off; utilisation: share of its hours in which it
        computes, 0 to 1; power_w: watts; tariff: money for a kWh

    def break_even(price, fee, power_cost) -> float
        hours of use from which on owning is cheaper; fee and power_cost: money for an hour

    def cheaper(hours, price, years, utilisation, power_cost, fee) -> str
        "own" or "rent" for a job of so many hours, on a card that also has other work

    def spot_cost(hours, fee, spot_fee, lost_work) -> float
        what a job of so many useful hours costs on the cheaper of the two machines

The lesson hands them in as

    check("cost.slip", "b")
    check("cost.hour", cost_of_an_hour)
    check("cost.break_even", break_even)
    check("cost.own_or_rent", cheaper)
    check("cost.spot", spot_cost)
"""

from __future__ import annotations

import math

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import Choice, NumericFunction, WordFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer

HOURS_A_YEAR = 8760

SLIP = Exercise(
    id="cost.slip",
    title="Which term is wrong?",
    difficulty=2,
    minutes=5,
    hints=(
        "Say the unit of each number aloud: CNY, years, days, kW, CNY for a kWh, hours.",
        "10000 / 3 / 365: for how long does this much money pay?",
        "One number must be multiplied by what it is counted for. Is it counted for an hour or for a day?",
    ),
    checker=Choice(
        right="b",
        wrong={
            "a": "350 W are 0.35 kW, and 0.35 kW for 100 hours are 35 kWh. What do 35 kWh cost at 0.6 each?",
            "c": "The two terms are both money. Adding money to money is fine. Is each the right amount?",
            "d": "Work it out on paper: is 10000 / 3 / 365 times 100 really 9.13?",
        },
    ),
    right_answers=("b", " B "),
    wrong_answers=(WrongAnswer("depreciation", "not among the options"), WrongAnswer(1, "in quotes")),
)


def cost_of_an_hour(price: float, years: float, utilisation: float, power_w: float, tariff: float) -> float:
    """Depreciation over the hours of use, and the electricity of one hour."""
    return price / (years * HOURS_A_YEAR * utilisation) + power_w / 1000 * tariff


def _hour_in_steps(price: float, years: float, utilisation: float, power_w: float, tariff: float) -> float:
    used_hours = years * 365 * 24 * utilisation
    depreciation = price / used_hours
    kwh = power_w / 1000
    return depreciation + kwh * tariff


_DAYS = "You have the depreciation of a day. How many hours has a day?"

HOUR = Exercise(
    id="cost.hour",
    title="What does an hour of use cost?",
    difficulty=2,
    minutes=6,
    hints=(
        "How many hours are there in all the years? In how many of them does the card compute?",
        "The whole price has to be paid by the hours in which it computes.",
        "A kilowatt is a thousand watts. A card of 1,000 W uses one kWh in an hour.",
    ),
    checker=NumericFunction(
        reference=cost_of_an_hour,
        cases=(
            Case({"price": 10000.0, "years": 3.0, "utilisation": 1.0, "power_w": 350.0, "tariff": 0.6}),
            Case(
                {"price": 10000.0, "years": 3.0, "utilisation": 0.25, "power_w": 350.0, "tariff": 0.6},
                "It computes in a quarter of its hours only. Who pays for the others?",
            ),
            Case({"price": 704.0, "years": 2.0, "utilisation": 0.1, "power_w": 300.0, "tariff": 0.2}),
            Case(
                {"price": 0.0, "years": 3.0, "utilisation": 0.5, "power_w": 70.0, "tariff": 0.4},
                "This card was a present.",
            ),
        ),
        diagnoses=(
            Diagnosis(lambda p, y, u, w, t: p / y / 365 + w / 1000 * t, _DAYS),
            Diagnosis(lambda p, y, u, w, t: p / (y * 365 * u) + w / 1000 * t, _DAYS),
            Diagnosis(
                lambda p, y, u, w, t: p / (y * HOURS_A_YEAR) + w / 1000 * t,
                "The utilisation makes no difference to your answer. An idle card was paid for as well.",
            ),
            Diagnosis(
                lambda p, y, u, w, t: p / (y * HOURS_A_YEAR) * u + w / 1000 * t,
                "With less use your hour gets cheaper. Should a card that is seldom used be cheap?",
            ),
            Diagnosis(
                lambda p, y, u, w, t: p / (y * HOURS_A_YEAR * u) + w * t,
                "You pay for watts as if they were kilowatts.",
            ),
            Diagnosis(
                lambda p, y, u, w, t: p / (y * HOURS_A_YEAR * u) + w / 1000 * t * u,
                "In an hour of use the card draws its power for the whole hour.",
            ),
            Diagnosis(
                lambda p, y, u, w, t: (p / (y * HOURS_A_YEAR) + w / 1000 * t) / u,
                "Idle hours have no electricity in them. Which of the two terms has to pay for them?",
            ),
            Diagnosis(
                lambda p, y, u, w, t: p / (y * HOURS_A_YEAR * u),
                "That is the depreciation. The card also needs electricity.",
            ),
            Diagnosis(
                lambda p, y, u, w, t: w / 1000 * t, "That is the electricity. What about the card itself?"
            ),
        ),
    ),
    right_answers=(cost_of_an_hour, _hour_in_steps),
    wrong_answers=(
        WrongAnswer(lambda p, y, u, w, t: p / (y * 12 * u) + w / 1000 * t, "too large"),
        WrongAnswer(lambda p, y, u, w, t: round(cost_of_an_hour(p, y, u, w, t), 3), "rounded"),
        WrongAnswer(lambda p, y, u, w, t: print(cost_of_an_hour(p, y, u, w, t)), "a `return` missing"),
        WrongAnswer(0.59, "without parentheses"),
    ),
)


def break_even(price: float, fee: float, power_cost: float) -> float:
    """The hours in which the saved fee has paid the price."""
    return price / (fee - power_cost)


def _by_lines(price: float, fee: float, power_cost: float) -> float:
    # price + power_cost * h = fee * h
    saved_each_hour = fee - power_cost
    return price / saved_each_hour


BREAK_EVEN = Exercise(
    id="cost.break_even",
    title="From which hour on does owning pay?",
    difficulty=2,
    minutes=6,
    hints=(
        "Write down what both have cost after h hours. Owning: a sum at the start, and something each hour.",
        "Where the two lines cross, both sums are equal. Solve for h.",
        "Each hour on your own card saves the fee and costs its electricity. How many of them pay the price?",
    ),
    checker=NumericFunction(
        reference=break_even,
        cases=(
            Case({"price": 10000.0, "fee": 0.76, "power_cost": 0.21}),
            Case({"price": 700.0, "fee": 0.25, "power_cost": 0.05}),
            Case({"price": 1600.0, "fee": 0.4, "power_cost": 0.0}, "The electricity is free here."),
            Case({"price": 30000.0, "fee": 2.0, "power_cost": 0.1}),
        ),
        diagnoses=(
            Diagnosis(
                lambda price, fee, power: price / fee,
                "Your own card draws electricity too. What does an hour on it really save?",
            ),
            Diagnosis(
                lambda price, fee, power: price / (fee + power),
                "The electricity makes owning dearer, so it pays later. In your answer it pays sooner.",
            ),
            Diagnosis(
                lambda price, fee, power: price / (power - fee),
                "Hours below zero: which of the two do you save each hour, and which do you pay?",
            ),
            Diagnosis(
                lambda price, fee, power: (fee - power) / price,
                "Upside down: a higher price should need more hours.",
            ),
            Diagnosis(
                lambda price, fee, power: price / fee + power,
                "Money cannot be added to hours: mind the units.",
            ),
            Diagnosis(
                lambda price, fee, power: price / (fee - power) / 24, "Those are days. Hours are wanted."
            ),
            Diagnosis(
                lambda price, fee, power: price / power - price / fee if power else 0.0,
                "You take the difference of two times. What is equal where the lines cross is the money.",
            ),
        ),
    ),
    right_answers=(break_even, _by_lines, lambda price, fee, power: -price / (power - fee)),
    wrong_answers=(
        WrongAnswer(lambda price, fee, power: math.ceil(price / (fee - power)), "rounded"),
        WrongAnswer(lambda price, fee, power: price, "too"),
        WrongAnswer(lambda price, fee, power: price / (power - fee), "below zero"),
        WrongAnswer(lambda price, fee, power: print(price / (fee - power)), "a `return` missing"),
        WrongAnswer(18182, "without parentheses"),
    ),
)

OWN, RENT = "own", "rent"


def cheaper(  # noqa: PLR0917
    hours: float, price: float, years: float, utilisation: float, power_cost: float, fee: float
) -> frozenset[str]:
    """Whether an hour of use of an own card costs less than the fee; the hours of the job cancel out."""
    own = price / (years * HOURS_A_YEAR * utilisation) + power_cost
    if math.isclose(own, fee):
        return frozenset((OWN, RENT))
    return frozenset((OWN if own < fee else RENT,))


def _right_by_totals(  # noqa: PLR0917
    hours: float, price: float, years: float, utilisation: float, power_cost: float, fee: float
) -> str:
    own = hours * (price / (years * 365 * 24 * utilisation) + power_cost)
    return "own" if own < hours * fee else "rent"


def _right_by_share(  # noqa: PLR0917
    hours: float, price: float, years: float, utilisation: float, power_cost: float, fee: float
) -> str:
    if fee <= power_cost:
        return "rent"
    break_even_hours = price / (fee - power_cost)
    return "own" if utilisation * years * 8760 > break_even_hours else "rent"


def _job(*numbers: float, remark: str = "") -> Case:
    names = ("hours", "price", "years", "utilisation", "power_cost", "fee")
    return Case(dict(zip(names, numbers, strict=True)), remark)


OWN_OR_RENT = Exercise(
    id="cost.own_or_rent",
    title="Own or rent?",
    difficulty=3,
    minutes=8,
    hints=(
        "Compare what one hour costs, on your own card and on a rented one.",
        "This job need not pay the whole price: other jobs use the card too. In some hours nobody does.",
        "You have written the cost of an hour of use already. Compare it with the fee.",
    ),
    checker=WordFunction(
        reference=cheaper,
        words=(OWN, RENT),
        cases=(
            _job(100.0, 10000.0, 3.0, 0.9, 0.21, 0.76),
            _job(100.0, 10000.0, 3.0, 0.2, 0.21, 0.76, remark="The card stands idle for most of its life."),
            _job(5.0, 700.0, 3.0, 0.5, 0.05, 0.25, remark="A short job on a card that other jobs share."),
            _job(
                5000.0,
                700.0,
                3.0,
                0.5,
                0.3,
                0.25,
                remark="Here the electricity alone costs more than the fee.",
            ),
            _job(5000.0, 700.0, 3.0, 0.5, 0.05, 0.25),
            _job(20000.0, 40000.0, 5.0, 0.6, 0.2, 1.0),
        ),
        diagnoses=(
            Diagnosis(
                lambda h, p, y, u, w, f: OWN if p + h * w < h * f else RENT,
                "You let this one job pay for the whole card. What do the other jobs pay?",
            ),
            Diagnosis(
                lambda h, p, y, u, w, f: OWN if p < h * f else RENT,
                "You let this one job pay for the whole card, and leave out its electricity.",
            ),
            Diagnosis(
                lambda h, p, y, u, w, f: OWN if p / (y * HOURS_A_YEAR) + w < f else RENT,
                "You share the price among all hours, the idle ones too. Which hours can pay?",
            ),
            Diagnosis(
                lambda h, p, y, u, w, f: OWN if w < f else RENT, "You leave out the price of the card."
            ),
            Diagnosis(lambda h, p, y, u, w, f: OWN, "You always buy."),
            Diagnosis(lambda h, p, y, u, w, f: RENT, "You always rent."),
        ),
        other_words=dict.fromkeys(("buy", "cloud"), 'The words are "own" and "rent".'),
    ),
    right_answers=(_right_by_totals, _right_by_share),
    wrong_answers=(
        WrongAnswer(lambda h, p, y, u, w, f: _right_by_totals(h, p, y, u, w, f) == OWN, "a word is wanted"),
        WrongAnswer(lambda h, p, y, u, w, f: OWN if h > 1000 else RENT, "that is not it"),
        WrongAnswer(lambda h, p, y, u, w, f: OWN if p < h * f else RENT, "leave out its electricity"),
        WrongAnswer(lambda h, p, y, u, w, f: "buy", 'The words are "own" and "rent"'),
        WrongAnswer(lambda h, p, y, u, w, f: print(OWN), "a `return` missing"),
        WrongAnswer("own", "in text"),
    ),
)


def spot_cost(hours: float, fee: float, spot_fee: float, lost_work: float) -> float:
    """The lower of the steady machine and of the spot machine with what it does twice."""
    return min(hours * fee, hours * (1 + lost_work) * spot_fee)


def _spot_with_if(hours: float, fee: float, spot_fee: float, lost_work: float) -> float:
    steady = fee * hours
    spot = spot_fee * (hours + hours * lost_work)
    if spot < steady:
        return spot
    return steady


_PAID_AGAIN = "The work that is lost is done again, and paid again. Where is it?"
_OF_USEFUL_HOURS = "You take the share of all hours that are paid. It is the share of the useful ones."
_NO_HOURS = "You add a share to hours. How many hours is that share of the job?"

SPOT = Exercise(
    id="cost.spot",
    title="What a spot machine is worth",
    difficulty=2,
    minutes=5,
    hints=(
        "lost_work = 0.1 means: for each 10 useful hours, 1 more is computed twice, and paid.",
        "How many hours does the spot machine run until all useful hours are done?",
        "Two amounts; the learner who may choose takes the smaller one.",
    ),
    checker=NumericFunction(
        reference=spot_cost,
        cases=(
            Case({"hours": 100.0, "fee": 3.0, "spot_fee": 1.0, "lost_work": 0.1}),
            Case({"hours": 24.0, "fee": 2.0, "spot_fee": 1.5, "lost_work": 0.05}),
            Case(
                {"hours": 100.0, "fee": 1.0, "spot_fee": 0.8, "lost_work": 0.5},
                "This spot machine is taken away so often that it is no bargain.",
            ),
            Case({"hours": 10.0, "fee": 1.0, "spot_fee": 0.3, "lost_work": 0.0}),
            Case(
                {"hours": 40.0, "fee": 1.0, "spot_fee": 1.2, "lost_work": 0.1},
                "Many people want this machine today: its spot fee is above the steady one.",
            ),
        ),
        diagnoses=(
            Diagnosis(
                lambda h, f, s, lost: h * (1 + lost) * s,
                "You always take the spot machine. Is it always the cheaper one?",
            ),
            Diagnosis(lambda h, f, s, lost: min(h * f, h * s), _PAID_AGAIN),
            Diagnosis(lambda h, f, s, lost: h * s, _PAID_AGAIN),
            Diagnosis(lambda h, f, s, lost: min(h * f, h / (1 - lost) * s), _OF_USEFUL_HOURS),
            Diagnosis(lambda h, f, s, lost: h / (1 - lost) * s, _OF_USEFUL_HOURS),
            Diagnosis(lambda h, f, s, lost: (h + lost) * s, _NO_HOURS),
            Diagnosis(lambda h, f, s, lost: min(h * f, (h + lost) * s), _NO_HOURS),
            Diagnosis(
                lambda h, f, s, lost: min(h * f, h * (1 - lost) * s),
                "Lost work makes the job longer. In your answer it makes it shorter.",
            ),
            Diagnosis(
                lambda h, f, s, lost: min(h * f * (1 + lost), h * (1 + lost) * s),
                "Only the spot machine is taken away. The steady one loses no work.",
            ),
            Diagnosis(lambda h, f, s, lost: h * f, "You never take the spot machine."),
            Diagnosis(lambda h, f, s, lost: max(h * f, h * (1 + lost) * s), "That is the dearer of the two."),
        ),
    ),
    right_answers=(spot_cost, _spot_with_if),
    wrong_answers=(
        WrongAnswer(lambda h, f, s, lost: min(f, (1 + lost) * s), "too small"),
        WrongAnswer(lambda h, f, s, lost: min(h * f, h / (1 - lost) * s), "the share of the useful ones"),
        WrongAnswer(lambda h, f, s, lost: h / (1 - lost) * s, "the share of the useful ones"),
        WrongAnswer(lambda h, f, s, lost: h * s, "paid again"),
        WrongAnswer(lambda h, f, s, lost: (h + lost) * s, "add a share to hours"),
        WrongAnswer(lambda h, f, s, lost: f"{spot_cost(h, f, s, lost)}", "without quotes"),
        WrongAnswer(lambda h, f, s, lost: print(h), "a `return` missing"),
        WrongAnswer(110, "without parentheses"),
    ),
)

EXERCISES = (SLIP, HOUR, BREAK_EVEN, OWN_OR_RENT, SPOT)
