"""How near does `tune` come to the best settings of an exhaustive grid, in which share of its time?

Ten data sets with different limits, each beside an emulated step. The grid: 0, 1, 2, 3, 4, 6 and 8 workers,
with a prefetch factor of 2 and 4, each for a second of its steady state. Then what `tune` chose, the best of
the grid and what each rival chose are measured again, in turns, since the best of many noisy figures is
partly luck. `of_best` is a choice's throughput over that of the best.

Rivals: PyTorch's default (no worker), Lightning's rule (cores - 1), the guide's formula (for one GPU:
min(cores, 4)), and loadtune, which tries up to six settings.

    python benchmarks/loading.py [--json] [--cases NAME ...] [--keep FILE]

`--keep` writes each case to a file, and takes in those that stand there, so that it can run in several parts.
`--pipeline` measures the way up of lesson 04.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib.claims import best_num_workers
from course_lib.machine import short_name, usable_cores
from course_lib.teach.labs.loading import SAMPLES_A_SECOND_3090
from course_lib.train.data import Digits
from course_lib.train.emulate import EmulatedStep
from course_lib.train.formats import (
    ArchivedPhotographs,
    MemoryMappedPhotographs,
    SlowDisk,
    resize_once,
    write_archive,
    write_memory_map,
)
from course_lib.train.loading import tune
from course_lib.train.loading.gains import Climb
from course_lib.train.loading.recipes import climb, way_up
from course_lib.train.loading.rules import lightning_suggestion, pytorch_default
from course_lib.train.loading.settings import LoaderSettings, Source
from course_lib.train.loading.step_bench import StepBench
from course_lib.train.loading.trials import run_trial
from course_lib.train.photographs import Photographs, write_photographs

WORKERS, PREFETCH = (0, 1, 2, 3, 4, 6, 8), (2, 4)
TRIAL_S = 1.0
AGAIN = 2  # turns in which the chosen settings are measured again


class Uneven(SlowDisk):
    """Every eighth sample takes eight times as long as the others, together `seconds` a sample."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds * (4.26 if index % 8 == 0 else 0.533))
        return self.dataset[index]


def slow_collate(samples: list[Any]) -> Any:
    time.sleep(0.015)
    return torch.utils.data.default_collate(samples)


Case = tuple[Callable[[Path], Any], int, float, Any]  # data set, batch size, step in seconds, collate_fn

CASES: dict[str, Case] = {
    "jpeg": (lambda f: Photographs(f, wire="uint8"), 16, 16 / SAMPLES_A_SECOND_3090, None),
    "jpeg_slow_step": (lambda f: Photographs(f, wire="uint8"), 8, 0.06, None),
    "small_jpeg": (lambda f: Photographs(resize_once(f), wire="uint8"), 16, 0.01, None),
    "memory_map": (
        lambda f: MemoryMappedPhotographs(write_memory_map(f)),
        64,
        64 / SAMPLES_A_SECOND_3090,
        None,
    ),
    "in_memory": (lambda f: Digits("train"), 64, 0.004, None),
    "slow_disk": (lambda f: SlowDisk(Digits("train"), 0.004), 8, 0.006, None),
    "disk_and_jpeg": (lambda f: SlowDisk(Photographs(resize_once(f), wire="uint8"), 0.004), 8, 0.012, None),
    "uneven": (lambda f: Uneven(Digits("train"), 0.003), 4, 0.008, None),
    "slow_collate": (lambda f: Digits("train"), 32, 0.008, slow_collate),
    "archive": (lambda f: ArchivedPhotographs(write_archive(f), wire="uint8"), 16, 0.03, None),
}


def grid() -> list[LoaderSettings]:
    return [
        LoaderSettings(workers, prefetch if workers else None, persistent_workers=workers > 0)
        for workers in WORKERS
        for prefetch in (PREFETCH if workers else PREFETCH[:1])
    ]


def loadtune_choice(dataset: Any, batch_size: int, step: EmulatedStep, collate: Any) -> LoaderSettings | None:
    try:
        from loadtune import Workload
        from loadtune import tune as their_tune
    except ImportError:
        return None
    workload = Workload(
        name="case",
        make_dataset=lambda: dataset,
        make_model=lambda: nn.Linear(1, 1),
        train_step=lambda model, optimizer, batch, device: (step(batch), torch.zeros(()))[1],
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        default_batch_size=batch_size,
        collate_fn=collate,
    )
    try:
        knobs = their_tune(workload, steps=12, warmup=2, fast=True, verbose=False).best
    except (ValueError, RuntimeError):  # a stream cannot be shuffled, for example
        return None
    if knobs is None:
        return LoaderSettings()
    workers = knobs.knobs.num_workers
    return LoaderSettings(workers, knobs.knobs.prefetch_factor if workers else None, workers > 0)


