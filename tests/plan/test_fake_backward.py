"""The engine-free backward pass gives the engine's gradients, and lets go of memory when the engine does."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from course_lib.plan.fake_backward import backward


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):  # type: ignore[no-untyped-def]
        return 2 * first + 3 * second


def convolutions(x: torch.Tensor, w: nn.ParameterDict) -> torch.Tensor:
    y = functional.conv2d(x, w["kernel"], w["bias"], padding=1)
    y = functional.batch_norm(y, None, None, training=True).relu()
    return functional.max_pool2d(y, 2).mean()


def pieces(x: torch.Tensor, w: nn.ParameterDict) -> torch.Tensor:
    a, b, c = (x.flatten(1) @ w["matrix"]).chunk(3, dim=1)
    return (a * b.exp() + c).sum() + (a * w["scale"]).sum()


def shared(x: torch.Tensor, w: nn.ParameterDict) -> torch.Tensor:
    y = x.flatten(1) @ w["matrix"]
    y = y @ w["matrix"].t() @ w["matrix"]
    return functional.cross_entropy(y, torch.zeros(len(x), dtype=torch.long))


def custom(x: torch.Tensor, w: nn.ParameterDict) -> torch.Tensor:
    first, second = TwoOutputs.apply(x.flatten(1) @ w["matrix"])
    return Square.apply(first).sum() + second.mean()


def one_of_two_used(x: torch.Tensor, w: nn.ParameterDict) -> torch.Tensor:
    first, _ = TwoOutputs.apply(x.flatten(1) @ w["matrix"])
    return first.sum()


def checkpointed(x: torch.Tensor, w: nn.ParameterDict) -> torch.Tensor:
    def block(y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(y @ w["matrix"]) @ w["matrix"].t()

    y = x.flatten(1)
    for _ in range(3):
        y = checkpoint(block, y, use_reentrant=False)
    return y.sum()


@pytest.mark.parametrize("function", [convolutions, pieces, shared, custom, one_of_two_used, checkpointed])
def test_gradients_are_the_engines(
    function: Callable[[torch.Tensor, nn.ParameterDict], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 2, 6, 6)
    ours = nn.ParameterDict(
        {
            "kernel": torch.randn(3, 2, 3, 3),
            "bias": torch.randn(3),
            "matrix": torch.randn(72, 12) / 8,
            "scale": torch.randn(1),
        }
    )
    engines = copy.deepcopy(ours)
    function(x, engines).backward()
    monkeypatch.setattr("torch._C._current_graph_task_id", lambda: 0)
    loss = function(x, ours)
    roots, grads = [loss], [torch.ones_like(loss)]
    del loss
    heard: list[torch.Tensor] = []
    backward(roots, grads, on_gradient=heard.append)
    for name, parameter in engines.items():
        if parameter.grad is None:
            assert ours[name].grad is None
        else:
            assert any(parameter is ours[name] for parameter in heard)
            torch.testing.assert_close(ours[name].grad, parameter.grad)


def test_a_second_pass_adds_to_the_gradients() -> None:
    weight = nn.Parameter(torch.ones(3))
    for _ in range(2):
        loss = (weight * torch.arange(3.0)).sum()
        backward([loss], [torch.ones_like(loss)])
    assert weight.grad is not None
    assert weight.grad.tolist() == [0.0, 2.0, 4.0]
