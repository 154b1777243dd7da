"""One training job on many cards: how well is a card told from the others, and several cards from one?

The tables give samples a second of ten jobs by card and by number of cards, with a price. Each card is left
out in turn and told by ``plan/transfer.py`` from the others. Efficiencies on 2, 4 and 8 cards are told by
``plan/scaling.py`` for the jobs whose models can be traced here (ResNet-50 and BERT). The card that promises
the most speed for its price is compared with the one that gave it.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from truth_tables import quantile

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.interconnects import interconnect_of
from course_lib.plan.model_names import named_workload
from course_lib.plan.scaling import scale
from course_lib.plan.speed import predict
from course_lib.plan.step_work import step_work
from course_lib.plan.tracer import trace
from course_lib.plan.transfer import fit_costs, speed_on

CARDS = {  # as the tables write them
    "V100 16GB": "V100 16GB",
    "A100 40GB PCIe": "A100 40GB PCIe",
    "A100 80GB SXM4": "A100 80GB",
    "RTX 6000 Ada": "RTX 6000 Ada",
    "RTX A6000": "RTX A6000",
    "H100 80GB SXM5": "H100 80GB",
    "H100 80GB PCIe": "H100 80GB PCIe",
    "RTX 4090": "RTX 4090",
    "RTX 3090": "RTX 3090",
    "RTX 3080": "RTX 3080 10GB",
    "RTX 2080 Ti": "RTX 2080 Ti",
    "A10": "A10",
}
COLUMNS = ("name_gpu", "num_gpu", "watt", "price")
TRACED = {"resnet50": ("resnet50", None), "bert_base_squad": ("transformers:bert", 384)}
WITHIN = 0.10  # of the true best value
ANOMALY = 1.1  # eight cards that are more than 8.8 times one did not do the same work


def card_of(name: str) -> str | None:
    """The card of a row, by the table's own names; None for one that is not known."""
    return next(
        (card for words, card in CARDS.items() if words.replace(" ", "") in name.replace(" ", "")), None
    )


def read(
    path: Path,
) -> tuple[dict[str, dict[str, float]], dict[str, float], dict[tuple[str, str, int], float]]:
    """Speeds on one card by job and card, prices by card, and efficiencies by job, card and number of
    cards.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise CourseError(f"{path} needs the columns {', '.join(COLUMNS)}.")
    jobs = [name for name in rows[0] if name not in COLUMNS]
    measured: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    prices: dict[str, float] = {}
    for row in rows:
        card, count = card_of(row["name_gpu"]), int(float(row["num_gpu"]))
        if card is None:
            continue
        if count == 1:
            prices[card] = float(row["price"])
        for job in jobs:
            if row[job] and float(row[job]) > 0:
                measured[job, card, count].append(float(row[job]))
    middle = {key: statistics.median(values) for key, values in measured.items()}
    single: dict[str, dict[str, float]] = defaultdict(dict)
    for (job, card, count), speed in middle.items():
        if count == 1:
            single[job][card] = speed
    efficiency = {
        (job, card, count): speed / count / single[job][card]
        for (job, card, count), speed in middle.items()
        if count > 1 and card in single[job] and speed / count / single[job][card] < ANOMALY
    }
    return single, prices, efficiency


def leave_one_card_out(single: dict[str, dict[str, float]], precision: str) -> dict[tuple[str, str], float]:
    """The speed of each job on each card, told from the other cards."""
    cards = {
        name: find_accelerator(name) for name in sorted({card for row in single.values() for card in row})
    }
    told = {}
    for job, speeds in single.items():
        for card in speeds:
            others = {name: speed for name, speed in speeds.items() if name != card}
            if len(others) >= 2:
                told[job, card] = speed_on(cards[card], fit_costs(others, cards, precision), precision)
    return told


def scaling_errors(
    efficiency: dict[tuple[str, str, int], float], precision: str, folder: Path
) -> dict[str, Any]:
    """Told minus measured efficiency, in points, of the jobs that can be traced, by number of cards."""
    batches = _batches(folder / f"lambda_batch_{'fp16' if precision == 'fp16' else 'fp32'}.csv")
    works: dict[tuple[str, int], Any] = {}
    differences: dict[int, list[float]] = defaultdict(list)
    for (job, name, count), true in sorted(efficiency.items()):
        if job not in TRACED or (job, name) not in batches:
            continue
        batch = batches[job, name]
        if (job, batch) not in works:
            model, tokens = TRACED[job]
            workload = named_workload(
                model, sequence=tokens, precision=precision, micro_batch=batch, optimizer="sgd"
            )
            works[job, batch] = step_work(trace(workload))
        card: Accelerator = find_accelerator(name)
        step = predict(works[job, batch], card)
        differences[count].append(100 * (scale(step, count, interconnect_of(card)).efficiency - true))
    return {
        f"scaling_{count}_cards_points": statistics.fmean(values)
        for count, values in sorted(differences.items())
    }


def _batches(path: Path) -> dict[tuple[str, str], int]:
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if int(float(row["num_gpu"])) == 1]
    return {
        (job, card): int(float(row[job]))
        for row in rows
        if (card := card_of(row["name_gpu"])) is not None
        for job in row
        if job not in COLUMNS and row[job]
    }


def best_value(
    single: dict[str, dict[str, float]], told: dict[tuple[str, str], float], prices: dict[str, float]
) -> float:
    """In which share of the jobs the card that promises the most speed for its price gives nearly the
    most.
    """
    good = []
    for job, speeds in single.items():
        cards = [card for card in speeds if (job, card) in told and prices.get(card)]
        if len(cards) < 2:
            continue
        named = max(cards, key=lambda card: told[job, card] / prices[card])
        best = max(speeds[card] / prices[card] for card in cards)
        good.append(speeds[named] / prices[named] >= (1 - WITHIN) * best)
    return sum(good) / len(good) if good else float("nan")


def lambda_figures(path: Path) -> dict[str, Any]:
    """The figures of one lambda table."""
    precision = "fp16" if "fp16" in path.name else "tf32"
    single, prices, efficiency = read(path)
    told = leave_one_card_out(single, precision)
    errors = [abs(speed / single[job][card] - 1) for (job, card), speed in told.items()]
    return {
        "median": statistics.median(errors),
        "mean": statistics.fmean(errors),
        "p90": quantile(errors, 0.9),
        "rows": len(errors),
        "best_value_named": best_value(single, told, prices),
        **scaling_errors(efficiency, precision, path.parent),
    }