def run_case(name: str, folder: Path) -> dict[str, Any]:
    make, batch_size, step_s, collate = CASES[name]
    dataset, step = make(folder), EmulatedStep(step_s)
    source, bench = Source.of(dataset, batch_size, collate), StepBench(step, torch.device("cpu"))
    begin = time.perf_counter()
    tuned = tune(dataset, step, batch_size=batch_size, collate_fn=collate, budget_seconds=20, progress=False)
    tune_s = time.perf_counter() - begin
    begin = time.perf_counter()
    rates = {settings: run_trial(source, settings, bench, TRIAL_S).samples_per_second for settings in grid()}
    grid_s = time.perf_counter() - begin
    best = max(rates, key=rates.__getitem__)
    cores = usable_cores()
    choices: dict[str, LoaderSettings | None] = {
        "tune": tuned.settings,
        "pytorch": LoaderSettings(pytorch_default()),
        "lightning": LoaderSettings(lightning_suggestion(cores)),
        "guide": LoaderSettings(best_num_workers(cores, gpus=1)),
        "loadtune": loadtune_choice(dataset, batch_size, step, collate),
    }
    plain = {who: None if chosen is None else same(chosen) for who, chosen in choices.items()}
    again: dict[LoaderSettings, list[float]] = {}
    for _ in range(AGAIN):
        for settings in {same(best), *(chosen for chosen in plain.values() if chosen is not None)}:
            found = run_trial(source, settings, bench, TRIAL_S).samples_per_second
            again.setdefault(settings, []).append(found)
    mean = {settings: statistics.fmean(found) for settings, found in again.items()}
    top = max(mean[same(best)], *mean.values())
    return {
        "best": same(best).code(),
        "chosen": {who: chosen and chosen.code() for who, chosen in plain.items()},
        "of_best": {who: chosen and mean[chosen] / top for who, chosen in plain.items()},
        "time_share": tune_s / grid_s,
        "limit": tuned.limit,
        "grid": {settings.code(): rate for settings, rate in rates.items()},
    }


def same(settings: LoaderSettings) -> LoaderSettings:
    """Only what the steady state depends on, so that equal choices are measured as one."""
    workers, prefetch = settings.num_workers, settings.prefetch_factor
    return LoaderSettings(workers, (prefetch or 2) if workers else None, workers > 0)


def summary(cases: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for who in ("tune", "pytorch", "lightning", "guide", "loadtune"):
        found = [case["of_best"][who] for case in cases.values() if case["of_best"][who] is not None]
        start = "" if who == "tune" else f"{who}_"
        told[f"{start}of_best_median"] = statistics.median(found) if found else None
        told[f"{start}of_best_worst"] = min(found, default=None)
    told["time_share"] = statistics.fmean(case["time_share"] for case in cases.values())
    told["cases"] = cases
    told["machine"] = short_name()
    return told


def pipeline(folder: Path) -> Climb:
    """The lesson's way up at the published step time of an RTX 3090: ResNet-18, 224 pixels, batch 64."""
    step = EmulatedStep(64 / SAMPLES_A_SECOND_3090)
    return climb(way_up(folder, cores=usable_cores()), step, batch_size=64, budget_s=3.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--keep", type=Path, help="a file in which the cases are collected")
    parser.add_argument("--pipeline", action="store_true", help="the way up of lesson 04")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        pictures = write_photographs(folder, 256 if arguments.pipeline else 96, progress=False)
        if arguments.pipeline:
            up = pipeline(pictures)
            print(up.to_json() if arguments.json else up)
            return
        kept = arguments.keep if arguments.keep and arguments.keep.exists() else None
        cases = json.loads(kept.read_text(encoding="utf-8")) if kept else {}
        for name in arguments.cases:
            cases[name] = run_case(name, pictures)
            if arguments.keep:
                arguments.keep.write_text(json.dumps(cases), encoding="utf-8")
            print(
                name,
                {who: one and round(one, 3) for who, one in cases[name]["of_best"].items()},
                file=sys.stderr,
            )
    told = summary(cases)
    if arguments.json:
        print(json.dumps(told))
        return
    for name, case in cases.items():
        print(f"{name:16} {case['of_best']['tune']:.3f} of the best, {case['time_share']:.0%} of the time")
    for key, value in told.items():
        if key not in ("cases", "machine"):
            print(f"{key:28} {'-' if value is None else f'{value:.3f}'}")


if __name__ == "__main__":
    main()
