"""A large card behaves as a small one for a while, and is whole again afterwards."""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.train.limits.small_card import small_card
from course_lib.train.rescue import find_batch_size
from course_lib.train.step import TrainingStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card"),
]


def test_a_card_behaves_as_a_small_one_and_is_whole_again() -> None:
    with small_card("512 MiB"):
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2**30, dtype=torch.uint8, device="cuda")
        model = DigitsCNN().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        found = find_batch_size(
            TrainingStep(model, optimizer),
            lambda n: (
                torch.rand(n, 1, 28, 28, device="cuda"),
                torch.zeros(n, dtype=torch.int64, device="cuda"),
            ),
            device="cuda",
            restore=(model, optimizer),
        )
        assert found.limit_bytes is not None
        assert found.limit_bytes <= 512 * 2**20
    assert torch.empty(2**30, dtype=torch.uint8, device="cuda").numel() == 2**30
    with pytest.raises(CourseError, match="cannot be limited"), small_card(2**50):
        pass
