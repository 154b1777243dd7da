"""What a card holds of its clock and of its bandwidth: power and inline error correction take their share."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.accelerators import accelerators, find_accelerator
from course_lib.plan.roofline import clock_share, data_share, rates_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def ranking() -> Iterator[Any]:
    sys.path.insert(0, str(BENCHMARKS))
    import card_ranking

    yield card_ranking
    sys.path.remove(str(BENCHMARKS))


@given(
    name=st.sampled_from(["T4", "RTX 3090", "L4", "H100 80GB", "A100 40GB PCIe", "RTX 5090"]),
    more=st.floats(1.01, 5.0),
)
def test_more_power_holds_more_of_the_clock(name: str, more: float) -> None:
    card = find_accelerator(name)
    assert card.tdp_w is not None
    fed = replace(card, tdp_w=card.tdp_w * more)
    assert 0 < clock_share(card) < clock_share(fed) <= 1
    assert clock_share(fed) / clock_share(card) <= more**0.5 + 1e-9  # never more than the power pays for


def test_shares_agree_with_published_products() -> None:
    # Large products of 16-bit numbers over the peak; consumer cards have power for all of it.
    for name, share in (("T4", 0.65), ("L4", 0.57), ("L40S", 0.73), ("H100 80GB PCIe", 0.62), ("A40", 0.8)):
        assert clock_share(find_accelerator(name)) == pytest.approx(share, abs=0.05)
    for name in ("RTX 3060 12GB", "RTX 3090", "RTX 4090", "RTX 5090"):
        assert clock_share(find_accelerator(name)) > 0.9


def test_a_throttled_card_computes_less_in_every_format() -> None:
    card = find_accelerator("T4")
    fed = rates_of(replace(card, tdp_w=300.0))
    rates = rates_of(card)
    for precision in ("fp32", "tf32", "fp16", "bf16"):
        assert rates.sustained(precision) < 0.75 * fed.sustained(precision)
        assert rates.peak(precision) == fed.peak(precision)
    assert rates.issue is not None
    assert fed.issue is not None
    assert rates.issue < 0.75 * fed.issue


def test_inline_error_correction_takes_its_share_of_the_bandwidth() -> None:
    for name in ("T4", "A10", "L4", "L40S"):
        card = find_accelerator(name)
        assert card.bandwidth_gb_s is not None
        assert data_share(card) == pytest.approx(15 / 16, abs=0.02)
        assert rates_of(card).bandwidth == pytest.approx(card.bandwidth_gb_s * 1e9 * data_share(card))
    for name in ("A100 40GB", "H100 80GB", "V100 16GB", "RTX 3090", "RTX 6000 Ada"):
        assert data_share(find_accelerator(name)) == 1.0


def test_every_card_keeps_some_clock_and_some_bandwidth() -> None:
    for card in accelerators():
        assert 0.4 < clock_share(card) <= 1
        assert 0.85 < data_share(card) <= 1
        if card.vendor != "NVIDIA":
            assert clock_share(card) == data_share(card) == 1


def test_a_ranking_is_judged_by_its_order_and_not_by_its_unit(ranking: Any) -> None:
    measured = {("job",): {"A": 100.0, "B": 200.0, "C": 400.0}}
    right = ranking.figures(measured, {("job",): {"A": 1.0, "B": 2.0, "C": 4.0}})
    assert right["pairs"] == 3
    assert right["pairs_wrong"] == 0
    assert right["rank_correlation"] == pytest.approx(1)
    assert right["mean_error"] == pytest.approx(0)
    wrong = ranking.figures(measured, {("job",): {"A": 2.0, "B": 1.0, "C": 4.0}})
    assert wrong["pairs_wrong"] == pytest.approx(1 / 3)
    assert wrong["rank_correlation"] == pytest.approx(0.5)
    draw = ranking.figures({("job",): {"A": 100.0, "B": 102.0}}, {("job",): {"A": 2.0, "B": 1.0}})
    assert draw["pairs"] == 0


def test_rows_of_the_published_table_are_recognised(ranking: Any) -> None:
    card = ranking.card_of("NVIDIA GeForce RTX 3090")
    assert card is not None
    assert card.name == "RTX 3090"
    assert ranking.card_of("Apple M4 GPU") is None
    assert ranking.card_of("V100-SXM3-32GB (DGX-2)") is not None
    job = ranking.job_of("ResNet-50 CIFAR-size 32x32")
    assert job is not None
    assert job.size == 32
    assert ranking.job_of("NCF (PyTorch)") is None
    assert ranking.precision_of("FP16 mixed (AMP)") == "fp16"
    assert ranking.precision_of("FP32 (TF32 on Ampere)") == "tf32"
