"""Where there is no card, a limit on it is refused in one sentence. The limit itself: tests/gpu."""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.train.limits.small_card import small_card


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card here; tests/gpu limits it")
def test_without_a_card_there_is_nothing_to_limit() -> None:
    with pytest.raises(CourseError, match="no NVIDIA or AMD card"), small_card("1 GiB"):
        pass


@pytest.mark.parametrize("memory", ["much", "-1 GiB"])
def test_a_size_that_is_none_is_told(memory: str) -> None:
    with pytest.raises(CourseError), small_card(memory):
        pass
