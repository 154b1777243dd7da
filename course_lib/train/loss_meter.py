"""What is the loss of a training run, and when is it read? Reading it makes the program wait."""

import math

import torch
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.train.resume import Resumption
from course_lib.train.step import TrainingStep

READ_LOSS_EVERY = 20  # steps, on a device that runs ahead of the program: reading a loss waits for it


class LossMeter:
    """The training loss of an epoch, read from the device only now and then."""

    def __init__(self, step: TrainingStep, run: Resumption) -> None:
        self._every = 1 if step.device.type == "cpu" else READ_LOSS_EVERY
        self._run = run
        self._optimizer = step.optimizer
        self._precision = step.precision
        self._waiting: list[Tensor] = []
        self._sizes: list[int] = []
        self.steps = run.step
        self.last = math.nan

    def add(self, loss: Tensor, samples: int) -> None:
        """Take a step's loss, a tensor on the device."""
        self._waiting.append(loss)
        self._sizes.append(samples or 1)
        if len(self._waiting) == self._every:
            self.read()

    def read(self) -> float:
        """Bring the waiting losses to the computer and return the last; CourseError if one is not finite."""
        for loss, size in zip(numbers_of(self._waiting), self._sizes, strict=True):
            self.steps += 1
            if not math.isfinite(loss):
                raise CourseError(
                    f"The loss became {loss} in epoch {self._run.epoch + 1} at step {self.steps}: "
                    + self._what_to_try()
                )
            self._run.loss_total += loss * size
            self._run.samples += size
            self.last = loss
        self._waiting.clear()
        self._sizes.clear()
        return self.last

    def _what_to_try(self) -> str:
        rate = float(self._optimizer.param_groups[0]["lr"])
        usual = f"lower the learning rate (it is {rate:.3g}), or look for inputs that are not finite."
        if self._precision is not None and self._precision.format == "fp16":
            return "in fp16 a number above 65,504 is infinite, so try bf16, or fp32; else " + usual
        return usual


def numbers_of(scalars: list[Tensor]) -> list[float]:
    """The values of scalar tensors, brought from their device in one go."""
    if len(scalars) == 1:
        return [float(scalars[0])]
    values: list[float] = torch.stack(scalars).cpu().double().tolist() if scalars else []
    return values
