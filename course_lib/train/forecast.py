"""How long would a big network train on this machine?

A network is given as stages. The convolution stages are run one at a time on this machine, forward and
backward, in a child process, so that little memory is needed and all of it comes back. What is too big to
run here (the fully connected layers of VGG-16 hold 124 million numbers, and as many gradients) is scaled
by its floating-point operations, at the rate that the measured stages reached. `Forecast` shows the sum.
"""

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from course_lib.errors import CourseError
from course_lib.train.stages import VGG16, ConvStage, Stage, measure
from course_lib.units import format_count, format_seconds

IMAGENET_IMAGES = 1_281_167  # training images of ILSVRC 2012, Russakovsky et al. 2015, table 2


@dataclass(frozen=True)
class StageTime:
    """Forward and backward of one stage, for one image, and whether that was measured here or scaled."""

    name: str
    forward_flops: int
    seconds: float
    how: Literal["measured", "scaled"]

    @property
    def training_flops(self) -> int:
        """Three times the forward pass: the backward pass computes two gradients of the same size."""
        return 3 * self.forward_flops


@dataclass(frozen=True)
class Forecast:
    """The time to train a network on one machine, and how it was found.

    Only forward and backward count: loading the images and the optimizer come on top.
    """

    network: str
    device: str
    batch_size: int
    rows: tuple[StageTime, ...]
    images_per_epoch: int

    @property
    def seconds_per_image(self) -> float:
        """Forward and backward of all stages, for one image."""
        return sum(row.seconds for row in self.rows)

    @property
    def images_per_second(self) -> float:
        """Throughput."""
        return 1 / self.seconds_per_image

    @property
    def flops_per_second(self) -> float:
        """The rate that the measured stages reached, by which the others are scaled."""
        measured = [row for row in self.rows if row.how == "measured"]
        return sum(row.training_flops for row in measured) / sum(row.seconds for row in measured)

    @property
    def epoch_hours(self) -> float:
        """Hours for one pass over the data set."""
        return self.seconds_per_image * self.images_per_epoch / 3600

    def days(self, epochs: int) -> float:
        """Days for so many epochs; the authors of VGG trained for 74, others often for 90."""
        return self.epoch_hours * epochs / 24

    def to_json(self) -> str:
        """All of it as one JSON object, derived numbers included."""
        derived = {
            "seconds_per_image": self.seconds_per_image,
            "images_per_second": self.images_per_second,
            "flops_per_second": self.flops_per_second,
            "epoch_hours": self.epoch_hours,
            "days_74_epochs": self.days(74),
            "days_90_epochs": self.days(90),
        }
        return json.dumps(asdict(self) | derived)

    def arithmetic(self) -> list[str]:
        """The way from the rows to the days, a line a step."""
        each = format_seconds(self.seconds_per_image)
        epoch = format_seconds(self.seconds_per_image * self.images_per_epoch)
        return [
            f"measured stages: {format_count(self.flops_per_second, 'FLOP')} a second; "
            "scaled = 3 × forward FLOPs / that rate",
            f"sum: {each} an image, {self.images_per_second:.3g} images a second",
            f"an epoch: {each} × {self.images_per_epoch:,} images = {epoch}",
            f"74 epochs: {_days(self.days(74))} days; 90 epochs: {_days(self.days(90))} days",
            f"on {self.device}, in batches of {self.batch_size}; loading and optimizer come on top",
        ]

    def _cells(self) -> list[tuple[str, str, str, str]]:
        return [
            (row.name, format_count(row.forward_flops, "FLOP"), format_seconds(row.seconds), row.how)
            for row in self.rows
        ]

    def __str__(self) -> str:
        lines = [f"{self.network}: forecast of the training time"]
        lines += [
            f"  {name:12} {flops:>11} {seconds:>9}  {how}" for name, flops, seconds, how in self._cells()
        ]
        return "\n".join([*lines, *self.arithmetic()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("stage", "forward, an image", "training time", "how"))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in self._cells()
        )
        sums = "<br>".join(html.escape(line) for line in self.arithmetic())
        return (
            f"<table><caption>{html.escape(self.network)}: forecast of the training time</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{sums}</p>"
        )


def _days(days: float) -> str:
    return f"{days:,.0f}" if days >= 10 else f"{days:.2g}"


def forecast(
    stages: Sequence[Stage] = VGG16,
    *,
    network: str = "VGG-16 on ImageNet",
    images_per_epoch: int = IMAGENET_IMAGES,
    batch_size: int | None = None,
    device: str = "cpu",
    budget_s: float = 5.0,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Forecast the training time of a network on this machine.

    Each ConvStage is run once to warm up, then repeated for its part of `budget_s` seconds, at least once;
    `progress(done, of)` is called after each. The batch is by default 1 image on a CPU, which is busy with
    that, and 16 elsewhere. VGG-16 with 1 image takes the child process under 0.8 GiB, for some seconds.

    Raises CourseError when no stage can be measured, and when the child fails or takes over five minutes.
    """
    measurable = [stage for stage in stages if isinstance(stage, ConvStage)]
    if not measurable:
        raise CourseError(
            "A forecast needs at least one ConvStage: the rest is scaled from what is measured."
        )
    if batch_size is None:
        batch_size = 1 if device == "cpu" else 16
    if batch_size < 1 or images_per_epoch < 1:
        raise CourseError("A forecast needs a batch and an epoch of at least 1 image.")
    seconds: list[float] = []
    for batch_seconds in measure(measurable, batch_size=batch_size, device=device, budget_s=budget_s):
        seconds.append(batch_seconds / batch_size)
        if progress is not None:
            progress(len(seconds), len(measurable))
    rate = sum(stage.forward_flops for stage in measurable) / sum(seconds)
    measured = iter(seconds)
    rows = [
        StageTime(stage.name, stage.forward_flops, next(measured), "measured")
        if isinstance(stage, ConvStage)
        else StageTime(stage.name, stage.forward_flops, stage.forward_flops / rate, "scaled")
        for stage in stages
    ]
    return Forecast(network, device, batch_size, tuple(rows), images_per_epoch)
