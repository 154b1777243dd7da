"""What does a step take on 1 to 1,024 cards? What the lab of lesson 02 predicts, and its picture draws."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from course_lib.plan.scaling import ScaledStep


@dataclass(frozen=True)
class ScaleOut:
    """A predicted step on 1, 2, 4, ... 1,024 cards, and which of these numbers was chosen."""

    steps: tuple[ScaledStep, ...]
    chosen: int
    link: str
    network: str

    @property
    def step(self) -> ScaledStep:
        """The step on the chosen number of cards."""
        return next(step for step in self.steps if step.cards == self.chosen)

    def __str__(self) -> str:
        step = self.step
        gain = f"{step.speedup:,.1f}" if step.speedup >= 1 else f"{step.speedup:.2g}"  # 0.011, not 0.0
        return (
            f"{step.cards:,} card{'s' * (step.cards > 1)}: {1000 * step.seconds:,.1f} ms a step, "
            f"{gain} times one card, efficiency {100 * step.efficiency:.0f} % (predicted)"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"
