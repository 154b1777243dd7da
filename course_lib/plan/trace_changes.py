"""What would a step need if its parameters, gradients or optimizer states were smaller, or spread over cards?

By arithmetic on a trace: the blocks change their size, and the replay does the rest. What other libraries
do (bitsandbytes, FSDP and DeepSpeed, PEFT) is reckoned here, not run.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from course_lib.plan.optimizers import OptimizerRule
from course_lib.plan.step_trace import BECOMES_GRADIENT, Block, StepTrace

SMALLEST_8BIT = (
    4096  # elements; bitsandbytes keeps the states of smaller parameters in 32 bits (min_8bit_size)
)
BLOCK_8BIT = 256  # elements that share one float32 scale in bitsandbytes' block-wise states


@dataclass(frozen=True)
class EightBitStates(OptimizerRule):
    """An optimizer whose states take one byte an element, and a float32 scale for each block of 256
    (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization").
    """

    def state_bytes(self, shape: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
        """The sizes in bytes of the tensors kept for one parameter: states and scales."""
        count = math.prod(shape)
        if count < SMALLEST_8BIT:
            return super().state_bytes(shape, nbytes)
        return (count, 4 * -(-count // BLOCK_8BIT)) * self.states


@dataclass(frozen=True)
class ShardedStates(OptimizerRule):
    """An optimizer that keeps the states of a ``ranks``-th of each parameter on this card (ZeRO stage 1)."""

    ranks: int = 1

    def state_bytes(self, shape: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
        """The sizes in bytes of this card's part of the tensors kept for one parameter."""
        return tuple(-(-size // self.ranks) for size in super().state_bytes(shape, nbytes))


def eight_bit(rule: OptimizerRule) -> OptimizerRule:
    """The same optimizer with 8-bit states, which its own kernel updates without temporaries."""
    return EightBitStates(**{**asdict(rule), "name": f"8-bit {rule.name}", "temporaries": 0})


def sharded_states(rule: OptimizerRule, ranks: int) -> OptimizerRule:
    """The same optimizer with its states spread over ``ranks`` cards."""
    return ShardedStates(**{**asdict(rule), "name": f"{rule.name}, states over {ranks} cards"}, ranks=ranks)


def fully_sharded(trace: StepTrace, ranks: int) -> StepTrace:
    """The step of one of ``ranks`` cards that share parameters, gradients and states (FSDP, ZeRO stage 3).

    Each card keeps a ``ranks``-th of each, and activations of its own batch. Added, for the whole step: the
    full parameters of the two largest parts of the model, the one that computes and the one that is fetched
    meanwhile, and the full gradient of one, before it is spread.
    """
    gradients = _gradients(trace)
    blocks = [
        _shrunk(block, -(-block.nbytes // ranks))
        if block.category == "parameter" or i in gradients
        else block
        for i, block in enumerate(trace.blocks)
    ]
    largest = max(_bytes_by_part(trace).values(), default=0)
    return _with_room(replace(trace, blocks=tuple(blocks)), 3 * largest)


def adapters_only(trace: StepTrace, rank: int) -> StepTrace:
    """The step of a model whose parameters stay as they are; each matrix gets an adapter of two thin
    matrices that is trained (LoRA, Hu et al. 2021).

    A matrix of shape (out, in) has rank * (in + out) numbers to train: as parameters, gradients and, through
    the gradients' shapes, optimizer states. Activations are left as they are, which is a little too much.
    """
    gradients = _gradients(trace)
    blocks = list(trace.blocks)
    added = 0
    for i in gradients:
        block = trace.blocks[i]
        count = rank * sum(block.shape) if len(block.shape) == 2 else 0
        element = block.nbytes // max(1, math.prod(block.shape))
        blocks[i] = replace(block, nbytes=count * element, shape=(count,))
        added += count * element
    return _with_room(replace(trace, blocks=tuple(blocks)), added)


def share_in_matrices(trace: StepTrace) -> float:
    """Which share of the trained parameters stands in matrices, to which adapters can be added."""
    sizes = [(len(block.shape) == 2, block.nbytes) for block in trace.gradients]
    return sum(n for matrix, n in sizes if matrix) / max(1, sum(n for _, n in sizes))


def _gradients(trace: StepTrace) -> frozenset[int]:
    return frozenset(index for _, kind, index in trace.events if kind == BECOMES_GRADIENT)


def _shrunk(block: Block, nbytes: int) -> Block:
    """The block with fewer bytes; its shape becomes flat, so that optimizer states follow."""
    element = max(1, block.nbytes // max(1, math.prod(block.shape)))
    return replace(block, nbytes=nbytes, shape=(-(-nbytes // element),))


def _bytes_by_part(trace: StepTrace) -> dict[str, int]:
    """Bytes of parameters by part of the model: blocks that repeat (``layers.3``), else modules."""
    parts: dict[str, int] = {}
    for block in trace.parameters:
        names = block.module.split(".")
        numbered = [i for i, name in enumerate(names) if name.isdigit()]
        part = ".".join(names[: numbered[0] + 1] if numbered else names[:-1])
        parts[part] = parts.get(part, 0) + block.nbytes
    return parts


def _with_room(trace: StepTrace, nbytes: int) -> StepTrace:
    """The trace with one more block of so many bytes, alive from the beginning."""
    room = Block(nbytes, "parameter", "float32", (nbytes // 4,), -1, "", "")
    first = (-1, 0, len(trace.blocks))
    return replace(trace, blocks=(*trace.blocks, room), events=(first, *trace.events))
