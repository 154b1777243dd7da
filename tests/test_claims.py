"""Does the table hold all that the guide says, with the guide's own numbers and formulas?"""

import re

import pytest

from course_lib.claims import CLAIMS, claim
from course_lib.errors import CourseError

RULES = {
    "start": ["compute", "memory", "idle", "causes"],
    "hardware": ["table", "cv", "nlp"],
    "ddp": ["template", "backend"],
    "precision": ["recipe"],
    "loading": ["workers"],
    "accumulation": ["recipe"],
    "oom": ["batch", "checkpoint", "cache", "slim", "monitor"],
    "health": ["util", "balance", "comm"],
    "curves": ["ideal", "slow", "plateau"],
    "cost": ["formula", "example"],
    "capstone": ["pipeline", "single", "small"],
}  # word of the lesson -> what the guide says there


def test_every_rule_of_the_guide_has_its_row() -> None:
    assert sorted(known.id for known in CLAIMS) == sorted(
        f"{word}.{rule}" for word, rules in RULES.items() for rule in rules
    )


def test_every_lesson_tests_a_claim_and_every_claim_has_a_lesson() -> None:
    assert {lesson for known in CLAIMS for lesson in known.lessons} == RULES.keys()
    assert all(known.lessons for known in CLAIMS)


def test_statements_are_sentences() -> None:
    assert all(re.fullmatch(r"[A-Z0-9].*\.", known.statement) for known in CLAIMS)


@pytest.mark.parametrize(("cores", "gpus", "workers"), [(8, 2, 8), (8, 1, 4), (4, 2, 4), (16, 0, 0)])
def test_workers_as_the_guide_counts_them(cores: int, gpus: int, workers: int) -> None:
    formula = claim("loading.workers").formula
    assert formula is not None
    assert formula(cores, gpus) == workers


def test_the_guides_batch_for_24_gb_is_6() -> None:
    formula = claim("oom.batch").formula
    assert formula is not None
    assert formula(24) == 6


def test_the_global_batch() -> None:
    formula = claim("accumulation.recipe").formula
    assert formula is not None
    assert formula(32, 4) == 128


@pytest.mark.parametrize(
    ("claim_id", "size", "card"),
    [
        ("hardware.cv", 99_999, "RTX 3060"),
        ("hardware.cv", 100_000, "RTX 3090"),
        ("hardware.cv", 1_000_000, "RTX 3090"),
        ("hardware.cv", 1_000_001, "cloud TPU"),
        ("hardware.nlp", 511, "RTX 3090"),
        ("hardware.nlp", 512, "cloud TPU"),
    ],
)
def test_the_guide_chooses_hardware_by_the_data(claim_id: str, size: int, card: str) -> None:
    formula = claim(claim_id).formula
    assert formula is not None
    assert formula(size) == card


def test_the_cost_formula_adds_three_terms() -> None:
    formula = claim("cost.formula").formula
    assert formula is not None
    total = formula(
        price=10_000, depreciation=1000, power=0.35, tariff=0.6, hours=100, cloud_fee=2, instances=3
    )
    assert total == pytest.approx(10 + 21 + 6)


def test_the_guides_example_as_written_does_not_give_the_total_it_states() -> None:
    example = claim("cost.example")
    assert example.formula is not None
    inputs = [example.figure(name).value for name in ("price", "years", "power", "tariff", "hours")]
    as_written = example.formula(*inputs)
    assert as_written == pytest.approx(913.24 + 21, abs=0.01)
    stated = [example.figure(f"stated_{name}").value for name in ("depreciation", "electricity", "total")]
    assert stated[0] + stated[1] == pytest.approx(stated[2])
    assert as_written != pytest.approx(stated[2], rel=0.01)


@pytest.mark.parametrize(
    ("claim_id", "figure", "value", "unit"),
    [
        ("start.compute", "vgg16", 3, "d"),
        ("start.idle", "utilisation", 30, "%"),
        ("health.util", "utilisation", 60, "%"),
        ("health.balance", "difference", 15, "%"),
        ("health.comm", "communication", 20, "%"),
        ("curves.ideal", "fluctuation", 10, "%"),
        ("curves.slow", "fall", 0.01, "loss/day"),
        ("curves.plateau", "patience", 3, "epochs"),
        ("capstone.pipeline", "share", 80, "%"),
        ("capstone.single", "batch_size", 256, "examples"),
    ],
)
def test_thresholds_are_the_guides_and_stand_in_its_sentence(
    claim_id: str, figure: str, value: float, unit: str
) -> None:
    found = claim(claim_id).figure(figure)
    assert (found.value, found.unit) == (value, unit)
    assert f"{value:g}" in claim(claim_id).statement


def test_an_unknown_id_is_answered_with_the_near_ones() -> None:
    with pytest.raises(CourseError, match=r"did you mean loading\.workers"):
        claim("loading.worker")


def test_an_id_far_from_all_is_answered_with_the_list() -> None:
    with pytest.raises(CourseError, match=r"the claims are start\.compute, .*capstone\.small"):
        claim("zzz")


def test_an_unknown_figure_is_answered_with_the_known_ones() -> None:
    with pytest.raises(CourseError, match="its figures are: utilisation"):
        claim("health.util").figure("use")
    with pytest.raises(CourseError, match="its figures are: none"):
        claim("oom.cache").figure("use")
