import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD

from course_lib.errors import CourseError
from course_lib.train.precision import Precision
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


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_step_in_a_format_is_the_recipe_written_by_hand(name: Any) -> None:
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    hand = copy.deepcopy(mine)
    step = TrainingStep(
        mine, SGD(mine.parameters(), lr=0.1, momentum=0.9), mse_loss, precision=name, max_grad_norm=0.05
    )
    optimizer = SGD(hand.parameters(), lr=0.1, momentum=0.9)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[name]
    scaler = torch.amp.GradScaler("cpu", enabled=name == "fp16")
    for _ in range(4):
        inputs, targets = torch.rand(6, 4), torch.rand(6, 2)
        loss = step((inputs, targets))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            expected = mse_loss(hand(inputs), targets)
        scaler.scale(expected).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(hand.parameters(), 0.05)
        assert norm > 0.05  # the clipping does something
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(loss, expected.detach())
        assert all(map(torch.equal, mine.parameters(), hand.parameters()))


def test_the_halves_of_a_step_gather_gradients() -> None:
    torch.manual_seed(0)
    whole, parts = nn.Linear(4, 2).double(), nn.Linear(4, 2).double()
    parts.load_state_dict(whole.state_dict())
    inputs, targets = torch.rand(6, 4).double(), torch.rand(6, 2).double()
    TrainingStep(whole, SGD(whole.parameters(), lr=0.1), mse_loss)((inputs, targets))
    step = TrainingStep(parts, SGD(parts.parameters(), lr=0.1), mse_loss)
    step.zero_grad()
    for some in (slice(0, 4), slice(4, 6)):
        loss = step.backward((inputs[some], targets[some]), share=len(inputs[some]) / 6)
        assert torch.equal(loss, mse_loss(parts(inputs[some]), targets[some]).detach())  # not the share of it
    step.update()
    torch.testing.assert_close(parts.weight, whole.weight, rtol=1e-14, atol=0)


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan")])
def test_a_bound_on_the_gradients_is_a_positive_number(norm: float) -> None:
    model = nn.Linear(4, 2)
    with pytest.raises(CourseError, match="max_grad_norm"):
        TrainingStep(model, SGD(model.parameters(), lr=0.1), max_grad_norm=norm)


def test_a_precision_for_another_device_is_refused() -> None:
    model = nn.Linear(4, 2)
    with pytest.raises(CourseError, match="is for cuda"):
        TrainingStep(model, SGD(model.parameters(), lr=0.1), precision=Precision("bf16", "cuda"))


def test_without_a_precision_an_autocast_around_the_step_holds() -> None:
    model = nn.Linear(4, 2)
    seen = []
    model.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    step = TrainingStep(model, SGD(model.parameters(), lr=0.1), mse_loss)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step((torch.rand(3, 4), torch.rand(3, 2)))
    assert seen == [torch.bfloat16]
