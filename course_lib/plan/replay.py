"""What does a trace do to the allocator, step after step? Loading, micro-batches, optimizer steps,
workspaces.

A trace holds one forward and backward pass. The replay adds what surrounds it in training: parameters and
buffers are loaded, batches arrive, gradients are dropped before the forward pass
(``zero_grad(set_to_none=True)``), convolutions borrow workspaces, the optimizer makes its states in the
first step and a temporary in each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from course_lib.plan.allocator import CachingAllocator
from course_lib.plan.optimizers import OptimizerRule
from course_lib.plan.step_trace import ALLOCATE, BECOMES_GRADIENT, Op, StepTrace

_TAKE, _GIVE, _KEEP, _BORROW, _CHOSEN = range(5)


@dataclass(frozen=True)
class Borrowed:
    """What one operation borrows beside its outputs, in bytes: one entry for each output that it makes (a
    convolution's backward makes the gradient of its input, then that of its weight, each with a workspace
    of its own).

    ``tried``: whether cudnn.benchmark tries the operation out before its first run, and empties the cache
    after it. ``chosen``: whether the bytes hang on the kernel that cuDNN chooses, which nobody outside knows:
    a replay can take another share of them.
    """

    scratch: tuple[int, ...] = ()
    tried: bool = False
    chosen: bool = False


WorkspaceRule = Callable[[Op], Borrowed | None]


@dataclass(frozen=True)
class Program:
    """A trace as a list of allocator calls, made once and replayed often."""

    loads: tuple[int, ...]
    batch: tuple[int, ...]
    micro_batch: tuple[tuple[int, int, int], ...]  # (action, block or bytes, bytes or 1 if tried)
    parameters: tuple[tuple[tuple[int, ...], int], ...]  # (shape, bytes) of what is trained

    @property
    def has_choices(self) -> bool:
        """Whether anything is borrowed whose bytes hang on the kernel that cuDNN chooses."""
        return any(action == _CHOSEN and nbytes for action, nbytes, _ in self.micro_batch)


def compile_program(trace: StepTrace, workspace: WorkspaceRule | None = None) -> Program:
    """Turn ``trace`` into allocator calls, with what ``workspace`` says that each operation borrows."""
    borrowed = _borrowed(trace, workspace) if workspace is not None else {}
    loads: list[int] = []
    batch: list[int] = []
    calls: list[tuple[int, int, int]] = []
    current, slot = -1, 0
    for op, kind, block in trace.events:
        size, is_input = trace.blocks[block].nbytes, trace.blocks[block].category == "input"
        if op < 0:
            if kind == ALLOCATE:
                (batch if is_input else loads).append(size)
        elif kind == ALLOCATE:
            calls.append((_TAKE, block, size))
            slot = slot + 1 if op == current else 0
            current = op
            if op in borrowed:
                calls.extend(_borrow(borrowed[op], slot))
        elif kind == BECOMES_GRADIENT:
            calls.append((_KEEP, block, 0))
        elif not is_input:
            calls.append((_GIVE, block, 0))
    gradients = tuple((block.shape, block.nbytes) for block in trace.gradients)
    return Program(tuple(loads), tuple(batch), tuple(calls), gradients)


def _borrowed(trace: StepTrace, workspace: WorkspaceRule) -> dict[int, Borrowed]:
    """What each operation borrows. cudnn.benchmark tries each kind of convolution once, whatever layer it
    is in.
    """
    found: dict[int, Borrowed] = {}
    tried: set[tuple[object, ...]] = set()
    for index, op in enumerate(trace.ops):
        borrowed = workspace(op)
        if borrowed is None:
            continue
        if borrowed.tried:
            signature = (op.name, op.dtype, op.inputs, op.options)
            if signature in tried:
                borrowed = replace(borrowed, tried=False)
            tried.add(signature)
        found[index] = borrowed
    return found


def _borrow(borrowed: Borrowed, slot: int) -> list[tuple[int, int, int]]:
    scratch = borrowed.scratch[slot] if slot < len(borrowed.scratch) else 0
    if slot < max(1, len(borrowed.scratch)) and (scratch or borrowed.tried):
        return [(_CHOSEN if borrowed.chosen else _BORROW, scratch, int(borrowed.tried))]
    return []


def replay(
    program: Program,
    allocator: CachingAllocator,
    optimizer: OptimizerRule,
    *,
    accumulate: int = 1,
    steps: int = 2,
    share: float = 1.0,
) -> None:
    """Run ``steps`` training steps of ``program`` on ``allocator``; its counters hold the result.

    The second step is the first that has optimizer states from its beginning. ``share``: what share of the
    bytes that hang on cuDNN's choice is borrowed. Raises OutOfMemoryError at the allocator's limit.
    """
    take, give = allocator.allocate, allocator.release
    for size in program.loads:
        take(size)
    gradients: list[int] = []
    for step in range(steps):
        for address in gradients:
            give(address)
        gradients = _micro_batch(program, allocator, share, trials=step == 0)
        for _ in range(accumulate - 1):
            _micro_batch(program, allocator, share, trials=False, adds=True)
        passing: list[int] = []
        for _, size in program.parameters:
            if not optimizer.foreach:
                while passing:
                    give(passing.pop())
            passing += [take(size) for _ in range(optimizer.temporaries)]
        if step == 0:
            for shape, nbytes in program.parameters:
                for size in optimizer.state_bytes(shape, nbytes):
                    take(size)
        for address in passing:
            give(address)


def _micro_batch(
    program: Program, allocator: CachingAllocator, share: float, *, trials: bool, adds: bool = False
) -> list[int]:
    """One forward and backward pass. Returns the gradients' addresses; with ``adds``, each gradient is
    added to the one that is there and released.
    """
    take, give = allocator.allocate, allocator.release
    inputs = [take(size) for size in program.batch]
    gradients: list[int] = []
    at: dict[int, int] = {}
    for action, what, size in program.micro_batch:
        if action == _TAKE:
            at[what] = take(size)
        elif action == _GIVE:
            address = at.pop(what, -1)
            if address >= 0:  # else a gradient that was added and released already
                give(address)
        elif action in (_BORROW, _CHOSEN):
            if size and trials:
                allocator.empty_cache()
            scratch = int(what * share) if action == _CHOSEN else what
            if scratch:
                give(take(scratch))
        elif adds:
            give(at.pop(what))
        else:
            gradients.append(at.pop(what))
    for address in (*at.values(), *inputs):  # outputs outlive the backward pass
        give(address)
    return gradients
