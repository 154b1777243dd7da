"""Are cards put in the right order? Published training speeds of one job on several cards, and the course's.

    python benchmarks/card_ranking.py --truth measured_throughput.csv [--lambda FILE ...] [--json]

Each group is one job, one precision and one source: what differs inside it is the card. Only ratios count,
since frameworks and data differ from what the course traces: an error is that of a card's speed against the
middle of its group. ``pairs_wrong`` is the share of pairs of cards, measured more than 3 % apart, that come
out in the wrong order; ``rank_correlation`` is Spearman's over the cards of a group, in the mean over groups
of three and more. Jobs whose model cannot be traced here are left out, and so are rows for a fixed batch of
twelve, which waits for the processor. One number was chosen on these rows: the 0.8 of BESIDE_AMPERE in
roofline.py.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import lambda_tables
import torch
from truth_tables import as_json

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.model_names import named_workload
from course_lib.plan.speed import predict
from course_lib.plan.step_work import StepWork, step_work
from course_lib.plan.tracer import trace

APART = 0.03  # speeds nearer than this are a draw
TRAINING = ("img/s", "sequences/s", "samples/s", "score (throughput-based, higher=better; not img/s)")


@dataclass(frozen=True)
class Job:
    """A job of the tables that can be traced here; ``size``: pixels a side, or tokens."""

    model: str
    size: int
    batch_size: int
    text: bool = False


# What a model's name in the tables begins with, and the job that it is.
JOBS = {
    "ResNet-50 CIFAR-size": Job("resnet50", 32, 1024),
    "ResNet-50": Job("resnet50", 224, 128),
    "ResNeXt101-32x4d": Job("timm:resnext101_32x4d", 224, 64),
    "efficientnet-b0": Job("timm:efficientnet_b0", 224, 128),
    "efficientnet-b4": Job("timm:efficientnet_b4", 380, 32),
    "Inception-v3": Job("timm:inception_v3", 299, 64),
    "VGG-16": Job("vgg16", 224, 64),
    "ViT-Base/16": Job("timm:vit_base_patch16_224", 224, 128),
}
NAMES = {  # as the tables write cards, where the catalogue does not know them so
    "A100-PCIE": "A100 40GB PCIe", "A100": "A100 40GB", "RTX 3080": "RTX 3080 10GB",
}  # fmt: skip

Groups = dict[tuple[str, ...], dict[str, list[float]]]


def card_of(name: str) -> Accelerator | None:
    """The card of a row; None for one that the catalogue does not hold, or not with clock and bandwidth."""
    short = re.sub(r"^(NVIDIA |Tesla |GeForce )+", "", name).split(" (")[0]
    try:
        card = find_accelerator(NAMES.get(short, short))
    except CourseError:
        return None
    return card if card.vendor == "NVIDIA" and card.bandwidth_gb_s else None


def precision_of(text: str) -> str:
    """``fp16`` for all 16-bit runs, ``tf32`` for the rest: convolutions of float32 run so by default."""
    return "fp16" if "16" in text or "AMP" in text else "tf32"


def job_of(model: str) -> Job | None:
    """The job of a row, by how the model's name begins; None for one that is not traced here."""
    return next((job for begin, job in JOBS.items() if model.startswith(begin)), None)


def read(path: Path) -> Groups:
    """Measured speeds by group (model, precision, source, version or batch) and card."""
    groups: Groups = defaultdict(lambda: defaultdict(list))
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            card = card_of(row["gpu"])
            small = row["batch"].startswith("12 ")
            if row["n_gpus"] != "1" or row["unit"] not in TRAINING or "ANOMALY" in row["note"] or small:
                continue
            if card is None or job_of(row["model"]) is None:
                continue
            version = re.search(r"\bver\d", row["note"])
            apart = version[0] if version else row["batch"] if "server-gear" in row["source"] else ""
            key = (row["model"], precision_of(row["precision"]), row["source"][:40], apart)
            groups[key][card.name].append(float(row["throughput"]))
    return groups


