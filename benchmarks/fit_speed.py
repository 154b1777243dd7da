"""Where do the numbers in ``data/speed.json`` come from? Fitted here, to all the tables of a folder at once.

    python benchmarks/fit_speed.py --truth FOLDER --cache DIR [--dry-run]

The training tables (PyTorch 1.12) make the stack ``timm-2022``; the inference tables (PyTorch 2) make
``current``, which keeps from the older stack what forward passes cannot tell.
Intervals are those of families left out: the narrowest that hold nine tenths of the errors. Traces are kept
in ``--cache``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from speed_cases import Case, cases
from speed_model import NEWER, REFERENCE, Arrays, SpeedModel, as_row, case_weights, left_out
from truth_tables import quantile

from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.speed import RARE

COVERED = 0.9
TABLES = ("train_*_timm.csv", "infer_*_timm.csv")


def grouped_shares(model: SpeedModel, x: torch.Tensor) -> list[float]:
    """The share of the predicted time of each case that grouped convolutions take."""
    arrays = model.arrays
    each = model.each_seconds(x)
    is_grouped = torch.tensor([family == "grouped" for _, family, _ in arrays.kinds])[arrays.kind]
    zero = torch.zeros(len(arrays.cases), dtype=each.dtype)
    whole = zero.index_add(0, arrays.case, each)
    grouped = zero.index_add(0, arrays.case, each * is_grouped)
    return [float(value) for value in grouped / whole]


def interval(errors: Sequence[float]) -> tuple[float, float]:
    """The factors below and above a prediction that hold nine tenths of ``log(predicted / true)``, even-
    sided.
    """
    reach = quantile([abs(error) for error in errors], COVERED)
    return round(math.exp(-reach), 4), round(math.exp(reach), 4)


def read_all(folder: Path, cache: Path, patterns: Sequence[str], limit: int | None) -> list[Case]:
    """The cases of the tables of the folder; of the inference tables at most ``limit`` each."""
    found: list[Case] = []
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            some = limit if path.name.startswith("infer") else None
            done, unmatched, failed = cases(path, limit=some, cache=cache)
            print(
                f"{path.name}: {len(done)} cases, {len(unmatched)} unmatched, {len(failed)} failed",
                file=sys.stderr,
            )
            found += done
    if not found:
        raise CourseError(f"{folder} holds no table named like {' or '.join(patterns)}.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", type=Path, required=True, help="the folder of the tables")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=12)
    parser.add_argument("--tables", nargs="+", default=TABLES, help="patterns of file names")
    parser.add_argument("--limit", type=int, help="rows of each inference table")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = read_all(arguments.truth, arguments.cache, arguments.tables, arguments.limit)
    model = SpeedModel(Arrays(found))
    x = model.fit(case_weights(found, model.settings.family_weight))
    told = left_out(model, [case.family for case in found], arguments.folds)
    errors = [value - math.log(case.seconds) for value, case in zip(told, found, strict=True)]
    shares = grouped_shares(model, x)
    table: dict[str, Any] = {"stacks": {}}
    for stack in ("timm-2022", NEWER):
        row = as_row(model, x, stack)
        row["bias"] = biases(found, errors, stack)
        row["intervals"] = intervals(found, errors, shares, stack, row["bias"])
        row["note"] = note(found, stack)
        table["stacks"][stack] = row
    text = as_text(table)
    if arguments.dry_run:
        print(text)
    else:
        data_path("speed.json").write_text(text + "\n", encoding="utf-8")


def as_text(table: dict[str, Any]) -> str:
    """JSON with one kind or word a line, so that a new fit reads well beside the old one."""
    parts = []
    for stack, row in table["stacks"].items():
        lines = []
        for name, value in row.items():
            if name in ("kinds", "families", "words"):
                inner = ",\n".join(
                    f"   {json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items()
                )
                lines.append(f"  {json.dumps(name)}: {{\n{inner}\n  }}")
            else:
                lines.append(f"  {json.dumps(name)}: {json.dumps(value)}")
        parts.append(f" {json.dumps(stack)}: {{\n" + ",\n".join(lines) + "\n }")
    return '{"stacks": {\n' + ",\n".join(parts) + "\n}}"


NOTES = {
    "timm-2022": "Calibrated on {cases} training steps of timm models on {cards} (PyTorch 1.12).",
    NEWER: "Calibrated on {cases} forward passes of timm models on {cards} (PyTorch 2); backward passes on "
    "training steps of an older stack. Errors: docs/accuracy.md.",
}


def note(found: Sequence[Case], stack: str) -> str:
    """What a stack was calibrated on."""
    own = [case for case in found if case.table.stack == stack]
    cards = ", ".join(sorted({case.table.card for case in own}))
    return NOTES[stack].format(cases=len(own), cards=cards)


def biases(found: Sequence[Case], errors: Sequence[float], stack: str) -> dict[str, float]:
    """By card other than the reference, the factor that its own measurements ask for in the middle."""
    by_card: dict[str, list[float]] = defaultdict(list)
    for error, case in zip(errors, found, strict=True):
        if case.table.stack == stack and case.table.card != REFERENCE:
            by_card[case.table.card].append(error)
    return {card: round(math.exp(-statistics.median(own)), 4) for card, own in sorted(by_card.items())}


def intervals(
    found: Sequence[Case],
    errors: Sequence[float],
    shares: Sequence[float],
    stack: str,
    bias: Mapping[str, float],
) -> dict[str, tuple[float, float]]:
    """The interval of each distance from the calibration; the far ones are judgements, said so in the
    docs.
    """
    own = [
        (error + math.log(bias.get(case.table.card, 1.0)), share, case.table.card)
        for error, share, case in zip(errors, shares, found, strict=True)
        if case.table.stack == stack
    ]
    common = interval([error for error, share, card in own if card == REFERENCE and share <= RARE])
    rare_ones = [error for error, share, card in own if card == REFERENCE and share > RARE]
    return {
        "reference": common,
        "reference, rare kinds": interval(rare_ones) if len(rare_ones) > 20 else OTHER_CARD,
        "measured": interval(
            [error for error, _, card in own if card != REFERENCE] or [math.log(OTHER_CARD[1])]
        ),
        "other card": OTHER_CARD,
        "other make": OTHER_MAKE,
    }


OTHER_CARD = (0.65, 1.55)  # from one card to another without its measurements, see docs/accuracy.md
OTHER_MAKE = (0.4, 2.5)


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
