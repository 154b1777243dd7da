from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.train.levers import time_levers
from course_lib.train.misfit import one_sentence
from course_lib.train.number_formats.dtype_inspector import inspect_dtypes
from course_lib.train.number_formats.format_times import time_steps
from course_lib.train.number_formats.value_ranges import value_ranges
from course_lib.train.saved_memory import saved_bytes

LOOKS: dict[str, Callable[[Any, Any], object]] = {
    "value_ranges": value_ranges,
    "inspect_dtypes": lambda model, batch: inspect_dtypes(model, batch, "bf16"),
    "saved_bytes": saved_bytes,
    "time_steps": time_steps,
    "time_levers": time_levers,
}
BATCH = torch.rand(2, 1, 8, 8), torch.tensor([0, 1])


@pytest.mark.parametrize("look", list(LOOKS))
@pytest.mark.parametrize(
    ("model", "batch", "said"),
    [
        (DigitsCNN, BATCH, "add parentheses"),
        ("digits_cnn", BATCH, "must be a torch.nn.Module"),
        (nn.Linear(3, 2), BATCH, "do not fit together"),
        (DigitsCNN(), (1, 2), "do not fit together"),
        (DigitsCNN(), BATCH[0], "pair"),
    ],
)
def test_whoever_looks_at_a_step_says_in_one_sentence_why_it_cannot_be(
    look: str, model: Any, batch: Any, said: str
) -> None:
    with pytest.raises(CourseError, match=said) as caught:
        LOOKS[look](model, batch)
    assert "\n" not in str(caught.value)


def test_running_out_of_memory_is_another_story() -> None:
    with pytest.raises(torch.OutOfMemoryError), one_sentence():
        raise torch.OutOfMemoryError("CUDA out of memory")
