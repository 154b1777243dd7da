"""Which work does a step hold, with equal pieces counted once? Sorted once, timed on many cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from course_lib.plan.op_kinds import work_of
from course_lib.plan.optimizers import OptimizerRule
from course_lib.plan.step_trace import BECOMES_GRADIENT, StepTrace
from course_lib.plan.work import Work

FLOPS_A_BYTE = 50.0  # about what cards reach of their peaks in 16 bits: 35 TFLOP/s beside 700 GB/s


@dataclass(frozen=True)
class StepWork:
    """The work of one micro-batch.

    ``pieces`` maps (work, phase, module) to how often it runs. ``launches`` counts what the processor hands
    out. ``gradients``: for each, the share of the backward pass after which it is ready, and its bytes.
    """

    model: str
    batch_size: int
    precision: str
    pieces: Mapping[tuple[Work, str, str], int]
    launches: int
    flops: int
    gradients: tuple[tuple[float, int], ...]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(nbytes for _, nbytes in self.gradients)


def step_work(trace: StepTrace) -> StepWork:
    """Sort the operations of a trace into kinds of work."""
    channels_last = keeps_channels_last(trace)
    pieces: Counter[tuple[Work, str, str]] = Counter()
    launches = 0
    known: dict[object, tuple[Work, ...]] = {}
    for op in trace.ops:
        # The first module's own operations (casts of the input) are named "": they are told apart.
        key = (
            op.name, op.phase, op.dtype, op.layout, op.bytes_moved, op.inputs, op.outputs, op.options,
            op.module == "",
        )  # fmt: skip
        found = known.get(key)
        if found is None:
            found = known[key] = work_of(op, channels_last)
        launches += 1 if found else 0
        for work in found:
            pieces[work, op.phase, op.module] += 1
    return StepWork(
        trace.model,
        trace.batch_size,
        trace.precision,
        dict(pieces),
        launches,
        trace.flops,
        _gradients(trace),
    )


def keeps_channels_last(trace: StepTrace) -> bool:
    """Whether the images of a step stand in channels-last order: whether its first convolution gets them
    so.
    """
    first = next((op for op in trace.ops if op.name == "convolution.default"), None)
    return first is not None and "channels_last" in first.option("layouts", ())


def optimizer_work(work: StepWork, optimizer: OptimizerRule, a_tensor: float = 0.0) -> Work:
    """One step of the optimizer.

    It reads gradients, parameters and states, writes the last two, and writes and reads what it holds for a
    moment. ``a_tensor``: kernels for each parameter tensor, where the stack has no multi-tensor ones.
    """
    moved = work.gradient_bytes * (3 + 2 * optimizer.states + 2 * optimizer.temporaries)
    kernels = optimizer_launches(work, optimizer, a_tensor)
    return Work("optimizer", "optimizer", 0, moved, kernels=kernels)


def optimizer_launches(work: StepWork, optimizer: OptimizerRule, a_tensor: float = 0.0) -> int:
    """How many kernels a step of the optimizer hands out, about: a few, or some for each parameter tensor."""
    return round(a_tensor * len(work.gradients)) or 2 + optimizer.states + optimizer.temporaries


def _gradients(trace: StepTrace) -> tuple[tuple[float, int], ...]:
    """When each gradient is ready, as a share of the backward pass, by what the operations before it take.

    Here a few flops stand for a byte, as on today's cards; what matters is the order, not the card.
    """
    done, at = 0.0, []
    for op in trace.ops:
        if op.phase == "backward":
            done += max(op.flops / FLOPS_A_BYTE, op.bytes_moved)
        at.append(done)
    return tuple(
        (at[op] / done if done and op >= 0 else 1.0, trace.blocks[index].nbytes)
        for op, kind, index in trace.events
        if kind == BECOMES_GRADIENT
    )
