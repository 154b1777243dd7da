"""Measured ranks as a step and a link of plan/scaling: nothing lost on the way, and shared cores counted."""

import pytest

from course_lib.errors import CourseError
from course_lib.plan.scaling import ring_all_reduce, scale
from course_lib.teach.measured_scaling import measured_link, measured_step
from course_lib.train.ranks.link import LinkBenchmark

LINK = LinkBenchmark(2, "gloo", (4096, 2**20), (1e-4, 1e-3), (1e-4, 1e-3), (1e-4, 2e-3), 5e-5, 1e9)


def test_a_measured_step_keeps_its_time_and_its_bytes() -> None:
    step = measured_step(0.03, 8 * 2**20)
    assert step.seconds == pytest.approx(step.forward + step.backward + step.optimizer)
    assert sum(size for _, size in step.gradients) == 8 * 2**20
    assert [ready for ready, _ in step.gradients] == sorted(ready for ready, _ in step.gradients)
    assert step.gradients[-1][0] == 1


def test_the_link_predicts_what_the_benchmark_does() -> None:
    for cores in (2, 8):
        link = measured_link(LINK, 2, cores)
        assert ring_all_reduce(10**7, 2, link) == pytest.approx(LINK.predict_s(10**7))


def test_ranks_that_outnumber_the_cores_share_the_bandwidth() -> None:
    assert measured_link(LINK, 4, 8).bandwidth == LINK.bandwidth
    assert measured_link(LINK, 4, 2).bandwidth == LINK.bandwidth / 2
    assert measured_link(LINK, 4, 1).bandwidth == LINK.bandwidth / 2, "one core served two ranks already"


def test_more_to_send_scales_worse() -> None:
    light, heavy = (scale(measured_step(0.03, size), 4, measured_link(LINK, 4, 8)) for size in (2**20, 2**26))
    assert light.efficiency > heavy.efficiency


@pytest.mark.parametrize(
    ("seconds", "size", "layers"), [(0.0, 10, 1), (1.0, 0, 1), (1.0, 10, 0), (-1.0, 10, 1)]
)
def test_a_step_without_time_or_gradients_is_refused(seconds: float, size: int, layers: int) -> None:
    with pytest.raises(CourseError, match="step to scale needs"):
        measured_step(seconds, size, layers=layers)
