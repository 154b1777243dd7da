"""Which parts of any model are recomputed in the backward pass? Its repeated blocks, one by one."""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from course_lib.errors import CourseError
from course_lib.models.checkpointing import block_names


def checkpoint_blocks(model: nn.Module) -> None:
    """Checkpoint ``model`` by its own switch (timm, transformers), or else each of its repeated blocks.

    Raises CourseError for a model that has neither.
    """
    own: Any = model
    if hasattr(model, "gradient_checkpointing_enable"):
        own.gradient_checkpointing_enable({"use_reentrant": False})
        return
    if hasattr(model, "set_grad_checkpointing"):
        with contextlib.suppress(AssertionError):  # timm's way of saying that this model has no switch
            own.set_grad_checkpointing(True)
            return
    names = block_names(model)
    if not names:
        raise CourseError("This model has no repeated blocks to checkpoint; plan it without checkpointing.")
    for name in names:
        block = model.get_submodule(name)
        block.forward = _checkpointed(block.forward)


def _checkpointed(forward: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return call
