"""How far off is the predicted memory of a training step, and how far off are the others?

    python benchmarks/memory.py --truth memory_a100_40gb_timm.csv [--limit N] [--half unseen] [--rivals N]
    [--json]

The table holds what nvidia-smi showed while timm models trained in float32 on an A100 with 40 GB:
``model, batch_size, max_gpu_mib`` and, where it has them, ``published_faketensor_mib`` and
``param_count``. Each model is traced at the two probe batch sizes; the other batch sizes are
interpolated. ``failed`` counts models that timm builds and the tracer does not trace; rows whose model is
another one today stand under ``unmatched``. ``--rivals N`` also asks accelerate, torchinfo and MemTracker
about N of the rows; their figures are given the same constant as ours for the context, so that only what
they count is compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rivals import RIVALS
from truth_tables import (
    Row,
    as_json,
    comparable,
    error_summary,
    half_of,
    parameter_counts,
    quantile,
    read_table,
    sample,
)

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.allocator import MIB
from course_lib.plan.batch_size import PROBES, BatchTraces
from course_lib.plan.memory import plan_memory
from course_lib.plan.model_names import named_workload
from course_lib.plan.stacks import find_stack
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.tracer import trace
from course_lib.plan.workspaces import kind_of

CARD = find_accelerator("A100 40GB")


@dataclass(frozen=True)
class Predicted:
    """One row of the table with what was predicted for it, in MiB."""

    row: Row
    true: float
    typical: float
    safe: float
    stratum: str


def stratum(trace: StepTrace) -> str:
    """The kind of model that a trace shows, by the convolutions in it.

    ``attention``: none beside the stem. ``pointwise``: 1 x 1 and depthwise only. ``convolution``: dense or
    grouped k x k ones, where cuDNN's choice of a kernel can decide over gigabytes.
    """
    kinds = {kind_of(op).removesuffix("_nhwc") for op in trace.ops if op.name == "convolution.default"}
    if kinds & {"grouped", "dense"}:
        return "convolution"
    return "pointwise" if kinds & {"depthwise", "wide_depthwise", "pointwise"} else "attention"


class Clock:
    """Seconds of each trace."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def traces(self, model: str) -> BatchTraces:
        """The traces of a timm model, timed one by one."""

        def trace_at(batch_size: int) -> StepTrace:
            workload = named_workload(f"timm:{model}", micro_batch=batch_size)
            start = time.perf_counter()
            made = trace(workload)
            self.seconds.append(time.perf_counter() - start)
            return made

        return BatchTraces(trace_at)