def read_lambda(path: Path) -> Groups:
    """The jobs of a lambda table that can be traced, as groups."""
    single, _, _ = lambda_tables.read(path)
    precision = "fp16" if "fp16" in path.name else "tf32"
    return {
        (job, precision, path.name): {card: [speed] for card, speed in single[job].items()}
        for job in lambda_tables.TRACED
    }


@lru_cache(maxsize=64)
def work_of(job: Job, precision: str) -> StepWork:
    """The work of a job, channels last where it has images in 16 bits, as such runs have them."""
    size = {"sequence": job.size} if job.text else {"image_size": job.size}
    return step_work(
        trace(
            named_workload(
                job.model, precision=precision, micro_batch=job.batch_size, optimizer="sgd",
                channels_last=precision == "fp16" and not job.text, **size,
            )
        )
    )  # fmt: skip


def told_speeds(key: tuple[str, ...], cards: Sequence[str]) -> dict[str, float]:
    """Predicted samples a second of a group's job on each card."""
    if key[0] in lambda_tables.TRACED:
        model, tokens = lambda_tables.TRACED[key[0]]
        job = Job(model, tokens or 224, 16 if tokens else 128, bool(tokens))
    else:
        found = job_of(key[0])
        assert found is not None
        job = found
    work = work_of(job, key[1])
    return {card: job.batch_size / predict(work, find_accelerator(card)).seconds for card in cards}


def ranks(values: Sequence[float]) -> list[int]:
    """The place of each value in their order."""
    order = sorted(range(len(values)), key=values.__getitem__)
    place = [0] * len(values)
    for rank, index in enumerate(order):
        place[index] = rank
    return place


def figures(
    measured: Mapping[Any, Mapping[str, float]], told: Mapping[Any, Mapping[str, float]]
) -> dict[str, Any]:
    """Errors of ratios inside groups, pairs in the wrong order, and the mean rank correlation."""
    errors: list[float] = []
    wrong = pairs = 0
    correlations = []
    for key, speeds in measured.items():
        log = {card: math.log(told[key][card] / speed) for card, speed in speeds.items()}
        middle = statistics.median(log.values())
        errors += [abs(math.expm1(value - middle)) for value in log.values()]
        for one, two in combinations(speeds, 2):
            apart = math.log(speeds[one] / speeds[two])
            if abs(apart) > APART:
                pairs += 1
                wrong += (told[key][one] > told[key][two]) != (apart > 0)
        if len(speeds) >= 3:
            cards = list(speeds)
            correlations.append(
                statistics.correlation(
                    ranks([speeds[card] for card in cards]), ranks([told[key][card] for card in cards])
                )
            )
    return {
        "groups": len(measured), "rows": len(errors), "mean_error": statistics.fmean(errors),
        "pairs": pairs, "pairs_wrong": wrong / pairs if pairs else math.nan,
        "rank_correlation": statistics.fmean(correlations) if correlations else math.nan,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--lambda", type=Path, action="append", default=[], dest="more", metavar="FILE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    groups = dict(read(arguments.truth))
    for path in arguments.more:
        groups |= read_lambda(path)
    measured = {
        key: {card: statistics.median(values) for card, values in speeds.items()}
        for key, speeds in groups.items()
        if len(speeds) > 1
    }
    told = {key: told_speeds(key, list(speeds)) for key, speeds in measured.items()}
    result = figures(measured, told)
    if arguments.json:
        print(as_json(result))
        return
    for key, speeds in measured.items():
        print(", ".join(part for part in key if part))
        middle = statistics.median(told[key][card] / speed for card, speed in speeds.items())
        for card, speed in sorted(speeds.items(), key=lambda item: item[1]):
            ratio = told[key][card] / speed / middle
            print(f"  {card:<22}{speed:>10.1f}{told[key][card]:>10.1f}{100 * (ratio - 1):>+8.1f} %")
    for name, value in result.items():
        print(f"{name:<24}{value:.4g}" if isinstance(value, float) else f"{name:<24}{value}")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
