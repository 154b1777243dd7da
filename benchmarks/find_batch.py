"""How many trials, and how many failures, does it take to find the largest batch, and how near does it come?

    python benchmarks/find_batch.py --truth memory_a100_40gb_timm.csv [--limit N] [--minutes M] [--no-child]
                                    [--json]

Three devices, each with a memory that is known exactly, so that the true largest batch is known too:

- *replayed*: each timm model named in the table is traced, and its training step (float32, SGD with
  momentum) is replayed through the caching allocator of an A100 with 40 GB, which is what runs out of memory.
- *measured*: the table's own readings of each model, joined by straight lines; the card is as large as the
  largest reading.
- *child*: a small network trains for real in a child process that the system limits to some tens of MiB.

Rivals search on the replayed device through their own code: Lightning's `Tuner.scale_batch_size` in both
modes at its defaults, and accelerate's `find_executable_batch_size` at its default. A trial is one batch
size that was tried; `of_max` is the batch found over the true largest. The measured device comes first.
Ctrl-C or SIGTERM ends the replayed one and the rest, and what was found until then is told.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from truth_tables import Row, as_json, quantile, read_table, sample

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.plan import allocator
from course_lib.plan.allocator import MIB, CachingAllocator
from course_lib.plan.batch_size import traces_of
from course_lib.plan.memory import largest_batch_that, rule_of
from course_lib.plan.model_names import named_workload
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.replay import compile_program, replay
from course_lib.plan.stacks import find_stack
from course_lib.train.limits import run_limited
from course_lib.train.rescue import find_batch_size
from course_lib.train.rescue.memory_meter import AllocatorMeter

CARD = find_accelerator("A100 40GB")
CHILD = "course_lib.train.limits.limited_training"
CHILD_CASES = (("48 MiB", 28), ("96 MiB", 28), ("96 MiB", 48), ("160 MiB", 64))  # memory, image size


class Device(Protocol):
    """A device on which a step of each batch size takes a known memory."""

    capacity: int
    idle: int
    gaps: float

    def needs(self, batch_size: int) -> int | None:
        """The peak in bytes; None if the step does not fit."""
        ...


@dataclass
class Replayed:
    """A timm model's training step on a replayed card."""

    model: str
    capacity: int = 0
    idle: int = 0
    gaps: float = AllocatorMeter.gaps
    _known: dict[int, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        workload = named_workload(f"timm:{self.model}")
        self._traces = traces_of(workload)
        self._stack = find_stack("a100-timm")
        self._optimizer = optimizer_rule("sgd")
        first = self._traces.at(1)
        loader = int(self._stack.input_batches * sum(b.nbytes for b in first.blocks if b.category == "input"))
        self.capacity = CARD.usable_bytes - int(self._stack.context_mib * MIB) - loader
        self.idle = sum(block.nbytes for block in first.parameters)

    def needs(self, batch_size: int) -> int | None:
        """The most bytes allocated in two steps."""
        if batch_size not in self._known:
            program = compile_program(self._traces.at(batch_size), rule_of(self._stack, "fp32"))
            card = CachingAllocator(self.capacity)
            try:
                replay(program, card, self._optimizer)
                self._known[batch_size] = card.allocated_peak
            except allocator.OutOfMemoryError:
                self._known[batch_size] = None
        return self._known[batch_size]


@dataclass
class Measured:
    """A model's own readings, joined by straight lines, in bytes by batch size."""

    readings: dict[int, float]

    def __post_init__(self) -> None:
        self.capacity = int(max(self.readings.values()))
        self.idle = int(find_stack("a100-timm").context_mib * MIB)  # what nvidia-smi shows before training
        self.gaps = 0.0
        self._sizes = sorted(self.readings)

    def needs(self, batch_size: int) -> int | None:
        """The reading between its neighbours; the outer lines go on."""
        index = min(max(bisect_right(self._sizes, batch_size) - 1, 0), len(self._sizes) - 2)
        low, high = self._sizes[index], self._sizes[index + 1]
        slope = (self.readings[high] - self.readings[low]) / (high - low)
        found = int(self.readings[low] + slope * (batch_size - low))
        return found if found <= self.capacity else None


class Stand:
    """Where a search tries its steps: counts trials and failures, and reads the memory."""

    name = "allocated on the device"

    def __init__(self, device: Device) -> None:
        self.device = device
        self.gaps = device.gaps
        self.tried: list[int] = []
        self.fitted: dict[int, bool] = {}
        self._peak = 0

    def step(self, batch_size: int) -> None:
        """One training step. Raises what PyTorch raises on a CUDA card."""
        found = self.device.needs(batch_size)
        self.fitted[batch_size] = found is not None
        if found is None:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
                f"{self.device.capacity / 2**30:.2f} GiB of which 2.00 MiB is free."
            )
        self._peak = max(self._peak, found)

    def begin(self) -> int:
        """Forget the peak."""
        self._peak = self.device.idle
        return self._peak

    def peak(self) -> int:
        """The most bytes since then."""
        return self._peak

    def limit(self) -> int:
        """The device's memory."""
        return self.device.capacity


