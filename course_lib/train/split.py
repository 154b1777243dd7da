"""What did a training step spend its time on, and how is that told?

`StepSplit` is the result of a `StepTimer`: plain numbers, no torch. It prints itself, turns into JSON, and
can also be made by hand from six times, for an example or an exercise.
"""

import html
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from course_lib.errors import CourseError
from course_lib.units import format_count, format_seconds

Phase = Literal["data", "transfer", "forward", "backward", "optimizer", "rest"]
PHASES: tuple[Phase, ...] = get_args(Phase)

MEANING: Mapping[str, str] = {
    "data": "waiting for the loader",
    "transfer": "moving the batch to the device",
    "forward": "model and loss",
    "backward": "gradients",
    "optimizer": "updating the weights",
    "rest": "everything else",
}


@dataclass(frozen=True)
class Spread:
    """Seconds over the measured steps: mean, median, and the quarter points around the middle half."""

    mean_s: float
    median_s: float
    low_s: float
    high_s: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        """The spread of at least one time."""
        if len(seconds) == 1:
            low = high = seconds[0]
        else:
            low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(statistics.fmean(seconds), statistics.median(seconds), low, high)


@dataclass(frozen=True)
class StepSplit:
    """The time of a training step, split into the six PHASES.

    `phases` holds one Spread a phase, in the order of PHASES, and `step` that of the whole step. A phase's
    share is its mean over the step's mean, so the shares add up to 1; a median would hide a wait that
    comes once in a few steps.

    `steps` were measured, after `warmup` that were dropped; `samples` went through the measured steps (0
    when the batches do not tell). `method` says how the clock was read.
    """

    phases: Mapping[Phase, Spread]
    step: Spread
    steps: int
    warmup: int
    samples: int
    device: str
    method: str

    @classmethod
    def from_steps(
        cls,
        steps: Sequence[Sequence[float]],
        *,
        samples: int,
        warmup: int = 0,
        device: str = "cpu",
        method: str = "given",
    ) -> "StepSplit":
        """Summarise measured steps: each is six times in seconds, in the order of PHASES.

        Raises CourseError when there is no step, or when a time is negative or not a number.
        """
        if not steps:
            raise CourseError("There is no step to split: measure at least one.")
        for step in steps:
            if len(step) != len(PHASES) or not all(math.isfinite(s) and s >= 0 for s in step):
                raise CourseError(
                    f"A step is {len(PHASES)} times in seconds, 0 or more ({', '.join(PHASES)}), not {step}."
                )
        columns = zip(PHASES, zip(*steps, strict=True), strict=True)
        return cls(
            phases={name: Spread.of(column) for name, column in columns},
            step=Spread.of([math.fsum(step) for step in steps]),
            steps=len(steps),
            warmup=warmup,
            samples=samples,
            device=device,
            method=method,
        )

    @classmethod
    def from_seconds(cls, *, batch_size: int = 0, **seconds: float) -> "StepSplit":
        """A split made by hand: `StepSplit.from_seconds(data=0.040, forward=0.010, batch_size=64)`."""
        unknown = sorted(set(seconds) - set(PHASES))
        if unknown:
            raise CourseError(f"There is no phase {unknown[0]!r}: use {', '.join(PHASES)}.")
        return cls.from_steps([[seconds.get(name, 0.0) for name in PHASES]], samples=batch_size)

    @property
    def seconds(self) -> dict[Phase, float]:
        """Mean seconds a step, by phase."""
        return {name: spread.mean_s for name, spread in self.phases.items()}

    @property
    def shares(self) -> dict[Phase, float]:
        """The share of the step's time that each phase takes; they add up to 1 (all 0 for a step of 0 s)."""
        whole = math.fsum(self.seconds.values())
        return {name: seconds / whole if whole else 0.0 for name, seconds in self.seconds.items()}

    @property
    def dominant(self) -> Phase:
        """The phase with the largest share."""
        return max(PHASES, key=self.seconds.__getitem__)

    @property
    def samples_per_second(self) -> float | None:
        """Throughput over the measured steps; None when the batches did not tell their size."""
        whole = self.step.mean_s * self.steps
        return self.samples / whole if self.samples and whole else None

    @property
    def spread(self) -> float:
        """How much the steps differ: the width of their middle half over their median."""
        return (self.step.high_s - self.step.low_s) / self.step.median_s if self.step.median_s else 0.0

    def to_json(self) -> str:
        """All of it as one JSON object, derived numbers included; times in seconds."""
        derived = {
            "shares": self.shares,
            "dominant": self.dominant,
            "samples_per_second": self.samples_per_second,
            "spread": self.spread,
        }
        return json.dumps(asdict(self) | derived)

    def _title(self) -> str:
        rate = self.samples_per_second
        speed = f", {format_count(rate)} samples a second" if rate else ""
        return f"{format_seconds(self.step.mean_s)} a step{speed}"

    def _closing(self) -> str:
        share = 100 * self.shares[self.dominant]
        lines = f"The largest part is {self.dominant} ({share:.1f} %): {MEANING[self.dominant]}."
        if self.method == "given":
            return lines
        count = f"{self.steps} step{'s' if self.steps != 1 else ''}"
        low, high = format_seconds(self.step.low_s), format_seconds(self.step.high_s)
        return (
            f"{lines} Measured on {self.device} ({self.method}) over {count}, "
            f"after {self.warmup} to warm up; the middle half of them took {low} to {high}."
        )

    def __str__(self) -> str:
        lines = [self._title()]
        for name, spread in self.phases.items():
            share = self.shares[name]
            bar = "#" * round(30 * share)
            lines.append(f"  {name:9} {format_seconds(spread.mean_s):>8} {100 * share:6.1f} %  {bar}")
        return "\n".join([*lines, self._closing()])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{MEANING[name]}</td>"
            f"<td>{format_seconds(spread.mean_s)}</td><td>{format_seconds(spread.median_s)}</td>"
            f"<td>{100 * self.shares[name]:.1f} %</td></tr>"
            for name, spread in self.phases.items()
        )
        return (
            f"<table><caption>{html.escape(self._title())}</caption><thead><tr><th>phase</th>"
            "<th style='text-align:left'>what it is</th><th>mean</th><th>median</th><th>share</th>"
            f"</tr></thead><tbody>{rows}</tbody></table><p>{html.escape(self._closing())}</p>"
        )
