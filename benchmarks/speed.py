"""How far off is the predicted time of a step, on model families and cards that it was not fitted to?

    python benchmarks/speed.py --truth train_rtx3090_amp_nhwc_timm.csv [--fitted] [--limit N] [--json]
    python benchmarks/speed.py --truth infer_rtx4090_amp_timm.csv [--fitted] [--limit N] [--json]
    python benchmarks/speed.py --truth train_rtx3090_amp_nchw_timm.csv --beside OTHER_FORMAT.csv [--fitted]
    python benchmarks/speed.py --truth lambda_train_fp16.csv [--json]

A training table is predicted with each family of models left out in turn; ``--also FILE`` gives more tables
to fit to (the family is left out of those too), ``--ideas`` leaves out all architectures of one idea
together. ``--beside FILE`` predicts a second table in the same way, one of the other memory format, and tells
for how many of the models the faster of the two is named. An inference table of another card than the RTX
3090 is predicted from ``--also`` tables of other cards alone. ``--fitted`` takes the shipped
``data/speed.json`` as it is. A lambda table (one job on many cards) is predicted with each card left out in
turn, its scaling to 2, 4 and 8 cards by ``plan/scaling.py``, and the card of best value by its prices.
``coverage90``: the share of rows within the 90 % interval.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fit_speed import COVERED, grouped_shares
from lambda_tables import lambda_figures
from speed_cases import Case, cases
from speed_model import Arrays, Settings, SpeedModel, case_weights
from truth_tables import as_json, error_summary, quantile

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.coefficients import find_coefficients
from course_lib.plan.speed import RARE, predict

APART = 0.05  # speeds of two memory formats that are nearer than this are nearly a draw
Told = tuple[float, float, float]  # predicted seconds, and the ends of the interval


def fitted(found: Sequence[Case]) -> list[Told]:
    """Predictions with the shipped coefficients."""
    told = []
    for case in found:
        step = predict(
            case.work,
            find_accelerator(case.table.card),
            optimizer="sgd",
            coefficients=find_coefficients(case.table.stack),
        )
        told.append((step.seconds, step.low, step.high))
    return told


def without_family(found: list[Case], more: list[Case], ideas: bool) -> list[Told]:
    """Predictions of ``found`` by fits to the cases of all other families, of ``more`` too."""
    everything = found + more
    model = SpeedModel(Arrays(everything), Settings(iterations=120))
    groups = [case.idea if ideas else case.family for case in everything]
    own = groups[: len(found)]
    weight = case_weights(everything, model.settings.family_weight)
    seconds = [0.0] * len(found)
    shares = [0.0] * len(found)
    names = sorted(set(own))
    for number, name in enumerate(names):
        kept = torch.tensor([group != name for group in groups])
        x = model.fit(weight * kept)
        log_seconds = model.log_seconds(x)
        grouped = grouped_shares(model, x)
        for place, group in enumerate(own):
            if group == name:
                seconds[place], shares[place] = math.exp(float(log_seconds[place])), grouped[place]
        print(f"{number + 1} of {len(names)} families", end="\r", file=sys.stderr)
    return with_intervals(found, own, seconds, shares)


def with_intervals(
    found: Sequence[Case], groups: Sequence[str], seconds: Sequence[float], shares: Sequence[float]
) -> list[Told]:
    """Intervals from the errors on all other families, with and without many grouped convolutions."""
    errors = [abs(math.log(told / case.seconds)) for told, case in zip(seconds, found, strict=True)]
    told = []
    for place, group in enumerate(groups):
        alike = [
            errors[other]
            for other, name in enumerate(groups)
            if name != group and (shares[other] > RARE) == (shares[place] > RARE)
        ]
        reach = math.exp(quantile(alike, COVERED)) if len(alike) >= 10 else 1.5
        told.append((seconds[place], seconds[place] / reach, seconds[place] * reach))
    return told


def from_other_cards(found: list[Case], more: list[Case]) -> list[Told]:
    """Predictions of one card's table by a fit to the tables of others."""
    card = found[0].table.card
    others = [case for case in more if case.table.card != card]
    if not others:
        raise CourseError(f"Give tables of other cards than {card} with --also.")
    everything = found + others
    model = SpeedModel(Arrays(everything))
    weight = case_weights(everything, model.settings.family_weight)
    weight[: len(found)] = 0
    x = model.fit(weight)
    seconds = [math.exp(float(value)) for value in model.log_seconds(x)[: len(found)]]
    low, high = find_coefficients().intervals["other card"]
    return [(value, value * low, value * high) for value in seconds]


