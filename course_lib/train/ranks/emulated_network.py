"""How can a laptop show what a fast card waits for? A network that computes nothing, takes time, and has
gradients.

Its layers rest for a given time in place of computing, as a processor does while a card works, and hand out
gradients of a given size. What DDP then sends is real. It is called emulated wherever it is shown.
"""

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError


class _Rest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, forward_s: float, backward_s: float) -> Tensor:
        """Rest, and pass the inputs on."""
        ctx.backward_s, ctx.size = backward_s, weight.shape
        time.sleep(forward_s)
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Rest, and give a gradient for the weight."""
        time.sleep(ctx.backward_s)
        return gradients[0], torch.full(ctx.size, 1e-3), None, None


class EmulatedLayer(nn.Module):
    """A layer with `parameters` float32 weights that takes `forward_s` and `backward_s` seconds."""

    def __init__(self, parameters: int, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(parameters))
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs, later."""
        rest = _Rest.apply
        outputs: Tensor = rest(inputs, self.weight, self.forward_s, self.backward_s)
        return outputs


class EmulatedNetwork(nn.Sequential):
    """Equal layers that take `compute_s` seconds a step, a third of it forward, and hold `gradient_bytes`.

    Raises CourseError for a time below 0, no layer, or fewer than 4 bytes a layer.
    """

    def __init__(self, *, compute_s: float, gradient_bytes: int, layers: int = 8) -> None:
        if layers < 1 or not 0 <= compute_s < math.inf or gradient_bytes < 4 * layers:
            raise CourseError(
                "An emulated network needs 1 layer or more, a time of 0 s or more, and 4 bytes of "
                "gradients a layer."
            )
        each = compute_s / layers
        super().__init__(
            *(EmulatedLayer(gradient_bytes // 4 // layers, each / 3, each * 2 / 3) for _ in range(layers))
        )
