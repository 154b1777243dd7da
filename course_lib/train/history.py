"""What came out of a training run?

Plain results of `train` and `evaluate`: no torch, they print themselves and turn into JSON.
"""

import html
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from course_lib.units import format_count, format_seconds, format_share


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on `samples` samples: mean loss, and accuracy as a share from 0 to 1."""

    loss: float
    accuracy: float
    samples: int

    def __str__(self) -> str:
        accuracy = format_share(self.accuracy)
        return f"accuracy {accuracy}, loss {self.loss:.3g}, on {format_count(self.samples)} samples"


@dataclass(frozen=True)
class EpochResult:
    """One epoch, counted from 1: its mean training loss, its test if there was one, and its seconds.

    The training loss is the mean over the epoch's samples as each was trained on, with dropout and while
    the weights still changed. The seconds hold the test too.
    """

    epoch: int
    train_loss: float
    test: Evaluation | None
    seconds: float


@dataclass(frozen=True)
class History:
    """The complete epochs of a run; `stopped` says why it ended before its time, if it did."""

    epochs: tuple[EpochResult, ...]
    stopped: str | None = None

    @property
    def train_losses(self) -> list[float]:
        """The training loss of each epoch."""
        return [epoch.train_loss for epoch in self.epochs]

    @property
    def test_losses(self) -> list[float]:
        """The test loss of each epoch that was tested."""
        return [epoch.test.loss for epoch in self.epochs if epoch.test]

    @property
    def test_accuracies(self) -> list[float]:
        """The test accuracy of each epoch that was tested, from 0 to 1."""
        return [epoch.test.accuracy for epoch in self.epochs if epoch.test]

    @property
    def seconds(self) -> float:
        """Seconds of all complete epochs."""
        return sum(epoch.seconds for epoch in self.epochs)

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self))

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        return [
            (
                str(epoch.epoch),
                f"{epoch.train_loss:.4f}",
                f"{epoch.test.loss:.4f}" if epoch.test else "",
                format_share(epoch.test.accuracy) if epoch.test else "",
                format_seconds(epoch.seconds),
            )
            for epoch in self.epochs
        ]

    def _closing(self) -> str:
        many = len(self.epochs)
        text = f"{many} epoch{'s' if many != 1 else ''} in {format_seconds(self.seconds)}."
        return f"{text} Stopped early: {self.stopped}." if self.stopped else text

    def __str__(self) -> str:
        head = ("epoch", "train loss", "test loss", "accuracy", "time")
        lines = ["  ".join(f"{cell:>10}" for cell in row) for row in (head, *self._rows())]
        return "\n".join([*lines, self._closing()])

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{name}</th>" for name in ("epoch", "train loss", "test loss", "accuracy", "time")
        )
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._rows()
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{html.escape(self._closing())}</p>"
        )


@dataclass(frozen=True)
class Progress:
    """Where a run is, as its callback hears it.

    `epoch` and `step` count from 1, the step within its epoch of `steps_per_epoch` (None when the loader
    does not know). `loss` is that of the last batch. `epochs` holds the complete epochs so far; at the end
    of an epoch its result is the last of them.
    """

    epoch: int
    step: int
    steps_per_epoch: int | None
    loss: float
    epochs: tuple[EpochResult, ...]


Callback = Callable[[Progress], None]
