"""What is each number format worth here, and what does a step with precision and accumulation cost?

Speed: a matrix product, a convolution, the course's CNN, ResNet-18 and a small GPT, forward and backward (the
models with their optimizer), in each format of the device, in turns; the median of the ratios to fp32, and
their 10 % and 90 % quantiles. A format that would take too long is not run and says so. Beside them stand
the ratios that NVIDIA publishes for its cards, with their pages.

Overhead: the CNN in bf16 with two micro-batches of 64 an update. `AccumulatingStep` with its windows,
over the same written by hand; the hand-written one also runs against a second copy of itself, which shows the
noise. Lightning (`Trainer(barebones=True)`, its fastest setting) and accelerate do the same. All take turns,
update by update, on the same batches; the median of the ratios counts.

    python benchmarks/precision.py [--rounds 400] [--threads N] [--only speed|overhead] [--json]
"""

import argparse
import copy
import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader
from under_lightning import train_under_lightning

from course_lib.machine import best_device, short_name
from course_lib.models.gpt import GPT, GPTConfig
from course_lib.models.zoo import DigitsCNN, build
from course_lib.train.accumulation import AccumulatingStep
from course_lib.train.data import Digits
from course_lib.train.number_formats.format_times import FormatTimes, time_formats, time_steps
from course_lib.train.number_formats.published_speedups import published_speedups
from course_lib.train.precision import Precision
from course_lib.train.step import TrainingStep

Batch = tuple[Tensor, Tensor]
BATCH_SIZE, MICRO_BATCHES, WARMUP = 64, 2, 15
LEARNING_RATE = 1e-3
DTYPE = torch.bfloat16


def forward_backward(module: nn.Module, inputs: Tensor) -> Callable[[Precision], Callable[[], object]]:
    """For time_formats: one forward and backward pass of a single layer."""

    def make(precision: Precision) -> Callable[[], object]:
        layer, given = copy.deepcopy(module), inputs.clone().requires_grad_()

        def call() -> None:
            with precision.float32_products():
                with precision.autocast():
                    out = layer(given)
                out.sum().backward()

        return call

    return make


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def measure_speed(device: str, budget_s: float) -> list[FormatTimes]:
    settings: dict[str, Any] = {"budget_s": budget_s, "rounds": 40}
    large = device != "cpu"
    torch.manual_seed(0)
    size = 4096 if large else 768
    product, square = nn.Linear(size, size, bias=False).to(device), torch.rand(size, size, device=device)
    convolution = nn.Conv2d(64, 64, 3, padding=1, bias=False).to(device)
    images = torch.rand(256 if large else 8, 64, 56 if large else 32, 56 if large else 32, device=device)
    digits = (
        torch.rand(BATCH_SIZE, 1, 8, 8, device=device),
        torch.randint(0, 10, (BATCH_SIZE,), device=device),
    )
    many, pixels = (128, 224) if large else (4, 96)
    photos = (
        torch.rand(many, 3, pixels, pixels, device=device),
        torch.randint(0, 1000, (many,), device=device),
    )
    gpt = GPT() if large else GPT(GPTConfig(vocabulary=2048, context=128, layers=4, heads=4, width=256))
    ids = torch.randint(0, gpt.config.vocabulary, (8 if large else 2, gpt.config.context), device=device)
    return [
        time_formats(
            f"matrix product, {size} x {size}", forward_backward(product, square), device=device, **settings
        ),
        time_formats(
            f"convolution 3 x 3, 64 channels, {tuple(images.shape)}",
            forward_backward(convolution, images),
            device=device,
            **settings,
        ),
        time_steps(DigitsCNN().to(device), digits, name=f"DigitsCNN, batch {BATCH_SIZE}", **settings),
        time_steps(
            build("resnet18").to(device), photos, name=f"ResNet-18, {many} of {pixels} pixels", **settings
        ),
        time_steps(
            gpt.to(device), (ids, ids), loss_fn=token_loss, name=f"GPT, {tuple(ids.shape)} tokens", **settings
        ),
    ]


def parts(start: nn.Module) -> tuple[nn.Module, Optimizer]:
    model = copy.deepcopy(start)
    return model, AdamW(model.parameters(), lr=LEARNING_RATE)


Update = Callable[[list[Batch]], None]


def by_hand(start: nn.Module) -> Update:
    model, optimizer = parts(start)

    def update(micro_batches: list[Batch]) -> None:
        optimizer.zero_grad()
        for images, labels in micro_batches:
            with torch.autocast("cpu", dtype=DTYPE):
                loss = cross_entropy(model(images), labels)
            (loss / len(micro_batches)).backward()
        optimizer.step()

    return update


def by_course(start: nn.Module) -> Update:
    """One endless pass over what is handed in, cut into windows as in any loop."""
    step = AccumulatingStep(TrainingStep(*parts(start), precision="bf16"), MICRO_BATCHES)
    waiting: list[Batch] = []

    def source() -> Iterator[Batch]:
        while True:
            yield waiting.pop(0)

    windows = step.windows(source())

    def update(micro_batches: list[Batch]) -> None:
        waiting.extend(micro_batches)
        step(next(windows))

    return update


