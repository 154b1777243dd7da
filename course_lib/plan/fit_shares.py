"""Which shares of a device's peaks explain the times of its operations? Two a kind, found on a grid."""

from __future__ import annotations

import datetime
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from course_lib.plan.coefficients import coefficients_from
from course_lib.plan.roofline import Rates
from course_lib.plan.timed_steps import Timed
from course_lib.plan.work_timer import Parts, WorkTimer

LEAST_SPREAD = 0.06  # a computer's own step times differ by so much from hour to hour
FAMILIES = (
    "convolution", "grouped", "depthwise", "matmul", "attention", "norm", "softmax", "pointwise", "reduction",
    "copy", "gather", "pool", "optimizer",
)  # fmt: skip
UNMET = {"compute": 0.3, "memory": 0.5}  # shares of a family that no network held
SHARES = 2.0 ** (np.arange(-32, 13) / 4)


def fit_shares(runs: Sequence[Sequence[Timed]], rates: Rates) -> dict[str, Any]:
    """The coefficients of a device from the timed work of several networks, laid out as ``data/speed.json``.

    The interval comes from networks that are left out one by one and told from the others.
    """
    row = _row([item for run in runs for item in run], rates)
    errors = []
    if len(runs) > 3:
        for left_out in range(len(runs)):
            others = [item for place, run in enumerate(runs) if place != left_out for item in run]
            made = coefficients_from("others", _row(others, rates))
            parts = Parts(WorkTimer("fp32", rates, made))
            for item in runs[left_out]:
                parts.add(item.work, "", "", 1)
            errors.append(math.log(parts.seconds() / math.fsum(item.seconds for item in runs[left_out])))
    spread = max(LEAST_SPREAD, statistics.pstdev(errors) if errors else 0.0)
    factor = math.exp(1.645 * spread)  # nine tenths of a normal distribution
    row["intervals"] = dict.fromkeys(("reference", "reference, rare kinds"), (1 / factor, factor))
    return row


def _row(timed: Sequence[Timed], rates: Rates) -> dict[str, Any]:
    """The coefficients, with an interval still to be found."""
    start = min((item.seconds for item in timed), default=0.0)
    by_kind: dict[str, list[Timed]] = defaultdict(list)
    by_family: dict[str, list[Timed]] = defaultdict(list)
    for item in timed:
        by_kind[item.work.kind].append(item)
        by_family[item.work.family].append(item)
    families = dict.fromkeys(FAMILIES, UNMET)
    families |= {family: _fit_kind(items, rates, start) for family, items in by_family.items()}
    kinds = {kind: _fit_kind(items, rates, start) for kind, items in sorted(by_kind.items())}
    for kind in list(kinds):  # a processor has one fused attention; a card would take another in float32
        if kind.startswith("flash_attention"):
            kinds.setdefault(kind.replace("flash", "efficient"), kinds[kind])
    return {
        "reference": rates.name,
        "kinds": kinds,
        "families": families,
        "start_us": start * 1e6,
        "launch_us": 0.0,
        "intervals": {"reference": (1.0, 1.0)},
        "note": f"Measured on this machine on {datetime.date.today().isoformat()}.",
    }


def _fit_kind(items: Sequence[Timed], rates: Rates, start: float) -> dict[str, float]:
    """The two shares under which the times of one kind are told best, on a grid and then between its lines.

    The error is that of the logarithm; the weight of each time is its length: a kind's long runs decide.
    """
    peak = rates.peak("bf16" if items[0].work.half else "fp32")
    arithmetic = np.array([item.work.flops / peak for item in items])
    moving = np.array([item.work.nbytes / rates.bandwidth for item in items])
    true = np.maximum(np.array([item.seconds for item in items]), 1e-9)
    weight = true / true.sum()
    computes = SHARES if arithmetic.any() else np.ones(1)
    memories, best = SHARES, (1.0, 1.0)
    for finer in (2 ** (1 / 8), 2 ** (1 / 16), 2 ** (1 / 32), 1.0):
        pairs = np.array([(compute, memory) for compute in computes for memory in memories])
        told = np.hypot(arithmetic / pairs[:, :1], moving / pairs[:, 1:]) + start
        loss = np.abs(np.log(told / true)) @ weight
        least = int(loss.argmin())
        best = float(pairs[least, 0]), float(pairs[least, 1])
        around = np.array([1 / finer, 1.0, finer])
        computes = best[0] * around if arithmetic.any() else np.ones(1)
        memories = best[1] * around
    return {"compute": best[0], "memory": best[1]}
