"""How is a predicted step time told? Seconds with an interval, what bounds them, and where they go."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any

from course_lib.units import format_seconds

BOUNDS = ("compute", "memory", "launch")


@dataclass(frozen=True)
class Share:
    """One part of a step: its seconds, what bounds it, and the work in it.

    ``name`` is a phase (``forward``), a module (``layer1.0.conv1``) or a kind of work (``dense3.weight``).
    ``flops / nbytes`` is the arithmetic intensity, the x axis of a roofline picture.
    """

    name: str
    seconds: float
    bound: str
    flops: float
    nbytes: float


@dataclass(frozen=True)
class StepTime:
    """The predicted time of one optimizer step on one card.

    ``seconds`` is the typical figure; in nine of ten cases like those of the calibration the truth lies
    between ``low`` and ``high``. ``batch_size``: samples of one micro-batch; ``accumulate``: micro-batches
    in one step. ``bound``: what most of the time is spent waiting for: ``compute`` (arithmetic), ``memory``
    (bytes moved) or ``launch`` (the processor that hands out the work). ``mfu``: floating-point operations
    of the model over what the card could do at its dense peak in this precision. ``forward``, ``backward``,
    ``optimizer``: seconds of each phase. ``gradients``: for each, the share of the backward pass after
    which it is ready, and its bytes. ``warnings``: what lies outside the calibration.
    """

    model: str
    card: str
    batch_size: int
    precision: str
    accumulate: int
    seconds: float
    low: float
    high: float
    bound: str
    flops: float
    peak_flops_per_second: float
    forward: float
    backward: float
    optimizer: float
    gradients: tuple[tuple[float, int], ...]
    modules: tuple[Share, ...]
    kinds: tuple[Share, ...]
    calibration: str
    warnings: tuple[str, ...] = ()

    @property
    def samples_per_second(self) -> float:
        """Samples that one card works through in a second."""
        return self.batch_size * self.accumulate / self.seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, 0 to 1."""
        return self.flops / self.seconds / self.peak_flops_per_second

    @property
    def spread(self) -> float:
        """By what factor the truth may lie above: ``high / seconds``."""
        return self.high / self.seconds

    def seconds_for(self, samples: int, epochs: float = 1.0) -> float:
        """Seconds of a whole training over ``samples`` samples, ``epochs`` times."""
        return samples * epochs / self.samples_per_second

    def to_json(self) -> dict[str, Any]:
        """Plain data under the names of ``course plan --json``; without the long list of modules."""
        return {
            "model": self.model,
            "card": self.card,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "accumulate": self.accumulate,
            "step_seconds": self.seconds,
            "step_seconds_low": self.low,
            "step_seconds_high": self.high,
            "samples_per_second": self.samples_per_second,
            "bound": self.bound,
            "mfu": self.mfu,
            "forward_seconds": self.forward,
            "backward_seconds": self.backward,
            "optimizer_seconds": self.optimizer,
            "kinds": [asdict(share) for share in self.kinds],
            "calibration": self.calibration,
            "warnings": list(self.warnings),
        }

    @property
    def _subject(self) -> str:
        step = f"batch {self.batch_size}" + (f" x {self.accumulate}" if self.accumulate > 1 else "")
        return f"{self.model}, {step}, {self.precision}, on {self.card}"

    @property
    def _figures(self) -> str:
        return (
            f"{format_seconds(self.seconds)} a step "
            f"({format_seconds(self.low)} to {format_seconds(self.high)} in nine of ten cases), "
            f"{self.samples_per_second:,.0f} samples/s, bound by {self.bound}, MFU {100 * self.mfu:.0f} %"
        )

    def __str__(self) -> str:
        lines = [f"{self._subject}: {self._figures}"]
        lines.append(
            f"  forward {format_seconds(self.forward)}, backward {format_seconds(self.backward)}, "
            f"optimizer {format_seconds(self.optimizer)}"
        )
        lines += [
            f"  {format_seconds(share.seconds):>9}  {share.name} ({share.bound})" for share in self.kinds[:6]
        ]
        lines.append(f"  {self.calibration}")
        lines += [f"  Note: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(format_seconds(share.seconds))}</td>"
            f"<td style='text-align:left'>{html.escape(share.name)}</td>"
            f"<td>{html.escape(share.bound)}</td></tr>"
            for share in self.kinds[:6]
        )
        notes = "".join(f"<br>{html.escape(warning)}" for warning in self.warnings)
        return (
            f"{html.escape(self._subject)}: <b>{html.escape(self._figures)}</b>"
            f"<table>{rows}</table>{html.escape(self.calibration)}{notes}"
        )
