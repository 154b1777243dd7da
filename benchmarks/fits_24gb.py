"""Which batch fits 24 GB? The predicted rung of a ladder of batch sizes against the one that really ran.

    python benchmarks/fits_24gb.py --truth train_rtx3090_amp_nhwc_timm.csv [--limit N] [--half unseen]
    [--json]

The table's ``train_batch_size`` is the first of 512, 384, 256, 192, 128, ... 1 that ran on an RTX 3090
under fp16 autocast in channels-last layout, with timm's benchmark script of that day: attention written
out in full, SGD with momentum. ``exact``: share of models for which the typical figure names that rung.
``safe``: share for which the rung that the safe figure names really ran. ``safe_exact``: share for which
it is also the largest that ran.
"""

from __future__ import annotations

import argparse
import bisect
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import timm.layers
import torch
from fit_memory import LADDER
from truth_tables import as_json, half_of, read_table, same_size, sample

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.batch_size import PROBES, BatchTraces
from course_lib.plan.memory import MemoryPlan, plan_memory
from course_lib.plan.model_names import named_workload
from course_lib.plan.stacks import find_stack
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.tracer import trace

CARD = find_accelerator("RTX 3090")


def rungs(traces: BatchTraces) -> tuple[int, int]:
    """The largest rung that fits by the typical and by the safe figure; 0 if none does.

    Takes for granted that what fits in a batch fits in a smaller one.
    """
    stack = find_stack("rtx3090-timm")
    plans: dict[int, MemoryPlan] = {}

    def plan(size: int) -> MemoryPlan:
        if size not in plans:
            plans[size] = plan_memory(traces.at(size), CARD, stack=stack)
        return plans[size]

    upwards = LADDER[::-1]
    typical = bisect.bisect_left(upwards, True, key=lambda size: plan(size).total > plan(size).capacity)
    safe = bisect.bisect_left(upwards, True, key=lambda size: not plan(size).fits)
    return tuple(upwards[place - 1] if place else 0 for place in (typical, safe))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--half", choices=("all", "dev", "unseen"), default="all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    timm.layers.set_fused_attn(False)
    rows = read_table(arguments.truth, "train_batch_size")
    if arguments.half != "all":
        rows = [row for row in rows if half_of(row.model) == arguments.half]
    rows = sample(rows, arguments.limit)
    found: list[dict[str, Any]] = []
    failed: list[str] = []
    unmatched: list[str] = []
    seconds: list[float] = []
    for row in rows:
        if not timm.is_model(row.model):
            unmatched.append(row.model)
            continue

        def trace_at(batch_size: int, row: Any = row) -> StepTrace:
            workload = named_workload(
                f"timm:{row.model}",
                image_size=row.image_size,
                micro_batch=batch_size,
                precision="fp16",
                channels_last=True,
            )
            start = time.perf_counter()
            made = trace(workload)
            seconds.append(time.perf_counter() - start)
            return made

        traces = BatchTraces(trace_at)
        try:
            taken = traces.exact(PROBES[0])
            if not same_size(taken.parameter_count, float(row.columns["param_count"])):
                unmatched.append(row.model)
                continue
            typical, safe = rungs(traces)
        except CourseError as error:
            failed.append(f"{row.model}: {error}")
            continue
        found.append({"model": row.model, "true": row.batch_size, "typical": typical, "safe": safe})

    def share(items: list[dict[str, Any]]) -> dict[str, float]:
        if not items:
            return {"rows": 0}
        return {
            "exact": statistics.fmean(item["typical"] == item["true"] for item in items),
            "safe": statistics.fmean(item["safe"] <= item["true"] for item in items),
            "safe_exact": statistics.fmean(item["safe"] == item["true"] for item in items),
            "rows": len(items),
        }

    result: dict[str, Any] = {
        **share(found),
        "failed": len(failed),
        "failures": failed,
        "unmatched": unmatched,
        "seconds_median": statistics.median(seconds) if seconds else float("nan"),
        "halves": {
            half: share([i for i in found if half_of(i["model"]) == half]) for half in ("dev", "unseen")
        },
        "wrong": [item for item in found if item["typical"] != item["true"]],
    }
    if arguments.json:
        print(as_json(result))
        return
    for name, figures in [("all", result), *result["halves"].items()]:
        if figures["rows"]:
            print(
                f"{name:<8}{figures['rows']:>5} models  exact {figures['exact']:.3f}"
                f"  safe {figures['safe']:.3f}"
                f"  largest safe {figures['safe_exact']:.3f}"
            )
    seconds_median = result["seconds_median"]
    print(f"{len(failed)} failed, {len(unmatched)} unmatched; a trace takes {seconds_median:.2f} s (median)")
    for item in result["wrong"]:
        print(
            f"{item['model']:<36} ran {item['true']:>4}  typical {item['typical']:>4}  safe {item['safe']:>4}"
        )
    for line in failed:
        print("failed:", line)


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