def by_accelerate(start: nn.Module) -> Update:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=MICRO_BATCHES)
    model, optimizer = accelerator.prepare(*parts(start))

    def update(micro_batches: list[Batch]) -> None:
        for images, labels in micro_batches:
            with accelerator.accumulate(model):
                with accelerator.autocast():
                    loss = cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()

    return update


class TakingTurns:
    """Updates of all contenders in turns, in random order; as a loader, the guests go before Lightning."""

    def __init__(self, rounds: int, batches: list[Batch], guests: dict[str, Update]) -> None:
        self.rounds = WARMUP + rounds
        self.batches = batches
        self.guests = guests
        self.seconds: dict[str, list[float]] = {name: [] for name in (*guests, "lightning")}

    def __len__(self) -> int:
        return self.rounds * MICRO_BATCHES

    def run(self) -> None:
        """The guests alone, without a loop that is measured."""
        for window in self._windows():
            self._guests(window)

    def __iter__(self) -> Iterator[Batch]:
        for window in self._windows():
            self._guests(window)
            took = 0.0
            for batch in window:
                begin = time.perf_counter()
                yield batch
                took += time.perf_counter() - begin
            self.seconds["lightning"].append(took)

    def _windows(self) -> Iterator[list[Batch]]:
        source = cycle(self.batches)
        for _ in range(self.rounds):
            yield list(islice(source, MICRO_BATCHES))

    def _guests(self, window: list[Batch]) -> None:
        order = list(self.guests)
        random.shuffle(order)
        for name in order:
            begin = time.perf_counter()
            self.guests[name](window)
            self.seconds[name].append(time.perf_counter() - begin)

    def over_hand(self, name: str) -> float | None:
        """The median over the rounds of a contender's time over that of the update by hand."""
        pairs = list(zip(self.seconds.get(name, ()), self.seconds["hand"], strict=False))[WARMUP:]
        return statistics.median(own / hand for own, hand in pairs) if pairs else None

    def milliseconds(self, name: str) -> float:
        """The median time of a contender's update."""
        return 1e3 * statistics.median(self.seconds[name][WARMUP:])


def measure_overhead(rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    start = DigitsCNN()
    loader = DataLoader(Digits("train"), BATCH_SIZE, shuffle=True, drop_last=True)
    batches: list[Batch] = [tuple(batch) for batch in loader]
    guests = {"hand": by_hand(start), "hand again": by_hand(start), "course": by_course(start)}
    if importlib.util.find_spec("accelerate"):
        guests["accelerate"] = by_accelerate(start)
    own = TakingTurns(rounds, batches, guests)
    own.run()
    other: TakingTurns | None = None
    if importlib.util.find_spec("lightning"):
        other = TakingTurns(rounds, batches, {"hand": by_hand(start)})
        train_under_lightning(
            *parts(start), other, precision="bf16-mixed", accumulate_grad_batches=MICRO_BATCHES
        )
    again = own.over_hand("hand again")
    return {
        "course_over_hand": own.over_hand("course"),
        "a_a_spread": None if again is None else abs(again - 1),
        "accelerate_over_hand": own.over_hand("accelerate"),
        "lightning_over_hand": other.over_hand("lightning") if other else None,
        "hand_ms": own.milliseconds("hand"),
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=400, help="updates of the overhead")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="intra-op threads")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each format of each work")
    parser.add_argument(
        "--device", default=best_device(), help="of the speed; the overhead is the processor's"
    )
    parser.add_argument("--only", choices=("speed", "overhead"), help="one of the two halves")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    random.seed(0)
    result: dict[str, Any] = {
        "machine": short_name(),
        "device": arguments.device,
        "threads": arguments.threads,
        "torch": torch.__version__,
    }
    speed = [] if arguments.only == "overhead" else measure_speed(arguments.device, arguments.budget)
    if speed:
        result["speed"] = [times.to_json() for times in speed]
        result["published"] = [{**asdict(row), "times": row.times} for row in published_speedups()]
    if arguments.only != "speed":
        result["overhead"] = measure_overhead(arguments.rounds)
        for rival in ("lightning", "accelerate"):
            if result["overhead"][f"{rival}_over_hand"] is None:
                told = f'{rival} is not installed: pip install "efficient-training-course[bench]"'
                print(told, file=sys.stderr)
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['machine']}, {arguments.threads} threads, torch {result['torch']}\n")
    for times in speed:
        print(f"{times}\n")
    if speed:
        print("published by NVIDIA, one card:")
        for row in published_speedups():
            print(f"  {row}")
    if "overhead" in result:
        print(f"\none update of {MICRO_BATCHES} x {BATCH_SIZE} digits in bf16, over the same by hand:")
        for name, value in result["overhead"].items():
            print(f"  {name:22} {value if value is None else round(value, 4)}")


if __name__ == "__main__":
    main()