def by_model(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each model together, in the order of the table."""
    models = dict.fromkeys(row.model for row in rows)
    for model in models:
        yield model, [row for row in rows if row.model == model]


def predict(
    rows: list[Row], counts: dict[str, float], clock: Clock
) -> tuple[list[Predicted], list[str], list[str], list[str]]:
    """Predictions, and the names of the failed, the unmatched and the unknown models."""
    import timm

    done: list[Predicted] = []
    failed: list[str] = []
    unmatched: list[str] = []
    unknown: list[str] = []
    stack = find_stack("a100-timm")
    for model, own in by_model(rows):
        if not timm.is_model(model):
            unknown.append(model)
            continue
        try:
            traces = clock.traces(model)
            for size in PROBES:
                traces.exact(size)
        except CourseError as error:
            failed.append(f"{model}: {error}")
            continue
        for row in own:
            taken = traces.at(row.batch_size)
            if not comparable(taken, row, counts):
                unmatched.append(f"{model} at {row.batch_size}")
                continue
            plan = plan_memory(taken, CARD, stack=stack)
            done.append(
                Predicted(
                    row, float(row.columns["max_gpu_mib"]), plan.total / MIB, plan.safe / MIB, stratum(taken)
                )
            )
    return done, failed, unmatched, unknown


def summary(done: list[Predicted]) -> dict[str, float]:
    """The figures of the typical and of the safe total."""
    typical = error_summary([(item.typical, item.true) for item in done])
    over = [item.safe / item.true - 1 for item in done]
    return {
        "median": typical["median"],
        "mean": typical["mean"],
        "p90": typical["p90"],
        "under_typical": typical["under"],
        "under_safe": statistics.fmean(share < 0 for share in over) if over else float("nan"),
        "overshoot_safe": statistics.fmean(max(0.0, share) for share in over) if over else float("nan"),
        "rows": len(done),
    }


def others(done: list[Predicted], wanted: int) -> dict[str, dict[str, float]]:
    """The rivals' errors on the same rows: the published column on all, the others on ``wanted`` of them."""
    context = find_stack("a100-timm").context_mib
    published = [
        (float(item.row.columns["published_faketensor_mib"]) + context, item.true)
        for item in done
        if item.row.columns.get("published_faketensor_mib")
    ]
    found = {"published FakeTensor": error_summary(published)} if published else {}
    chosen = done[:: max(1, len(done) // wanted)][:wanted] if wanted else []
    for name, rival in RIVALS.items():
        pairs = []
        for item in chosen:
            try:
                pairs.append((rival(item.row.model, item.row.batch_size) + context, item.true))
            except Exception as error:
                print(f"{name} failed on {item.row.model}: {error}", file=sys.stderr)
        if pairs:
            found[name] = error_summary(pairs)
    if chosen:
        found["this course, same rows"] = error_summary([(item.typical, item.true) for item in chosen])
    return found


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="rows, drawn by model with a fixed seed")
    parser.add_argument("--half", choices=("all", "dev", "unseen"), default="all")
    parser.add_argument("--rivals", type=int, default=0, metavar="N")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N largest errors")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = read_table(arguments.truth)
    if arguments.half != "all":
        rows = [row for row in rows if half_of(row.model) == arguments.half]
    rows = sample(rows, arguments.limit)
    clock = Clock()
    done, failed, unmatched, unknown = predict(rows, parameter_counts(arguments.truth), clock)
    result: dict[str, Any] = {
        **summary(done),
        "seconds_median": statistics.median(clock.seconds) if clock.seconds else float("nan"),
        "failed": len(failed),
        "failures": failed,
        "unmatched": unmatched,
        "unknown": unknown,
        "halves": {
            half: summary([item for item in done if half_of(item.row.model) == half])
            for half in ("dev", "unseen")
        },
        "strata": {
            name: summary([item for item in done if item.stratum == name])
            for name in sorted({item.stratum for item in done})
        },
        "others": others(done, arguments.rivals),
    }
    if arguments.json:
        print(as_json(result))
        return
    print(f"{len(done)} rows of {arguments.truth.name}", end="; ")
    print(f"{len(failed)} models failed, {len(unmatched)} rows unmatched")
    for name, figures in [("all", result), *result["halves"].items(), *result["strata"].items()]:
        if not figures["rows"]:
            continue
        print(
            f"{name:<12}{figures['rows']:>6} rows  median {percent(figures['median'])}"
            f"  mean {percent(figures['mean'])}  p90 {percent(figures['p90'])}"
            f"  under {percent(figures['under_typical'])}"
            f"  safe: under {percent(figures['under_safe'])}, over {percent(figures['overshoot_safe'])}"
        )
    for name, figures in result["others"].items():
        print(
            f"{name}: {figures['rows']} rows, median {percent(figures['median'])},"
            f" mean {percent(figures['mean'])}, p90 {percent(figures['p90'])}"
        )
    print(f"seconds a trace: median {result['seconds_median']:.2f}, p90 {quantile(clock.seconds, 0.9):.2f}")
    for line in failed:
        print("failed:", line)
    for item in sorted(done, key=lambda item: -abs(item.typical / item.true - 1))[: arguments.worst]:
        print(
            f"{item.row.model:<36}{item.row.batch_size:>5}{item.true:>9.0f}{item.typical:>9.0f}"
            f"{100 * (item.typical / item.true - 1):>8.1f} %  {item.stratum}"
        )


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
