"""What the ranks of test_launch.py and test_ddp_script.py run: imported by them, as a learner's module
would be.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from course_lib.train import ddp_script
from course_lib.train.distributed import join, process_group
from course_lib.train.ranks.launch_target import LAUNCHES


def tell(word: str) -> dict[str, Any]:
    """Print, and return what a rank is told."""
    print(word, flush=True)
    print(f"{word} as an error", file=sys.stderr, flush=True)
    heavy = {"torchvision", "sklearn", "matplotlib", "IPython"} & sys.modules.keys()
    (_, modules), *others = json.loads(os.environ[LAUNCHES])
    return {
        "word": word,
        "threads": os.environ["OMP_NUM_THREADS"],
        "heavy": sorted(heavy),
        "launched": sorted(modules),
        "others": others,
        "input": sys.stdin.read(),
    }


def start_a_program() -> int:
    """Start a process, and leave it behind; its id."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def weighted_metrics() -> list[float]:
    """A mean over shares of unequal sizes, and steps of unequal numbers under `join`."""
    with process_group(device="cpu") as ranks:
        mine = [1.0] if ranks.rank == 0 else [5.0, 6.0, 8.0]
        mean = ranks.mean(sum(mine), len(mine))
        model = ranks.wrap(nn.Linear(1, 1, bias=False))
        with join(model):
            for value in mine:
                model.zero_grad()
                model(torch.tensor([[value]])).sum().backward()
    return [mean, *(float(p.grad) for p in model.parameters() if p.grad is not None)]


def wait_for_ever() -> None:
    """Say so, and wait: on rank 1 outside of any exchange."""
    with process_group(device="cpu") as ranks:
        print(f"pid {os.getpid()}", flush=True)
        if ranks.rank == 1:
            time.sleep(3600)
        ranks.mean(1.0, 1)


def train_and_be_killed(arguments: list[str], checkpoint: str) -> tuple[float, float]:
    """The training script; in the first attempt, rank 1 is killed when it first has seen a checkpoint.

    That is in the second epoch: rank 0 writes the first checkpoint before it takes part in that.
    """
    torch.set_num_threads(1)
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        evaluate = ddp_script.evaluate

        def die_or_evaluate(*given: Any) -> float:
            if Path(checkpoint).exists():
                psutil.Process().kill()
            return evaluate(*given)

        ddp_script.evaluate = die_or_evaluate
    return ddp_script.main([*arguments, "--checkpoint", checkpoint])
