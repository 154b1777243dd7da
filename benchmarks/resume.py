"""Does a run that is killed and resumed end with the same weights, to the last bit?

Each round starts a training run in a process of its own, kills it at a random moment (SIGKILL; on Windows
TerminateProcess), resumes it, and compares the weights with those of a run that nobody disturbed. The run
has what makes this hard: dropout, shuffling, a scheduler, and in every second round loader workers.

    python benchmarks/resume.py [--rounds 20] [--seed 0] [--json]
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

from course_lib.models.zoo import DigitsCNN
from course_lib.train.data import Digits, ResumableSampler
from course_lib.train.history import Progress
from course_lib.train.loop import train

EPOCHS = 2
BATCH_SIZE = 64
SAVE_EVERY = 3  # steps, so that some are lost with the kill and done again
STEPS_PER_EPOCH = 23  # 1,442 images in batches of 64
STEPS = EPOCHS * STEPS_PER_EPOCH


@dataclass(frozen=True)
class Round:
    """One kill: the last step heard of before it, the step resumed from, and whether the weights agree."""

    workers: int
    killed_after: int
    resumed_from: int
    identical: bool


def run_child(folder: Path, workers: int) -> None:
    """Train, or go on training, in this process; tell each step, and the weights at the end."""
    torch.set_num_threads(1)  # the rounds of a soak share the machine with other work
    torch.manual_seed(0)
    model = DigitsCNN(dropout=0.3)
    optimizer = AdamW(model.parameters(), lr=3e-3)
    train_set = Digits("train")
    loader = DataLoader(
        train_set, BATCH_SIZE, sampler=ResumableSampler(train_set, seed=1), num_workers=workers
    )

    def tell(progress: Progress) -> None:
        print("step", (progress.epoch - 1) * STEPS_PER_EPOCH + progress.step, flush=True)

    train(
        model,
        loader,
        optimizer,
        epochs=EPOCHS,
        scheduler=OneCycleLR(optimizer, max_lr=1e-2, total_steps=STEPS),
        test_loader=DataLoader(Digits("test"), 256),
        callback=tell,
        callback_every=1,
        checkpoint=folder / "run.pt",
        checkpoint_every=SAVE_EVERY,
        resume=True,
        progress=False,
    )
    print("weights", digest(model), flush=True)


def digest(model: nn.Module) -> str:
    """A hash over every parameter and buffer."""
    sha = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        sha.update(name.encode())
        sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()


def child(folder: Path, workers: int, stderr: int | None = None) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--child",
        str(folder),
        "--workers",
        str(workers),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, encoding="utf-8")


def finish(folder: Path, workers: int) -> tuple[int, str]:
    """Let a run come to its end. Returns the first step it made and the hash of its weights."""
    with child(folder, workers) as process:
        assert process.stdout is not None
        lines = [line.split() for line in process.stdout]
    if process.returncode or not lines or lines[-1][0] != "weights":
        raise SystemExit(f"The run in {folder} did not come to its end: exit status {process.returncode}.")
    first = int(lines[0][1]) if lines[0][0] == "step" else STEPS
    return first, lines[-1][1]


def kill_at_random(folder: Path, workers: int, choice: random.Random) -> int:
    """Start a run and kill it at a random moment. Returns the last step that was heard of."""
    stop, wait_s = choice.randint(1, STEPS - 1), choice.uniform(0, 0.02)
    process = child(
        folder, workers, stderr=subprocess.DEVNULL
    )  # its workers complain of their parent's death
    assert process.stdout is not None
    heard = 0
    for line in process.stdout:
        kind, _, step = line.partition(" ")
        heard = int(step) if kind == "step" else heard
        if heard >= stop:
            break
    time.sleep(wait_s)  # between two steps, in the middle of one, or while a checkpoint is written
    process.kill()
    if process.wait() == 0:
        raise SystemExit("The run ended before it could be killed.")
    process.stdout.close()
    return heard


def soak(rounds: int, seed: int, say: bool) -> list[Round]:
    choice = random.Random(seed)
    results = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        _, undisturbed = finish(Path(scratch) / "undisturbed", 0)
        for number in range(rounds):
            folder, workers = Path(scratch) / str(number), 2 * (number % 2)
            killed_after = kill_at_random(folder, workers, choice)
            first, weights = finish(folder, workers)
            results.append(Round(workers, killed_after, first - 1, weights == undisturbed))
            if say:
                told = "identical" if results[-1].identical else "DIFFERENT"
                print(
                    f"round {number + 1:3}  {workers} workers  killed after step {killed_after:3}  "
                    f"resumed from {first - 1:3}  {told}",
                    flush=True,
                )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_child(arguments.child, arguments.workers)
        return
    results = soak(arguments.rounds, arguments.seed, say=not arguments.json)
    identical = sum(result.identical for result in results)
    if arguments.json:
        print(json.dumps({"identical": identical, "rounds": [asdict(result) for result in results]}))
    else:
        print(
            f"{identical} of {len(results)} resumed runs ended with the same weights as the undisturbed one."
        )
    sys.exit(0 if identical == len(results) else 1)


if __name__ == "__main__":
    main()
