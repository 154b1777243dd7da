"""How much memory does an optimizer keep, and how much does its step need for a moment?

The step needs no tracing: each rule says how many bytes of state an optimizer keeps for each parameter,
and how many copies of the gradients its multi-tensor ("foreach", the default on a card) step holds at
once. Sources: the functions ``_multi_tensor_*`` in ``torch/optim/*.py``; the states are compared with
real optimizers in the tests.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class OptimizerRule:
    """``states``: tensors of the parameter's size kept from the first step on. ``temporaries``: as many
    for a moment in each step. ``factored``: the states are a row and a column for each matrix (Adafactor).
    ``foreach``: whether the step works on all parameters together, and so holds the temporaries of all at
    once; else on one after the other.
    """

    name: str
    states: int
    temporaries: int
    factored: bool = False
    foreach: bool = True

    def temporary_bytes(self, parameter_bytes: Sequence[int]) -> int:
        """The most bytes of temporaries at one moment of the step, from the bytes of each parameter."""
        at_once = sum(parameter_bytes) if self.foreach else max(parameter_bytes, default=0)
        return self.temporaries * at_once

    def state_bytes(self, shape: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
        """The sizes in bytes of the tensors kept for one parameter."""
        if self.factored and len(shape) >= 2:
            count = 1
            for length in shape:
                count *= length
            element = nbytes // max(1, count)
            return (count // shape[-1] * element, count // shape[-2] * element)
        return (nbytes,) * self.states


RULES: dict[str, OptimizerRule] = {
    rule.name: rule
    for rule in (
        OptimizerRule(
            "sgd", states=1, temporaries=1
        ),  # momentum; weight decay: grads = _foreach_add(grads, params)
        OptimizerRule("sgd-plain", states=0, temporaries=0),  # no momentum, no weight decay
        OptimizerRule("adam", states=2, temporaries=1),  # exp_avg_sq_sqrt
        OptimizerRule("adamw", states=2, temporaries=1),  # exp_avg_sq_sqrt
        OptimizerRule("rmsprop", states=1, temporaries=1),  # avg
        OptimizerRule("adagrad", states=1, temporaries=2),  # std, and minus_clr times grads
        OptimizerRule("adafactor", states=1, temporaries=1, factored=True),
        OptimizerRule("lion", states=1, temporaries=1),
    )
}


def optimizer_rule(
    optimizer: str | OptimizerRule | torch.optim.Optimizer | Callable[..., Any],
) -> OptimizerRule:
    """The rule of an optimizer given by name, as an instance, or as a class or function of the parameters.

    An optimizer without a rule of its own is stepped once on small real parameters, and what it keeps is
    counted. Raises CourseError for an unknown name.
    """
    if isinstance(optimizer, OptimizerRule):
        return optimizer
    if isinstance(optimizer, str):
        rule = RULES.get(optimizer.lower())
        if rule is None:
            close = difflib.get_close_matches(optimizer.lower(), RULES, n=3, cutoff=0.5)
            hint = f" (did you mean {', '.join(close)}?)" if close else ""
            raise CourseError(
                f"Optimizer {optimizer!r} is not known{hint}; choose one of {', '.join(RULES)}."
            )
        return rule
    return _measured(optimizer)


def _measured(optimizer: Any) -> OptimizerRule:
    """Count what an optimizer really keeps after one step on two small parameters on the CPU."""
    import torch

    parameters = [torch.nn.Parameter(torch.ones(64, 32)), torch.nn.Parameter(torch.ones(64))]
    try:
        if isinstance(optimizer, torch.optim.Optimizer):
            own = optimizer.param_groups[0]
            names = set(inspect.signature(type(optimizer)).parameters) & set(own) - {"params", "fused"}
            accepted = {name: own[name] for name in names}
            small: Any = type(optimizer)(parameters, **accepted)
        else:
            small = optimizer(parameters)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        small.step()
    except Exception as error:
        raise CourseError(
            f"The optimizer could not be stepped on two small parameters ({type(error).__name__}: {error}); "
            f"give its name instead, one of {', '.join(RULES)}."
        ) from error
    kept = sum(
        value.numel() * value.element_size()
        for state in small.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.dim() > 0
    )
    size = sum(p.numel() * p.element_size() for p in parameters)
    name = type(small).__name__.lower()
    known = RULES.get(name)
    states = round(kept / size)
    if known is not None and not known.factored and known.states == states:
        return known
    return OptimizerRule(name, states=states, temporaries=1, factored=bool(known and known.factored))
