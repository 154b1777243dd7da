"""What the tests run in limited children: importable, as a child needs it."""

import os
import subprocess
import sys
import time

import torch
from torch import nn

from course_lib.train.limits.limited_child import memory_limit
from course_lib.train.rescue.memory_meter import ProcessMeter


def add(a: int, b: int) -> int:
    print("adding")
    return a + b


def allocate(mib: int) -> int:
    return int(torch.ones(mib * 2**18).sum()) * 4


def python_list(mib: int) -> int:
    return len(bytearray(mib * 2**20))


def fail() -> None:
    raise ZeroDivisionError("nothing to do with memory")


def no_json() -> object:
    return object()


def die() -> None:
    os._exit(7)


def abort_without_memory() -> None:
    print("terminate called after throwing an instance of 'std::bad_alloc'", flush=True)
    os.abort()


def sleep_with_a_child(note: str, seconds: float = 60.0) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with open(note, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{os.getpid()} {child.pid}")
    time.sleep(seconds)


def recover(mib: int) -> list[str]:
    """Out of memory, let go, and go on: in one process."""
    story = []
    for size in (mib, 1):
        try:
            allocate(size)
            story.append("fits")
        except RuntimeError:
            story.append("out of memory")
    return story


def read_peaks() -> dict[str, int]:
    """Readings around tensors of a known size."""
    meter = ProcessMeter()
    before = meter.begin()
    held = torch.ones(10 * 2**18)
    short = torch.ones(40 * 2**18)
    del short
    peak = meter.peak() - before
    second = meter.begin() - before
    quiet = meter.peak() - before
    return {
        "peak": peak,
        "second": second,
        "quiet": quiet,
        "held": held.numel() * 4,
        "limit": meter.limit() or 0,
    }


def same_loss(seed: int) -> list[float]:
    """A training step under a counted budget and without one."""
    losses = []
    for limited in (False, True):
        torch.manual_seed(seed)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with memory_limit(2**20, emulate=limited):
            for _ in range(3):
                loss = model(torch.ones(3, 4)).square().sum()
                loss.backward()
                optimizer.step()
        losses.append(float(loss))
    return losses