def figures(found: Sequence[Case], told: Sequence[Told]) -> dict[str, Any]:
    """Median, mean and p90 of the relative error of the speed, and the coverage of the interval."""
    summary = error_summary([(one[0], case.seconds) for one, case in zip(told, found, strict=True)])
    inside = [low <= case.seconds <= high for (_, low, high), case in zip(told, found, strict=True)]
    return {
        "median": summary["median"], "mean": summary["mean"], "p90": summary["p90"],
        "coverage90": sum(inside) / len(inside) if inside else float("nan"), "rows": len(found),
    }  # fmt: skip


def faster_of_two(one: Sequence[tuple[Case, Told]], two: Sequence[tuple[Case, Told]]) -> dict[str, Any]:
    """How often the table is named in which a model is faster, over all models and those 5 % apart."""

    def an_image(pairs: Sequence[tuple[Case, Told]]) -> dict[str, tuple[float, float]]:
        return {
            case.model: (case.seconds / case.work.batch_size, told[0] / case.work.batch_size)
            for case, told in pairs
        }

    left, right = an_image(one), an_image(two)
    both = [
        (math.log(left[model][0] / right[model][0]), math.log(left[model][1] / right[model][1]))
        for model in left
        if model in right
    ]
    apart = [(true, said) for true, said in both if abs(true) > APART]
    return {
        "models_in_both": len(both),
        "faster_named": _same_sign(both),
        "faster_named_apart": _same_sign(apart),
        "models_apart": len(apart),
    }


def _same_sign(pairs: Sequence[tuple[float, float]]) -> float:
    return sum((true > 0) == (said > 0) for true, said in pairs) / len(pairs) if pairs else math.nan


def timm_figures(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Case], list[Told]]:
    """The figures of one timm table."""
    found, unmatched, failed = cases(arguments.truth, limit=arguments.limit, cache=arguments.cache)
    if not found:
        raise CourseError(
            f"No row of {arguments.truth} could be used: " + "; ".join(failed[:3] or unmatched[:3])
        )
    more = [
        case
        for path in arguments.also
        for case in cases(path, limit=arguments.also_limit, cache=arguments.cache)[0]
    ]
    own = len(found)
    if arguments.beside:
        found += cases(arguments.beside, limit=arguments.limit, cache=arguments.cache)[0]
    if arguments.fitted:
        told = fitted(found)
    elif found[0].table.mode == "train" or not more:
        told = without_family(found, more, arguments.ideas)
    else:
        told = from_other_cards(found, more)
    pairs = list(zip(found, told, strict=True))
    ranked: dict[str, Any] = {}
    if arguments.beside:
        other = figures(found[own:], told[own:])
        ranked = {f"beside_{name}": value for name, value in other.items()}
        ranked |= faster_of_two(pairs[:own], pairs[own:])
    found, told = found[:own], told[:own]
    result = {**figures(found, told), **ranked, "unmatched": len(unmatched), "failed": len(failed)}
    return result, found, told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--beside", type=Path, metavar="FILE", help="a table of the other memory format")
    parser.add_argument("--also", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--also-limit", type=int, metavar="N", help="rows of each --also table")
    parser.add_argument("--fitted", action="store_true", help="the shipped coefficients as they are")
    parser.add_argument(
        "--ideas", action="store_true", help="leave out all architectures of one idea together"
    )
    parser.add_argument("--limit", type=int, help="rows, drawn by model with a fixed seed")
    parser.add_argument("--cache", type=Path, help="keep traces in this folder")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N largest errors")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: list[Case]
    told: list[Told]
    if arguments.truth.name.startswith("lambda"):
        result, found, told = lambda_figures(arguments.truth), [], []
    else:
        result, found, told = timm_figures(arguments)
    if arguments.json:
        print(as_json(result))
        return
    for name, value in result.items():
        print(f"{name:<24}{value:.4g}" if isinstance(value, float) else f"{name:<24}{value}")
    worst = sorted(
        zip(found, told, strict=True), key=lambda pair: -abs(math.log(pair[1][0] / pair[0].seconds))
    )
    for case, one in worst[: arguments.worst]:
        print(f"{case.model:<36}{case.seconds:>9.4f} s {100 * (one[0] / case.seconds - 1):>+7.1f} %")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
