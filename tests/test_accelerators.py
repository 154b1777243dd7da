"""The catalogue of cards: what is usable, what each row must bring, and names as people write them."""

import csv
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.accelerators import Accelerator, accelerators, common_accelerators, find, find_accelerator
from course_lib.errors import CourseError
from course_lib.files import data_path

GIB = 2**30


def test_the_table_holds_the_kinds_of_cards_that_the_course_speaks_of() -> None:
    cards = accelerators()
    assert len(cards) >= 70
    assert {card.vendor for card in cards} >= {"NVIDIA", "AMD", "Intel", "Google", "Apple"}
    assert {card.kind for card in cards} == {
        "consumer",
        "laptop",
        "workstation",
        "datacenter",
        "tpu",
        "shared memory",
    }


@pytest.mark.parametrize(
    ("name", "mib"),
    [("T4", 15102), ("RTX 3090", 24268), ("A100 40GB", 40537), ("A10G", 22595), ("H200 141GB", 143073)],
)
def test_what_a_message_told_is_what_a_program_can_have(name: str, mib: int) -> None:
    card = find(name)
    assert card.usable_mib == mib
    assert card.usable_bytes == mib * 2**20
    assert card.memory_gib == mib / 1024


def test_usable_is_less_than_advertised_and_near_it() -> None:
    for card in accelerators():
        if card.kind == "shared memory":  # the computer needs its own part
            assert 0.6 * card.advertised_gb * GIB < card.usable_bytes < 0.8 * card.advertised_gb * GIB
        else:
            assert 0.9 * card.advertised_gb * GIB < card.usable_bytes < card.advertised_gb * GIB, card.name
        assert bool(card.memory_source) == (card.usable_mib is not None), card.name


def test_a_bound_stands_in_for_a_size_that_no_message_tells() -> None:
    told = [card for card in accelerators() if card.usable_mib and card.kind != "shared memory"]
    unknown = Accelerator("test", "", "", "", 24, None, False, "a test")
    assert all(
        card.usable_bytes / card.advertised_gb >= unknown.usable_bytes / unknown.advertised_gb - 1
        for card in told
    )
    assert "at least" in str(unknown)
    assert "at least" not in str(find("RTX 3090"))


def test_every_row_has_its_sources_and_their_date() -> None:
    for card in accelerators():
        assert card.source.startswith("https://"), card.name
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", card.source_date), card.name
        rates = (card.fp32_tflops, card.tf32_tflops, card.fp16_tflops, card.bf16_tflops, card.int8_tops)
        assert any(rates) == card.rates_source.startswith("https://"), card.name
        assert re.fullmatch(r"20\d\d-\d\d", card.launch), card.name


def test_what_is_not_known_is_empty_and_never_zero() -> None:
    with data_path("accelerators.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            assert all(value.strip().lower() not in {"0", "nan", "?", "-", "none"} for value in row.values())


def test_rates_are_dense_and_accumulate_in_fp32() -> None:
    """The traps of published tables: sparse rates, FP16 accumulation, another card's figure."""
    assert find("RTX 4090").fp16_tflops == pytest.approx(165.2)
    assert find("RTX 3090").fp16_tflops == pytest.approx(71.2)
    assert find("A100 40GB").fp16_tflops == 312
    assert find("H100 80GB").fp16_tflops == pytest.approx(989.5)
    assert find("L4").bandwidth_gb_s == pytest.approx(300.1)
    assert find("A10").fp16_tflops == 125
    assert find("A10G").fp16_tflops == 70


def test_rates_follow_from_cores_and_clock() -> None:
    """Peak FP32 of an NVIDIA card is SMs x cores per SM x 2 x boost clock: a wrong cell breaks it."""
    for card in accelerators():
        if card.vendor != "NVIDIA" or not (card.sm_count and card.boost_clock_mhz and card.fp32_tflops):
            continue
        major, minor = (int(part) for part in card.compute_capability.split("."))
        cores = {3: 192, 7: 64}.get(major, 64 if (major, minor) in {(6, 0), (8, 0)} else 128)
        computed = card.sm_count * cores * 2 * card.boost_clock_mhz / 1e6
        assert card.fp32_tflops == pytest.approx(computed, rel=0.01), card.name


def test_names_are_unique_and_found() -> None:
    names = [card.name for card in accelerators()]
    assert len(set(names)) == len(names)
    for card in accelerators():
        assert find_accelerator(card.name) is card
        for alias in card.aliases:
            assert find_accelerator(alias) is card


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("3090", "RTX 3090"),
        ("rtx3090", "RTX 3090"),
        ("RTX3090Ti", "RTX 3090 Ti"),
        ("3090 24GB", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100 16GB"),
        ("Tesla P100-PCIE-16GB", "P100 16GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("NVIDIA H100 PCIe", "H100 80GB PCIe"),
        ("NVIDIA H100 NVL", "H100 94GB NVL"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("h200", "H200 141GB"),
        ("RTX 3060", "RTX 3060 12GB"),
        ("a6000 48g", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("Intel(R) Arc(TM) A770 Graphics", "Arc A770 16GB"),
        ("Apple M1 Max", "M1 Max"),
        ("v5e", "TPU v5e"),
    ],
)
def test_cards_are_found_as_people_and_programs_write_them(written: str, name: str) -> None:
    assert find_accelerator(written).name == name


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("A100", "A100 40GB or A100 80GB"),
        ("3080", "RTX 3080 10GB or RTX 3080 12GB"),
        ("A100 PCIe", "A100 40GB PCIe or A100 80GB PCIe"),
    ],
)
def test_a_name_that_fits_two_cards_is_refused(written: str, options: str) -> None:
    with pytest.raises(CourseError, match=options):
        find_accelerator(written)


@pytest.mark.parametrize(("gib", "name"), [(9.78, "RTX 3080 10GB"), (11.76, "RTX 3080 12GB")])
def test_what_a_program_sees_tells_two_cards_apart(gib: float, name: str) -> None:
    assert find("NVIDIA GeForce RTX 3080", total_bytes=int(gib * GIB)).name == name


@pytest.mark.parametrize(
    "name",
    ["RTX 3091", "rtx 9090", "", "!!!", "3090 12GB", "GeForce RTX 2080 with Max-Q Design", "RTX 6000"],
)
def test_an_unknown_card_is_refused_with_near_names(name: str) -> None:
    with pytest.raises(CourseError, match="not in the table"):
        find_accelerator(name)


@pytest.mark.parametrize("name", ["NVIDIA GeForce ...", "NVIDIA A100-SXM..."])
def test_a_name_that_was_cut_short_is_not_guessed(name: str) -> None:
    with pytest.raises(CourseError, match="cut short"):
        find(name)


def test_no_text_at_all_is_refused() -> None:
    with pytest.raises(CourseError, match="no name"):
        find(3090)  # type: ignore[arg-type]


@given(st.text(max_size=60))
def test_any_text_gives_a_card_or_one_sentence(text: str) -> None:
    try:
        answer = str(find(text))
    except CourseError as error:
        answer = str(error)
    assert len(answer.splitlines()) == 1


def test_the_common_cards_are_a_few_of_all() -> None:
    assert 3 <= len(common_accelerators()) < len(accelerators())
