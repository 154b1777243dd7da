"""What does a learner read when model, loss and batch do not go together? One sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from course_lib.errors import CourseError


def require_model(model: object) -> None:
    """Raises CourseError for what is no torch.nn.Module, such as a class or a name."""
    if not isinstance(model, nn.Module):
        hint = " Build it first: add parentheses." if isinstance(model, type) else ""
        raise CourseError(f"The model must be a torch.nn.Module; {model!r} is none.{hint}")


@contextmanager
def one_sentence() -> Iterator[None]:
    """Around a first step: what model, loss and batch cannot do together becomes a CourseError.

    Running out of memory passes through: that is another story.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, CourseError | torch.OutOfMemoryError):
            raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CourseError(f"Model, loss and batch do not fit together ({first}).") from error
