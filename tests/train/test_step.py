from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD

from course_lib.errors import CourseError
from course_lib.train.step import TrainingStep, device_of
from course_lib.train.timing import StepTimer


def test_a_step_is_the_five_lines_written_by_hand() -> None:
    torch.manual_seed(0)
    mine, hand = nn.Linear(4, 2), nn.Linear(4, 2)
    hand.load_state_dict(mine.state_dict())
    step = TrainingStep(mine, SGD(mine.parameters(), lr=0.1, momentum=0.9), mse_loss)
    optimizer = SGD(hand.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        inputs, targets = torch.rand(6, 4), torch.rand(6, 2)
        loss = step((inputs, targets))
        optimizer.zero_grad()
        expected = mse_loss(hand(inputs), targets)
        expected.backward()
        optimizer.step()
        assert torch.equal(loss, expected.detach())
        assert not loss.requires_grad
        assert torch.equal(mine.weight, hand.weight)
        assert torch.equal(mine.bias, hand.bias)


@pytest.mark.parametrize("batch", [torch.zeros(3, 4), (torch.zeros(3, 4),), {"x": 1}, "ab", [1, 2, 3]])
def test_a_batch_that_is_no_pair_is_said(batch: Any) -> None:
    model = nn.Linear(4, 2)
    with pytest.raises(CourseError, match=r"pair \(inputs, targets\)"):
        TrainingStep(model, SGD(model.parameters(), lr=0.1))(batch)


def test_a_timer_for_another_device_is_refused() -> None:
    model = nn.Linear(4, 2, device="meta")
    with pytest.raises(CourseError, match="meta"):
        TrainingStep(model, SGD(model.parameters(), lr=0.1), timer=StepTimer("cpu"))


def test_a_model_without_parameters_is_on_the_cpu() -> None:
    assert device_of(nn.ReLU()) == torch.device("cpu")
    assert device_of(nn.Linear(1, 1, device="meta")) == torch.device("meta")
