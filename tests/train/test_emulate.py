import time

import pytest

from course_lib.errors import CourseError
from course_lib.train.emulate import EmulatedStep


def test_a_step_takes_its_time_and_no_processor_time() -> None:
    step, begin, cpu = EmulatedStep(0.3), time.perf_counter(), time.thread_time()
    step(None)
    assert time.perf_counter() - begin >= 0.3
    assert time.thread_time() - cpu < 0.1
    assert step.emulated
    assert "emulated" in repr(step)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 601, "fast"])
def test_a_time_that_makes_no_sense_is_told(seconds: object) -> None:
    with pytest.raises(CourseError, match="cannot be emulated"):
        EmulatedStep(seconds)  # type: ignore[arg-type]
