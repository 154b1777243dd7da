import time

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.teach.labs.precision import LEAST, MOST, digits_ranges, lab, survivors
from course_lib.train.number_formats.float_formats import FLOAT_FORMATS
from course_lib.train.number_formats.value_ranges import KINDS, value_ranges


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_random_numbers_of_the_lesson_are_left_alone():
    digits_ranges.cache_clear()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    digits_ranges()
    assert torch.equal(torch.rand(3), expected)


def test_both_ends_of_the_scale_teach_something():
    gradients = digits_ranges().of("activation gradients")
    assert gradients.becomes_zero("fp16", 2.0**LEAST) > 0.1
    assert gradients.becomes_zero("fp16", 2.0**16) < 0.01
    assert gradients.overflows("fp16", 2.0**MOST) > 0.5
    assert digits_ranges().of("activations").overflows("fp16", 2.0**16) > 0.1
    for kind in KINDS:
        for power in (LEAST, 0, MOST):
            assert digits_ranges().of(kind).becomes_zero("bf16", 2.0**power) == 0


@pytest.mark.parametrize("name", list(FLOAT_FORMATS))
def test_an_answer_comes_at_once(name):
    digits_ranges()
    survivors(name)
    best = min(_seconds(lambda: survivors(name, 16, "activations")._repr_html_()) for _ in range(5))
    assert best < 1.0  # it takes 0.1 s


def test_the_lab_shows_the_learners_own_numbers():
    model = torch.nn.Linear(4, 2)
    own = value_ranges(model, (torch.rand(3, 4), torch.tensor([0, 1, 0])))
    made = lab(own)
    assert not made.errors
    made.controls["power"].value = 40
    made.controls["format"].value = "bf16"
    assert "0.0% become zero" in made.result.alt
    with pytest.raises(CourseError, match="fp8"):
        survivors("fp8")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kind": "dreams"}, "no kind of number"),
        ({"power": "much"}, "whole number"),
        ({"power": 5000}, "from -200 to 200"),
        ({"ranges": 3}, "3 holds no sizes: give what value_ranges"),
    ],
)
def test_a_setting_that_makes_no_sense_is_told(settings, told):
    with pytest.raises(CourseError, match=told):
        survivors(**settings)


def _seconds(call):
    """Of the processor: what else runs on the machine does not count."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin
