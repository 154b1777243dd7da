"""The lab of lesson 02: more cards, more or less, as the arithmetic says, at every end of its sliders."""

from itertools import pairwise

import pytest

from course_lib.errors import CourseError
from course_lib.plan.interconnects import interconnects
from course_lib.teach.labs.ddp import COUNTS, lab, scale_out, smallest_worthwhile_batch
from course_lib.teach.measured_scaling import measured_step


def test_a_faster_link_or_more_computing_never_hurts() -> None:
    links = sorted((link for link in interconnects() if not link.network), key=lambda link: link.bandwidth)
    shares = [scale_out(30, 100, link.name).step.efficiency for link in (links[0], links[-1])]
    assert shares[0] < shares[1]
    networks = sorted((link for link in interconnects() if link.network), key=lambda link: link.bandwidth)
    for slower, faster in pairwise(
        scale_out(30, 100, "NVLink 4", n.name, 1024).step.efficiency for n in networks
    ):
        assert slower <= faster + 1e-9
    for less, more in pairwise(scale_out(ms, 300, cards=64).step.efficiency for ms in (1, 10, 100, 1000)):
        assert less < more


def test_one_card_exchanges_nothing() -> None:
    out = scale_out(cards=1)
    assert out.step.efficiency == 1
    assert out.step.exposed == 0
    assert [step.cards for step in out.steps] == list(COUNTS)
    assert str(out).startswith("1 card: ")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"cards": 3}, "1, 2, 4"),
        ({"compute_ms": 0}, "in ms, cannot be 0"),
        ({"compute_ms": float("inf")}, "in ms, cannot be inf"),
        ({"gradient_mib": -1}, "in MiB, cannot be -1"),
        ({"gradient_mib": "x"}, "in MiB, cannot be 'x'"),
        ({"link": "carrier pigeon"}, "carrier pigeon"),
        ({"link": 4}, "interconnect '4' is not in the table; it knows"),
        ({"network": None}, "interconnect 'None' is not in the table"),
    ],
)
def test_settings_that_cannot_be_are_told(setting: dict[str, object], says: str) -> None:
    with pytest.raises(CourseError, match=says):
        scale_out(**setting)  # type: ignore[arg-type]


def test_the_worthwhile_batch_is_smaller_on_a_faster_link_and_may_not_exist() -> None:
    def step_at(size: int) -> object:
        return measured_step(0.001 * size, 100 * 2**20)

    slow = smallest_worthwhile_batch(step_at, "PCIe 3.0 without peer access")  # type: ignore[arg-type]
    fast = smallest_worthwhile_batch(step_at, "NVLink 4")  # type: ignore[arg-type]
    assert slow is not None
    assert fast is not None
    assert fast < slow
    assert smallest_worthwhile_batch(step_at, "PCIe 4.0", batch_sizes=(1,)) is None  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="between 0 and 1"):
        smallest_worthwhile_batch(step_at, "PCIe 4.0", efficiency=1.0)  # type: ignore[arg-type]


def test_the_lab_follows_its_sliders() -> None:
    made = lab()
    before = made._repr_mimebundle_()["text/html"]
    made.controls["network"].value = "Ethernet 1G"
    made.controls["cards"].value = 1024
    after = made._repr_mimebundle_()["text/html"]
    assert before != after
    assert "Chosen: 1,024 cards" in after
    assert made.errors == []
