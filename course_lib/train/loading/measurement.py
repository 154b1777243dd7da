"""What did the measurement of a loader say, and how is it told?"""

import html
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from course_lib.units import format_count, format_seconds

StallPart = Literal["reading", "decoding", "collating", "transfer", "slower step"]
Unit = Literal["samples", "steps"]  # steps where the batches do not tell their samples
STALL_PARTS: tuple[StallPart, ...] = get_args(StallPart)

MEANING: Mapping[StallPart, str] = {
    "reading": "waiting for files or another storage",
    "decoding": "decoding and transforming samples",
    "collating": "making one batch of the samples",
    "transfer": "handing the batch over, from a worker and on to the device",
    "slower step": "the step itself, slowed down because the loader takes its cores",
}


@dataclass(frozen=True)
class Rate:
    """Samples (or steps) a second: the median over the repeats, and the lowest and highest of them."""

    median: float
    low: float
    high: float
    repeats: int
    unit: Unit = "samples"

    @classmethod
    def of(cls, rates: Sequence[float], unit: Unit = "samples") -> "Rate":
        """From at least one repeat."""
        return cls(statistics.median(rates), min(rates), max(rates), len(rates), unit)

    def __str__(self) -> str:
        return (
            f"{format_count(self.median)} {self.unit}/s "
            f"({format_count(self.low)} to {format_count(self.high)})"
        )


@dataclass(frozen=True)
class LoaderMeasurement:
    """How fast a step is alone, with batches that lie ready, and with its real loader.

    `alone` replays one batch that is on the device already. `cached` replays a few ready batches, with their
    transfer. `real` is the loader, in its steady state: `first_batch_s`, what each epoch waits for its first
    batch, is not part of it. `step_s`, `wait_s` and `transfer_s` are mean seconds of a step with the real
    loader. `stall` holds the seconds of each part of the stall of a step; None where the loader is no
    `DataLoader`, whose making cannot be looked into.
    """

    alone: Rate
    cached: Rate
    real: Rate
    step_s: float
    step_alone_s: float
    wait_s: float
    transfer_s: float
    stall: Mapping[StallPart, float] | None
    first_batch_s: tuple[float, ...]
    batches: int
    num_workers: int
    device: str
    emulated: bool

    @property
    def total_s(self) -> float:
        """Mean seconds from one batch to the next."""
        return self.step_s + self.wait_s + self.transfer_s

    @property
    def stall_s(self) -> float:
        """Mean seconds of a step in which the step alone would be over already.

        Where the step was faster here than alone, which noise does, its time here counts.
        """
        return self.total_s - min(self.step_s, self.step_alone_s)

    @property
    def waiting(self) -> float:
        """The share of the time in which the step waits, 0 to 1."""
        return self.stall_s / self.total_s if self.total_s else 0.0

    @property
    def of_alone(self) -> float:
        """Throughput as a share of what the step could do alone."""
        return self.real.median / self.alone.median if self.alone.median else 0.0

    @property
    def shares(self) -> dict[StallPart, float]:
        """Each part's share of the whole time, 0 to 1; together they are `waiting`. Empty where unknown."""
        if self.stall is None:
            return {}
        return {part: seconds / self.total_s for part, seconds in self.stall.items()}

    @property
    def largest(self) -> StallPart | None:
        """The largest part of the stall; None where there is none or it is not known."""
        if not self.stall or not any(self.stall.values()):
            return None
        return max(self.stall, key=self.stall.__getitem__)

    def to_json(self) -> str:
        """All of it as one JSON object, derived numbers included; times in seconds."""
        derived = {"waiting": self.waiting, "of_alone": self.of_alone, "shares": self.shares}
        return json.dumps(asdict(self) | derived)

    def _rows(self) -> list[tuple[str, str]]:
        rows = [
            ("the step alone", str(self.alone)),
            ("with batches that lie ready", str(self.cached)),
            ("with its loader", f"{self.real}: {100 * self.of_alone:.0f} % of the step alone"),
            ("the step waits", f"{100 * self.waiting:.1f} % of the time"),
        ]
        for part, share in self.shares.items():
            if share >= 0.0005 or part != "slower step":
                seconds = format_seconds(self.total_s * share)
                rows.append((f"  {part}", f"{100 * share:.1f} %, {seconds} a step: {MEANING[part]}"))
        if self.first_batch_s:
            rows.append(("first batch of an epoch", f"after {format_seconds(self.first_batch_s[0])}"))
        return rows

    def _closing(self) -> str:
        kind = "an emulated step" if self.emulated else f"a step on {self.device}"
        workers = f"{self.num_workers} worker{'' if self.num_workers == 1 else 's'}"
        return f"Measured over {self.batches} batches with {workers}, beside {kind}."

    def __str__(self) -> str:
        wide = max(len(name) for name, _ in self._rows())
        return "\n".join([*(f"{name:{wide}}  {value}" for name, value in self._rows()), self._closing()])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left;white-space:pre">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        return f"<table>{rows}</table><p>{html.escape(self._closing())}</p>"
