"""The catalogue of cards: what is usable, and names as people write them."""

import pytest

from course_lib.accelerators import accelerators, common_accelerators, find_accelerator
from course_lib.errors import CourseError


def test_usable_is_less_than_advertised_and_near_it() -> None:
    for card in accelerators():
        advertised_mib = card.advertised_gb * 1024
        assert 0.9 * advertised_mib < card.usable_mib < advertised_mib, card.name
        assert card.source
        assert card.usable_bytes == card.usable_mib * 2**20


def test_names_are_unique_and_found() -> None:
    names = [card.name for card in accelerators()]
    assert len(set(names)) == len(names)
    for card in accelerators():
        assert find_accelerator(card.name) is card


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("rtx3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-80GB", "A100 80GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("h200", "H200 141GB"),
        ("RTX 3060", "RTX 3060 12GB"),
    ],
)
def test_cards_are_found_as_people_write_them(written: str, name: str) -> None:
    assert find_accelerator(written).name == name


def test_a_name_that_fits_two_cards_is_refused() -> None:
    with pytest.raises(CourseError, match="A100 40GB or A100 80GB"):
        find_accelerator("A100")


@pytest.mark.parametrize("name", ["RTX 3091", "rtx 9090", "", "!!!"])
def test_an_unknown_card_is_refused_with_near_names(name: str) -> None:
    with pytest.raises(CourseError, match="not in the table"):
        find_accelerator(name)


def test_the_common_cards_are_a_few_of_all() -> None:
    assert 3 <= len(common_accelerators()) < len(accelerators())
