"""Which stages does a network have, and how long does one image take in each, on this machine?

`ConvStage` and `LinearStage` describe a network well enough to count its operations. `measure` runs the
convolution stages one at a time in a child process and gives their times: the memory of a stage is free
again before the next one, and all of it when the child ends. Run as a module, this file is that child.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError

TIME_LIMIT_S = 300.0


@dataclass(frozen=True)
class ConvStage:
    """A row of 3 × 3 convolutions, each with a ReLU, at one picture size, then a 2 × 2 max pooling.

    `channels` are those of the input and then of each convolution's output; `size` is the height and
    width of the pictures in pixels.
    """

    name: str
    channels: tuple[int, ...]
    size: int

    @property
    def forward_flops(self) -> int:
        """Floating-point operations of the convolutions for one image: 2 × 9 × in × out × height × width.

        A multiplication and an addition count as two. Biases, ReLU and pooling are left out: under 1 %.
        """
        pairs = zip(self.channels, self.channels[1:], strict=False)
        return sum(2 * 9 * before * after * self.size**2 for before, after in pairs)

    def build(self) -> nn.Module:
        """The stage as a module, with random weights."""
        layers: list[nn.Module] = []
        for before, after in zip(self.channels, self.channels[1:], strict=False):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*layers, nn.MaxPool2d(2))


@dataclass(frozen=True)
class LinearStage:
    """Fully connected layers, each with a ReLU but the last; `features` as `channels` of a ConvStage."""

    name: str
    features: tuple[int, ...]

    @property
    def forward_flops(self) -> int:
        """Floating-point operations for one image: 2 × in × out, summed over the layers."""
        return sum(
            2 * before * after for before, after in zip(self.features, self.features[1:], strict=False)
        )


Stage = ConvStage | LinearStage

# Simonyan and Zisserman 2014, table 1, column D; the pooling after each stage halves the picture.
VGG16: tuple[Stage, ...] = (
    ConvStage("conv1", (3, 64, 64), 224),
    ConvStage("conv2", (64, 128, 128), 112),
    ConvStage("conv3", (128, 256, 256, 256), 56),
    ConvStage("conv4", (256, 512, 512, 512), 28),
    ConvStage("conv5", (512, 512, 512, 512), 14),
    LinearStage("fc6 to fc8", (25088, 4096, 4096, 1000)),
)


def measure(
    stages: Sequence[ConvStage],
    *,
    batch_size: int,
    device: str,
    budget_s: float,
    time_limit_s: float = TIME_LIMIT_S,
) -> Generator[float, None, None]:
    """Seconds of forward and backward over a batch, one stage after the other, as each is done.

    Each stage is run once to warm up, then again until its part of `budget_s` is over, at least once. The
    median counts, without the warm-up. The child uses as many threads as this process, and is ended when
    the caller stops listening. Raises CourseError when it fails or takes longer than `time_limit_s`.
    """
    order = {
        "stages": [asdict(stage) for stage in stages],
        "batch_size": batch_size,
        "device": device,
        "threads": torch.get_num_threads(),
        "seconds": budget_s / len(stages),
    }
    package_root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        [sys.executable, "-m", "course_lib.train.stages", json.dumps(order)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": path},
    )
    late = threading.Event()

    def end_it() -> None:
        late.set()  # before its end is seen
        child.kill()

    alarm = threading.Timer(time_limit_s, end_it)
    alarm.start()
    try:
        assert child.stdout is not None
        done = 0
        for line in child.stdout:
            yield float(line)
            done += 1
        _, complaint = child.communicate()
        if late.is_set() and done < len(stages):
            raise CourseError(
                f"Stage {stages[done].name} was not done after {time_limit_s:.0f} s: this machine is too "
                "slow or too busy for it; try again with a smaller batch_size."
            )
        if child.returncode or done < len(stages):
            reason = complaint.strip().rpartition("\n")[2] or f"exit status {child.returncode}"
            raise CourseError(
                f"Stage {stages[min(done, len(stages) - 1)].name} could not be run on {device} ({reason}): "
                "try a smaller batch_size."
            )
    finally:
        alarm.cancel()
        child.kill()
        child.communicate()


def _stage_seconds(stage: ConvStage, first: bool, order: dict[str, Any]) -> float:
    """Median seconds of forward and backward over a batch."""
    device = torch.device(order["device"])
    module = stage.build().to(device)
    # Only the first stage of a network does without the gradient of its input.
    shape = (order["batch_size"], stage.channels[0], stage.size, stage.size)
    images = torch.rand(shape, device=device, requires_grad=not first)
    deadline = time.perf_counter() + order["seconds"]
    _forward_backward(module, images)
    times: list[float] = []
    while not times or time.perf_counter() < deadline:
        times.append(_forward_backward(module, images))
    return statistics.median(times)


def _forward_backward(module: nn.Module, images: Tensor) -> float:
    """Seconds of one forward and backward pass, the device's work included."""
    module.zero_grad()
    images.grad = None
    begin = time.perf_counter()
    outputs = module(images)
    outputs.backward(torch.ones_like(outputs))
    if images.device.type == "cuda":
        torch.cuda.synchronize(images.device)
    elif images.device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - begin


def _child(order: dict[str, Any]) -> None:
    torch.set_num_threads(order["threads"])
    for number, fields in enumerate(order["stages"]):
        stage = ConvStage(fields["name"], tuple(fields["channels"]), fields["size"])
        print(_stage_seconds(stage, number == 0, order), flush=True)


if __name__ == "__main__":
    _child(json.loads(sys.argv[1]))
