"""Which kinds of tensors are alive at each moment of a training step? The mountain of memory, in layers."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plan.optimizers import OptimizerRule, optimizer_rule
from course_lib.plan.step_trace import ALLOCATE, BECOMES_GRADIENT, StepTrace

LAYERS = ("parameters", "optimizer states", "gradients", "activations", "temporaries")
_LAYER_OF = {
    "parameter": "parameters",
    "buffer": "parameters",
    "gradient": "gradients",
    "input": "activations",
    "activation": "activations",
    "temporary": "temporaries",
}


@dataclass(frozen=True)
class AliveOverStep:
    """Live bytes by layer over the events of one step of training under way.

    ``bytes_of``: for each layer its bytes after each event, all of one length. ``phases``: "forward",
    "backward" or "optimizer" for each event.
    """

    bytes_of: dict[str, tuple[int, ...]]
    phases: tuple[str, ...]

    @property
    def totals(self) -> tuple[int, ...]:
        """All layers together, after each event."""
        return tuple(map(sum, zip(*self.bytes_of.values(), strict=True)))

    @property
    def peak(self) -> int:
        """The index of the event at which most is alive."""
        totals = self.totals
        return totals.index(max(totals))


def alive_over_step(trace: StepTrace, optimizer: str | OptimizerRule = "sgd") -> AliveOverStep:
    """Follow one step of ``trace``: forward, backward, and the optimizer as one last event.

    A gradient counts as one from the moment at which its tensor is made.
    """
    rule = optimizer_rule(optimizer)
    ends_as_gradient = {index for _, kind, index in trace.events if kind == BECOMES_GRADIENT}
    now = dict.fromkeys(LAYERS, 0)
    sizes = [trace.blocks[index].nbytes for index in ends_as_gradient]
    now["optimizer states"] = sum(
        size
        for index in ends_as_gradient
        for size in rule.state_bytes(trace.blocks[index].shape, trace.blocks[index].nbytes)
    )
    series: dict[str, list[int]] = {layer: [] for layer in LAYERS}
    phases: list[str] = []
    for op, kind, index in trace.events:
        if kind != BECOMES_GRADIENT:
            block = trace.blocks[index]
            layer = "gradients" if index in ends_as_gradient else _LAYER_OF[block.category]
            now[layer] += block.nbytes if kind == ALLOCATE else -block.nbytes
        if op >= 0:
            phases.append(trace.ops[op].phase)
            for name in LAYERS:
                series[name].append(now[name])
    now["temporaries"] += rule.temporary_bytes(sizes)
    phases.append("optimizer")
    for name in LAYERS:
        series[name].append(now[name])
    return AliveOverStep({name: tuple(values) for name, values in series.items()}, tuple(phases))