@dataclass(frozen=True)
class Outcome:
    """One search: how many trials, how many of them failed, and the share of the true largest batch."""

    trials: int
    ooms: int
    of_max: float


Search = Callable[[Device, int], Outcome]


def course(device: Device, truth: int) -> Outcome:
    stand = Stand(device)
    found = find_batch_size(stand.step, meter=stand)
    return Outcome(len(found.trials), found.ooms, found.batch_size / truth)


def lightning_search(mode: str) -> Search:
    """Lightning's BatchSizeFinder through its Tuner, at its defaults: three steps a trial, from 2 to 8192."""

    def search(device: Device, truth: int) -> Outcome:
        import lightning
        from lightning.pytorch.tuner import Tuner

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # its import sets another level
        stand = Stand(device)

        class Numbers(torch.utils.data.Dataset[torch.Tensor]):
            def __len__(self) -> int:
                return 1 << 20

            def __getitem__(self, index: int) -> torch.Tensor:
                return torch.zeros(1)

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.batch_size = 2
                self.weight = torch.nn.Parameter(torch.zeros(1))

            def train_dataloader(self) -> Any:
                return torch.utils.data.DataLoader(Numbers(), batch_size=self.batch_size, collate_fn=len)

            def on_train_start(self) -> None:
                stand.tried.append(self.batch_size)

            def training_step(self, batch: int, index: int) -> torch.Tensor:
                stand.step(batch)
                return self.weight.sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.0)

        with tempfile.TemporaryDirectory() as folder:
            trainer = lightning.Trainer(
                accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
            )  # fmt: skip
            found = Tuner(trainer).scale_batch_size(Module(), mode=mode) or 0
        return Outcome(len(stand.tried), sum(not stand.fitted[size] for size in stand.tried), found / truth)

    return search


def accelerate_search(device: Device, truth: int) -> Outcome:
    """accelerate's decorator at its default, which starts at 128 and shrinks by a tenth."""
    from accelerate.utils import find_executable_batch_size

    stand = Stand(device)

    @find_executable_batch_size
    def training(batch_size: int) -> int:
        stand.tried.append(batch_size)
        stand.step(batch_size)
        return batch_size

    found = training()
    return Outcome(len(stand.tried), sum(not stand.fitted[size] for size in stand.tried), found / truth)


RIVALS: dict[str, Search] = {
    "lightning power": lightning_search("power"),
    "lightning binsearch": lightning_search("binsearch"),
    "accelerate": accelerate_search,
}


def largest(device: Device) -> int:
    """The true largest batch."""
    return largest_batch_that(lambda size: device.needs(size) is not None)


