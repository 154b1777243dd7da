"""How does a loader fare beside a card that this machine does not have?

`EmulatedStep` takes the time of a training step and does nothing in it: the processor stays free for the
loader, as it does while a GPU computes. What is measured with it is emulated, and is called so.
"""

import math
import time
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.units import format_seconds

LONGEST_S = 600.0


class EmulatedStep:
    """A training step that takes `seconds` and no processor time.

        step = EmulatedStep(0.018)
        for batch in loader:
            step(batch)

    A call returns when the step is over, as in a loop that reads the loss after each step. The batch is not
    looked at. A sleep may end some tenths of a millisecond late; `measure` counts the real time.

    Raises CourseError for a time below 0, above 10 minutes, or that is no number.
    """

    emulated = True
    device = torch.device("cpu")

    def __init__(self, seconds: float) -> None:
        if not isinstance(seconds, int | float) or not (math.isfinite(seconds) and 0 <= seconds <= LONGEST_S):
            raise CourseError(
                f"A step of {seconds!r} seconds cannot be emulated: give 0 to {LONGEST_S:.0f} seconds, "
                "for example 0.018 for 18 ms."
            )
        self.seconds = float(seconds)

    def __call__(self, batch: Any) -> None:
        """Return when the time of the step is over."""
        end = time.perf_counter() + self.seconds
        while (left := end - time.perf_counter()) > 0:
            time.sleep(left)

    def __repr__(self) -> str:
        return f"EmulatedStep: {format_seconds(self.seconds)} a step, emulated"
