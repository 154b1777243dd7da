"""How are the public measurements read, matched with today's models, and split into two halves?

The tables are not part of this repository: each benchmark is given one with ``--truth FILE``. A family is
a module of timm (``resnet``, ``efficientnet``, ...). Half of the families, chosen by a hash of the name,
serve for fitting and choosing (``dev``); the other half is looked at only to report (``unseen``).
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.plan.allocator import MIB
from course_lib.plan.step_trace import StepTrace

SALT = "19"  # chosen before any error was looked at, so that both halves hold plain and grouped convolutions


@dataclass(frozen=True)
class Row:
    """One row of a table: the model's name, the batch size, and the columns as text."""

    model: str
    batch_size: int
    image_size: int | None
    columns: dict[str, str]


def read_table(path: Path, batch_column: str = "batch_size") -> list[Row]:
    """The rows of one table. Raises CourseError if the file is not one."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"{path} cannot be read as a table: {error}.") from None
    if not rows or "model" not in rows[0] or batch_column not in rows[0]:
        raise CourseError(f"{path} needs a header with the columns model and {batch_column}.")
    return [
        Row(
            row["model"],
            int(float(row[batch_column])),
            int(float(row["train_img_size"])) if row.get("train_img_size") else None,
            row,
        )
        for row in rows
    ]


def parameter_counts(path: Path) -> dict[str, float]:
    """Millions of parameters by model, from the ``param_count`` columns of the tables beside ``path``."""
    counts: dict[str, float] = {}
    for table in sorted(path.resolve().parent.glob("*.csv")):
        with table.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                if row.get("model") and row.get("param_count"):
                    counts[row["model"]] = float(row["param_count"])
    return counts


def same_size(count: int, millions: float) -> bool:
    """Whether a parameter count agrees with a table's, which is rounded to 0.01 million."""
    return abs(count / 1e6 - millions) <= 0.006 + 0.002 * millions


def comparable(taken: StepTrace, row: Row, counts: dict[str, float]) -> bool:
    """Whether the model is still the one that was measured: its parameters, and the bytes it keeps alive.

    timm's names move, and the code behind a name changes. The table's FakeTensor column, where it has
    one, is the bytes alive in the model of that day; a fifth and 200 MiB of difference mean another
    model.
    """
    millions = counts.get(row.model)
    if millions is not None and not same_size(taken.parameter_count, millions):
        return False
    published = float(row.columns.get("published_faketensor_mib") or 0)
    live = taken.live_peak() / MIB
    return not published or abs(live - published) <= max(200.0, 0.2 * published)


def family_of(model: str) -> str:
    """The family of a timm model: the module that defines it; its own name if timm does not know it."""
    from timm.models import _registry

    return str(_registry._model_to_module.get(model, model))


def half_of(model: str) -> str:
    """``dev`` or ``unseen``, the same for all models of a family."""
    digest = hashlib.sha256(f"{SALT}:{family_of(model)}".encode()).digest()
    return "dev" if digest[0] % 2 == 0 else "unseen"


def sample(rows: Sequence[Row], limit: int | None) -> list[Row]:
    """``limit`` rows drawn with a fixed seed, whole models together; all if None."""
    if limit is None or limit >= len(rows):
        return list(rows)
    models = sorted({row.model for row in rows})
    random.Random(0).shuffle(models)
    chosen: list[Row] = []
    for model in models:
        if len(chosen) >= limit:
            break
        chosen += [row for row in rows if row.model == model]
    return chosen[:limit]


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which ``share`` of the values lie; NaN for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def error_summary(
    pairs: Sequence[tuple[float, float]], scale: Callable[[float], float] = lambda x: x
) -> dict[str, float]:
    """Median, mean and p90 of the relative error of (predicted, true), and the share predicted too low."""
    errors = [abs(scale(predicted) - true) / true for predicted, true in pairs]
    return {
        "median": statistics.median(errors) if errors else float("nan"),
        "mean": statistics.fmean(errors) if errors else float("nan"),
        "p90": quantile(errors, 0.9),
        "under": statistics.fmean(scale(p) < t for p, t in pairs) if pairs else float("nan"),
        "rows": len(pairs),
    }


def as_json(result: object) -> str:
    """The figures as one JSON object; a figure that there is none of (NaN) becomes null."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(result), indent=1, allow_nan=False)
