"""What does a GradScaler do, step by step, and how does it answer an overflow?

`scaler_life` trains for some steps and writes down the scale before each, the loss, and whether the update
was skipped. The overflows are real: `too_large` hands over some batches whose inputs are too large, as when
somebody forgets to divide pixels by 255. A GradScaler multiplies the loss by its scale; when a scaled
gradient is not finite it skips the update and halves the scale; after `growth_interval` good updates in a row
it doubles the scale.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from torch import Tensor

from course_lib.errors import CourseError
from course_lib.train.step import TrainingStep, as_pair


@dataclass(frozen=True)
class ScalerStep:
    """One step: its number from 1, the scale that its loss was multiplied with, and what became of it."""

    step: int
    scale: float
    loss: float
    skipped: bool


@dataclass(frozen=True)
class ScalerLife:
    """The steps of a GradScaler in order, and the scale after the last."""

    steps: tuple[ScalerStep, ...]
    final_scale: float

    @property
    def skipped(self) -> tuple[int, ...]:
        """The numbers of the steps whose update was skipped."""
        return tuple(step.step for step in self.steps if step.skipped)

    def to_json(self) -> dict[str, Any]:
        """All steps as plain data."""
        return {"steps": [asdict(step) for step in self.steps], "final_scale": self.final_scale}

    def __str__(self) -> str:
        first = self.steps[0].scale
        skipped = ", ".join(map(str, self.skipped)) or "none"
        return (
            f"{len(self.steps)} steps, scale from {first:,.0f} to {self.final_scale:,.0f}; updates skipped "
            f"({len(self.skipped)}): {skipped}"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


def scaler_life(step: TrainingStep, batches: Iterable[Any]) -> ScalerLife:
    """Train on each batch and tell what the step's GradScaler did. The model is really trained.

    Raises CourseError when the step has no scaler, or when there is no batch.
    """
    scaler = step.grad_scaler
    if scaler is None:
        raise CourseError(
            'This step has no GradScaler: build it with precision="fp16", or with grad_scaler=....'
        )
    steps: list[ScalerStep] = []
    for number, batch in enumerate(batches, start=1):
        scale = scaler.get_scale()
        loss = float(step(batch))
        steps.append(ScalerStep(number, scale, loss, step.skipped))
    if not steps:
        raise CourseError("There is no batch, so there is no step to watch.")
    return ScalerLife(tuple(steps), scaler.get_scale())


def too_large(
    batches: Iterable[Any], *, at: Collection[int], factor: float = 255.0
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same batches, but those with the numbers in `at`, from 1, have inputs `factor` times as large."""
    for number, batch in enumerate(batches, start=1):
        inputs, targets = as_pair(batch)
        yield (inputs * factor if number in at else inputs), targets
