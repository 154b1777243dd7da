"""With which options does a command ask what one training step is? The same for ``plan`` and ``remedies``."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from course_lib.plan.workload import Workload

Command = TypeVar("Command", bound=Callable[..., None])

_OPTIONS = (
    click.option(
        "--batch",
        "micro_batch",
        type=click.IntRange(1, 1_000_000),
        default=32,
        show_default=True,
        help="Samples in one micro-batch.",
    ),
    click.option(
        "--image-size",
        type=click.IntRange(1, 16_384),
        help="Height and width of the images, for image models.",
    ),
    click.option(
        "--sequence", type=click.IntRange(1, 1_048_576), help="Tokens in one sample, for text models."
    ),
    click.option(
        "--precision",
        default="fp32",
        show_default=True,
        help="fp32, tf32, fp16 or bf16 (the last two: autocast).",
    ),
    click.option(
        "--optimizer", default="sgd", show_default=True, help="sgd (with momentum), adam, adamw, ..."
    ),
    click.option(
        "--accumulate",
        type=click.IntRange(1, 4096),
        default=1,
        show_default=True,
        help="Micro-batches in one step.",
    ),
)


def step_options(command: Command) -> Command:
    """Give a command the options of a step; it takes them as ``**step`` and hands them to `workload_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def workload_of(model: str, **step: Any) -> "Workload":
    """The workload of a model's name, or of the learner's own ``module:factory``, and a step's options."""
    from course_lib.plan.model_names import named_workload

    sys.path.insert(0, str(Path.cwd()))  # where the learner's own module is
    return named_workload(model, **step)
