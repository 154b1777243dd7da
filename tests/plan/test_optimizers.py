"""The rules of the optimizers are what the optimizers do."""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.plan.optimizers import RULES, optimizer_rule

REAL = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "sgd-plain": lambda p: torch.optim.SGD(p, 0.1),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adafactor": torch.optim.Adafactor,
}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("shape", [(64, 48), (96,), (16, 8, 3, 3)])
def test_states_are_those_of_the_real_optimizer(name: str, shape: tuple[int, ...]) -> None:
    parameter = torch.nn.Parameter(torch.ones(shape))
    parameter.grad = torch.ones(shape)
    optimizer = REAL[name]([parameter])
    optimizer.step()
    kept = sum(
        value.numel() * value.element_size()
        for value in optimizer.state[parameter].values()
        if isinstance(value, torch.Tensor) and value.dim() > 0
    )
    assert sum(optimizer_rule(name).state_bytes(shape, parameter.numel() * 4)) == kept


def test_an_instance_and_a_function_of_the_parameters_are_measured() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2))]
    assert optimizer_rule(torch.optim.AdamW(parameters, lr=0.1)) == RULES["adamw"]
    assert optimizer_rule(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)) == RULES["sgd"]
    assert optimizer_rule(lambda p: torch.optim.SGD(p, 0.1)).states == 0
    assert optimizer_rule(torch.optim.NAdam).states == 2


def test_unknown_names_get_near_matches() -> None:
    with pytest.raises(CourseError, match="did you mean adamw"):
        optimizer_rule("adamww")


def test_an_optimizer_that_cannot_step_is_told() -> None:
    with pytest.raises(CourseError, match="could not be stepped"):
        optimizer_rule(lambda p: None)