def summary(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Means of trials and failures, median and tenth percentile of the share of the true maximum."""
    if not outcomes:
        return {"searches": 0}
    shares = [outcome.of_max for outcome in outcomes]
    return {
        "trials": statistics.fmean(outcome.trials for outcome in outcomes),
        "ooms": statistics.fmean(outcome.ooms for outcome in outcomes),
        "of_max": statistics.median(shares),
        "of_max_p10": quantile(shares, 0.1),
        "of_max_least": min(shares),
        "searches": len(outcomes),
    }


def on_replayed(models: Sequence[str], minutes: float) -> tuple[dict[str, list[Outcome]], list[str]]:
    """Every search on every model's replayed step, for so many minutes, and the models for which there is
    none.
    """
    import timm

    found: dict[str, list[Outcome]] = defaultdict(list)
    left_out: list[str] = []
    end = time.monotonic() + 60 * minutes
    for number, model in enumerate(models):
        if time.monotonic() > end:
            left_out.append(f"{len(models) - number} models: the time was over")
            break
        if not timm.is_model(model):
            left_out.append(f"{model}: timm does not know it any more")
            continue
        try:
            device = Replayed(model)
            truth = largest(device)
            outcomes = {
                name: search(device, truth) for name, search in {"course": course, **RIVALS}.items() if truth
            }
        except CourseError as error:
            left_out.append(f"{model}: {error}")
            continue
        except KeyboardInterrupt:
            left_out.append(f"{len(models) - number} models: interrupted")
            break
        if not truth:
            left_out.append(f"{model}: not even one sample fits")
        for name, outcome in outcomes.items():
            found[name].append(outcome)
        print(f"{model}: largest batch {truth}, {outcomes.get('course')}", file=sys.stderr)
    return found, left_out


def on_measured(rows: Sequence[Row]) -> list[Outcome]:
    """The course's search on the table's readings, for models with four or more."""
    readings: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        readings[row.model][row.batch_size] = float(row.columns["max_gpu_mib"]) * MIB
    devices = [Measured(own) for own in readings.values() if len(own) >= 4]
    return [course(device, largest(device)) for device in devices]


def in_child(memory: str, size: int) -> dict[str, Any]:
    """The search in a really limited child, against the truth found by trying batch after batch in children
    of its own.
    """
    run = run_limited(f"{CHILD}:search_batch_size", memory=memory, arguments={"size": size})
    if run.outcome != "done":
        raise CourseError(f"The search in the child did not come to its end: {run.outcome}, {run.error}")

    def fits(batch_size: int) -> bool:
        tried = run_limited(
            f"{CHILD}:train_some_steps", memory=memory, arguments={"batch_size": batch_size, "size": size}
        )
        if tried.outcome not in ("done", "out of memory"):
            raise CourseError(f"A step in the child ended as {tried.outcome}: {tried.error}")
        return tried.outcome == "done"

    batch_size = run.value["batch_size"]
    low, high = batch_size, 2 * batch_size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    trials = run.value["trials"]
    found = {
        "memory": memory,
        "image_size": size,
        "limited_by": run.limited_by,
        "batch_size": batch_size,
        "largest": low,
        "trials": len(trials),
        "ooms": sum(trial["failure"] is not None for trial in trials),
    }
    print(found, file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="rows, drawn by model with a fixed seed")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no further model on the replayed card then"
    )
    parser.add_argument(
        "--no-child", action="store_true", help="leave out the real child, which takes a minute or two"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = read_table(arguments.truth)
    chosen = sample(rows, arguments.limit)
    models = list(dict.fromkeys(row.model for row in chosen))
    random.Random(0).shuffle(models)  # so that a run cut short has seen a bit of each family
    measured = on_measured(chosen)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    replayed, left_out = on_replayed(models, arguments.minutes)
    child: list[dict[str, Any]] = []
    if not arguments.no_child and "interrupted" not in "".join(left_out):
        try:
            for memory, size in CHILD_CASES:
                child.append(in_child(memory, size))
        except KeyboardInterrupt:
            left_out.append(f"{len(CHILD_CASES) - len(child)} real children: interrupted")
    in_children = [Outcome(one["trials"], one["ooms"], one["batch_size"] / one["largest"]) for one in child]
    result: dict[str, Any] = {
        **summary(replayed["course"]),
        "others": {name: summary(replayed[name]) for name in RIVALS},
        "measured": summary(measured),
        "child": summary(in_children) | {"runs": child},
        "left_out": left_out,
        "torch": torch.__version__,
    }
    if arguments.json:
        print(as_json(result))
        return
    print(f"{'':<28}{'searches':>9}{'trials':>8}{'OOMs':>7}{'of the largest':>16}{'p10':>7}")
    lines = {
        "course, replayed": result,
        **result["others"],
        "course, measured": measured and result["measured"],
    }
    lines["course, real child"] = result["child"]
    for name, figures in lines.items():
        if figures and figures["searches"]:
            print(
                f"{name:<28}{figures['searches']:>9}{figures['trials']:>8.2f}{figures['ooms']:>7.2f}"
                f"{figures['of_max']:>16.3f}{figures['of_max_p10']:>7.3f}"
            )
    for line in left_out:
        print("left out:", line)


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
