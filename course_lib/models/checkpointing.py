"""How is memory traded for time, block by block? Gradient checkpointing of the blocks that save most for
each second lost.

A checkpointed block keeps its input only. In the backward pass it runs once more, and its activations come
back when they are needed. Gradients are the same, dropout draws the same numbers, and BatchNorm's running
statistics are updated once, as without.

    blocks = checkpoint_blocks(model, ranking, target_bytes=2 * 2**30)
    ...
    blocks.remove()
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from course_lib.errors import CourseError
from course_lib.units import format_bytes, format_seconds


@dataclass(frozen=True)
class BlockSaving:
    """What checkpointing one block is worth: bytes less at the peak of a step, seconds more for the step.

    `name` is the module's name in `model.named_modules()`, with or without the "module." of a DDP wrapper.
    """

    name: str
    bytes_saved: int
    seconds_lost: float

    @property
    def bytes_per_second(self) -> float:
        """Bytes saved for each second lost; infinite where nothing is lost."""
        return self.bytes_saved / self.seconds_lost if self.seconds_lost > 0 else float("inf")


def ranked(savings: Iterable[BlockSaving]) -> tuple[BlockSaving, ...]:
    """The blocks that save anything, the best bargain first."""
    useful = (saving for saving in savings if saving.bytes_saved > 0)
    return tuple(sorted(useful, key=lambda saving: saving.bytes_per_second, reverse=True))


def block_names(model: nn.Module, pattern: str = "*") -> tuple[str, ...]:
    """The blocks that a model is built of: what stands in its outermost Sequential and ModuleList
    containers, by name.

    Those with parameters or children of their own only: a lone ReLU is no block. `pattern` is a shell
    pattern for the names.
    """
    root = _unwrapped(model)
    containers = (nn.Sequential, nn.ModuleList)
    found: list[str] = []

    def look(module: nn.Module, name: str) -> None:
        for child_name, child in module.named_children():
            full = f"{name}.{child_name}" if name else child_name
            if not isinstance(module, containers) or isinstance(child, containers):
                look(child, full)
            elif next(child.parameters(), None) is not None or next(child.children(), None) is not None:
                found.append(full)

    look(root, "")
    return tuple(name for name in found if fnmatch.fnmatchcase(name, pattern))


@dataclass(frozen=True)
class CheckpointedBlocks:
    """Which blocks of a model are checkpointed now. Sizes in bytes, time in seconds a step, both as the
    ranking said.

    `names` stand in the order in which they were taken. `skipped` lie inside a block that was taken, or
    around one. `reached` tells whether the target was. `remove()` makes the model as it was.
    """

    names: tuple[str, ...]
    skipped: tuple[str, ...]
    bytes_saved: int
    seconds_lost: float
    target_bytes: int | None
    _model: nn.Module = field(repr=False, compare=False)

    @property
    def reached(self) -> bool:
        """Whether the blocks save what was asked for, by the ranking's figures."""
        return self.target_bytes is None or self.bytes_saved >= self.target_bytes

    def remove(self) -> None:
        """Let the blocks keep their activations again. Does nothing the second time."""
        for name in self.names:
            block = self._model.get_submodule(name)
            own = block.__dict__.get("forward")
            if isinstance(own, _CheckpointedForward):
                own.restore()

    def __str__(self) -> str:
        saved = f"{format_bytes(self.bytes_saved)} saved for {format_seconds(self.seconds_lost)} a step"
        if self.target_bytes is None:
            end = ""
        else:
            end = (
                f"; {format_bytes(self.target_bytes)} wanted: {'reached' if self.reached else 'not reached'}"
            )
        return f"{len(self.names)} blocks checkpointed, {saved}{end}\n  {', '.join(self.names) or 'none'}"


def checkpoint_blocks(
    model: nn.Module, ranking: Iterable[BlockSaving], *, target_bytes: int | None = None
) -> CheckpointedBlocks:
    """Checkpoint blocks in the order of `ranking` (see `ranked`) until they save `target_bytes` together;
    all of them if None.

    A block is any module that takes and returns tensors. The model is changed in place, its `state_dict` is
    not; a copy of the model is checkpointed too. Works before and after wrapping in
    DistributedDataParallel. In evaluation without gradients nothing is recomputed.

    Raises CourseError for a name that the model does not have, and for a block that is checkpointed
    already; nothing is changed then.
    """
    root = _unwrapped(model)
    modules = dict(root.named_modules())
    chosen: list[BlockSaving] = []
    skipped: list[str] = []
    saved = 0
    for saving in ranking:
        if target_bytes is not None and saved >= target_bytes:
            break
        name = saving.name if saving.name in modules else saving.name.removeprefix("module.")
        if name not in modules or not name:
            raise CourseError(
                f"The model has no block {saving.name!r}: block_names(model) lists what can be checkpointed."
            )
        if isinstance(modules[name].__dict__.get("forward"), _CheckpointedForward):
            raise CourseError(
                f"The block {name!r} is checkpointed already: remove() the earlier checkpointing first."
            )
        if any(_within(name, other.name) or _within(other.name, name) for other in chosen):
            skipped.append(name)
            continue
        chosen.append(BlockSaving(name, saving.bytes_saved, saving.seconds_lost))
        saved += saving.bytes_saved
    for saving in chosen:
        _CheckpointedForward(modules[saving.name]).install()
    lost = sum(saving.seconds_lost for saving in chosen)
    return CheckpointedBlocks(
        tuple(saving.name for saving in chosen), tuple(skipped), saved, lost, target_bytes, root
    )


class _CheckpointedForward:
    """Stands in a block's `__dict__` as its `forward`.

    An object that holds the block, and no closure over it: when a model is copied or pickled, the copy's
    block comes with a forward that runs the copy.
    """

    def __init__(self, block: nn.Module) -> None:
        self.block = block
        self.inner: Callable[..., Any] | None = block.__dict__.get("forward")

    def install(self) -> None:
        self.block.__dict__["forward"] = self

    def restore(self) -> None:
        del self.block.__dict__["forward"]
        if self.inner is not None:
            self.block.__dict__["forward"] = self.inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._run(*args, **kwargs)
        return checkpoint(self._run, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self.inner is not None:
            return self.inner(*args, **kwargs)
        return type(self.block).forward(self.block, *args, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _running_statistics_kept(self.block)


@contextmanager
def _running_statistics_kept(block: nn.Module) -> Iterator[None]:
    """Within it, normalisation layers update copies of their running statistics: the first run has updated
    the real ones.
    """
    real: list[tuple[_NormBase, dict[str, Any]]] = []
    for module in block.modules():
        if isinstance(module, _NormBase) and module.training and module.track_running_stats:
            real.append((module, dict(module._buffers)))
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.clone()
    try:
        yield
    finally:
        for module, buffers in real:
            module._buffers.update(buffers)


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model inside a DistributedDataParallel or DataParallel wrapper."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        inner: nn.Module = model.module
        return inner
    return model


def _within(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer + ".")
