"""What does `train` with a StepTimer cost on top of the same step written bare by hand, and what do others?

The digits CNN, batch 64, AdamW, on the CPU. All contenders train copies of one model on the same batches.
They take turns step by step: a loop that is measured as a whole (`train`, Lightning's Trainer) draws from a
loader that lets the others make one step each, in random order, before it hands out the batch. A loop's
step lasts from the hand-over of a batch to the request for the next one, so what each loop does between
steps counts, and the loader does not. Each round gives one ratio to the bare step; the median counts. The
bare step also runs against a second copy of itself: what differs there is noise.

- train: the whole loop, with a StepTimer, without progress bar
- Lightning: `Trainer(barebones=True)`, its fastest setting
- accelerate: `Accelerator(cpu=True)`, the step alone: model and optimizer prepared, `accelerator.backward`

    python benchmarks/train_step.py [--rounds 1000] [--threads N] [--json]
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
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader
from under_lightning import train_under_lightning

from course_lib.models.zoo import DigitsCNN
from course_lib.train.data import Digits
from course_lib.train.loop import train
from course_lib.train.timing import StepTimer

Batch = tuple[Tensor, Tensor]
Step = Callable[[Batch], None]

BATCH_SIZE = 64
WARMUP = 30  # rounds that do not count
LEARNING_RATE = 1e-3


class TakingTurns:
    """A loader for the loop that is measured; before each batch, every guest makes a step with that batch."""

    def __init__(self, rounds: int, batches: list[Batch], guests: dict[str, Step], host: str) -> None:
        self.rounds = WARMUP + rounds + 1  # a loop that knows the length need not ask after the last batch
        self.batches = batches
        self.guests = guests
        self.host = host
        self.seconds: dict[str, list[float]] = {name: [] for name in (*guests, host)}

    def __len__(self) -> int:
        return self.rounds

    def __iter__(self) -> Iterator[Batch]:
        order = list(self.guests)
        for _, batch in zip(range(self.rounds), cycle(self.batches), strict=False):
            random.shuffle(order)
            for name in order:
                begin = time.perf_counter()
                self.guests[name](batch)
                self.seconds[name].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            yield batch
            self.seconds[self.host].append(time.perf_counter() - begin)

    def over_bare(self, name: str) -> float:
        """The median over the rounds of a contender's time over that of the bare step."""
        pairs = zip(self._measured(name), self._measured("bare"), strict=True)
        return statistics.median(own / bare for own, bare in pairs)

    def milliseconds(self, name: str) -> float:
        """The median time of a contender's step."""
        return 1e3 * statistics.median(self._measured(name))

    def _measured(self, name: str) -> list[float]:
        return self.seconds[name][WARMUP : self.rounds - 1]


def parts(start: nn.Module) -> tuple[nn.Module, Optimizer]:
    model = copy.deepcopy(start)
    return model, AdamW(model.parameters(), lr=LEARNING_RATE)


def bare_step(start: nn.Module) -> Step:
    model, optimizer = parts(start)

    def step(batch: Batch) -> None:
        images, labels = batch
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def accelerate_step(start: nn.Module) -> Step:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(*parts(start))

    def step(batch: Batch) -> None:
        images, labels = batch
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()

    return step


def measure(rounds: int) -> tuple[TakingTurns, TakingTurns | None]:
    """The turns under `train`, and those under Lightning if it is installed."""
    torch.manual_seed(0)
    start = DigitsCNN()
    batches = [
        tuple(batch) for batch in DataLoader(Digits("train"), BATCH_SIZE, shuffle=True, drop_last=True)
    ]
    guests = {"bare": bare_step(start), "bare again": bare_step(start)}
    if importlib.util.find_spec("accelerate"):
        guests["accelerate"] = accelerate_step(start)
    own = TakingTurns(rounds, batches, guests, "train")
    model, optimizer = parts(start)
    train(model, own, optimizer, epochs=1, timer=StepTimer(), progress=False)

    if not importlib.util.find_spec("lightning"):
        return own, None
    lightning = TakingTurns(rounds, batches, {"bare": bare_step(start)}, "lightning")
    train_under_lightning(*parts(start), lightning)
    return own, lightning


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="intra-op threads")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    random.seed(0)
    own, lightning = measure(arguments.rounds)

    result = {
        "over_bare": own.over_bare("train"),
        "a_a_spread": abs(own.over_bare("bare again") - 1),
        "lightning_over_bare": lightning.over_bare("lightning") if lightning else None,
        "accelerate_over_bare": own.over_bare("accelerate") if "accelerate" in own.seconds else None,
        "bare_ms": own.milliseconds("bare"),
        "rounds": arguments.rounds,
        "threads": arguments.threads,
        "torch": torch.__version__,
    }
    for rival in ("lightning", "accelerate"):
        if result[f"{rival}_over_bare"] is None:
            print(
                f'{rival} is not installed: pip install "efficient-training-course[bench]"', file=sys.stderr
            )
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{'':12} {'median':>10} {'over bare':>10}")
    for turns in (own, lightning):
        for name in turns.seconds if turns else ():
            if turns is own or name == "lightning":
                print(f"{name:12} {turns.milliseconds(name):7.3f} ms {turns.over_bare(name):10.4f}")
    print(
        f"batch {BATCH_SIZE}, {arguments.rounds} rounds, {arguments.threads} threads, torch {result['torch']}"
    )


if __name__ == "__main__":
    main()
