"""Where do the numbers in ``data/memory_stacks.json`` come from? Fitted here, on the dev half of the
families alone.

    python benchmarks/fit_memory.py full --truth memory_a100_40gb_timm.csv --cache DIR [--limit N]
    python benchmarks/fit_memory.py half --truth train_rtx3090_amp_nhwc_timm.csv --cache DIR [--limit N]

``full`` fits the workspaces of float32 convolutions, the context and the loader's batches to measured
totals, one parameter at a time; with ``--keep-workspaces`` only the context and the margin. ``half`` fits
the context of another stack (fp16, channels last), of which the table tells only the largest batch that ran;
with ``--keep-workspaces`` only its margin. The result is written into ``data/memory_stacks.json``; traces are
kept in ``--cache``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import timm.layers
from truth_tables import Row, comparable, half_of, parameter_counts, read_table, same_size, sample

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.allocator import MIB
from course_lib.plan.batch_size import PROBES, BatchTraces
from course_lib.plan.memory import reserve
from course_lib.plan.model_names import named_workload
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.replay import Program, compile_program
from course_lib.plan.step_trace import StepTrace, load_trace
from course_lib.plan.tracer import trace
from course_lib.plan.workspaces import WorkspaceRule, kind_of

LADDER = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
SGD = optimizer_rule("sgd")
KINDS = ("dense", "pointwise", "grouped", "depthwise", "wide_depthwise")
STEPS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
START = {  # where the descent begins: forward, gradient of the input, gradient of the weight
    "dense": (1.0, 1.0, 1.5),
    "pointwise": (0.5, 0.0, 0.0),
    "grouped": (0.0, 0.5, 1.0),
    "depthwise": (0.5, 0.0, 0.0),
    "wide_depthwise": (0.5, 0.0, 0.0),
}
CLIP = 0.12  # a larger error counts as this much: a few readings of the table contradict themselves
UNDER = 0.015  # of the cases above the safe figure; of families left out of the fit, 1.6 % were


def cached_traces(row: Row, cache: Path | None, **settings: Any) -> BatchTraces:
    """The traces of a timm model, read from ``cache`` where they have been made before."""

    def trace_at(batch_size: int) -> StepTrace:
        mode = settings.get("precision", "fp32")
        path = cache / f"{mode}_{row.model}_{row.image_size or 0}_{batch_size}.json.gz" if cache else None
        if path is not None and path.exists():
            return load_trace(path)
        workload = named_workload(
            f"timm:{row.model}", image_size=row.image_size, micro_batch=batch_size, **settings
        )
        made = trace(workload)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.save(path)
        return made

    return BatchTraces(trace_at)


@dataclass
class Case:
    """One row of the fit: its trace, its measured total in MiB, and what the parameters act on."""

    trace: StepTrace
    true: float
    kinds: frozenset[str]
    loader: float  # MiB of one input batch
    done: dict[tuple[float, ...], float] = field(default_factory=dict)


def make_case(taken: StepTrace, true: float) -> Case:
    """The case of one row."""
    names = ("convolution.default", "convolution_backward.default")
    kinds = frozenset(kind_of(op) for op in taken.ops if op.name in names)
    loader = sum(block.nbytes for block in taken.blocks if block.category == "input") / MIB
    return Case(taken, true, kinds, loader)


def reserved_mib(case: Case, multiples: dict[str, float]) -> float:
    """The reserved peak under the given workspaces, the mean over what cuDNN may choose of them; remembered
    by those that matter for the case.
    """
    key = tuple(value for name, value in sorted(multiples.items()) if name.split(".")[0] in case.kinds)
    if key not in case.done:
        program = compile_program(case.trace, WorkspaceRule(multiples, benchmark=True))
        case.done[key] = reserve(program, SGD).reserved / MIB
    return case.done[key]


def total_mib(case: Case, parameters: dict[str, float]) -> float:
    """The typical total under ``parameters``."""
    multiples = {name: value for name, value in parameters.items() if "." in name}
    return (
        reserved_mib(case, multiples) * parameters["factor"]
        + parameters["context"]
        + parameters["loader"] * case.loader
    )


def loss_of(cases: Sequence[Case], parameters: dict[str, float]) -> float:
    """Mean of the clipped relative errors."""
    return statistics.fmean(min(CLIP, abs(total_mib(case, parameters) / case.true - 1)) for case in cases)


def descend(
    cases: Sequence[Case], start: dict[str, float], choices: Callable[[str], Sequence[float]], rounds: int = 2
) -> dict[str, float]:
    """Coordinate descent: each parameter steps up or down its grid while the loss falls. Prints each step
    that helps.
    """
    best, loss = dict(start), loss_of(cases, start)
    print(f"{len(cases)} cases, start {loss:.5f}", file=sys.stderr, flush=True)
    for _ in range(rounds):
        before = loss
        for name in start:
            grid = sorted({*choices(name), best[name]})
            for direction in (1, -1):
                while 0 <= (place := grid.index(best[name]) + direction) < len(grid):
                    tried = {**best, name: grid[place]}
                    found = loss_of(cases, tried)
                    if found >= loss - 1e-6:
                        break
                    best, loss = tried, found
                    print(f"{name} = {best[name]}: {loss:.5f}", file=sys.stderr, flush=True)
        if before - loss < 1e-5:
            break
    return best


def margin_of(cases: Sequence[Case], parameters: dict[str, float]) -> float:
    """What share of the reserved bytes to add so that UNDER of the totals lie above the safe figure.

    One for all models: margins by kind of model, or by its largest convolution, overshoot less, and did not
    hold for families left out.
    """
    multiples = {name: value for name, value in parameters.items() if "." in name}
    shares = sorted(
        (case.true - total_mib(case, parameters)) / (reserved_mib(case, multiples) * parameters["factor"])
        for case in cases
    )
    return round(max(0.01, shares[-1 - int(UNDER * len(shares))] + 0.0005), 3)


def fit_full(
    rows: Sequence[Row], cache: Path, counts: dict[str, float], given: dict[str, float] | None
) -> tuple[dict[str, float], float]:
    """Fit to measured totals; with ``given`` parameters, only the context and the margin."""
    cases = []
    for row in rows:
        try:
            taken = cached_traces(row, cache).at(row.batch_size)
        except CourseError as error:
            print(error, file=sys.stderr)
            continue
        if comparable(taken, row, counts):
            cases.append(make_case(taken, float(row.columns["max_gpu_mib"])))
    start = {
        f"{kind}{layout}.{part}": value
        for kind in KINDS
        for layout in ("", "_nhwc")
        for part, value in zip(("forward", "data", "weight"), START[kind], strict=True)
    }
    start |= {"wide_depthwise_nhwc.data": 4.0, "wide_depthwise_nhwc.weight": 4.0}
    start |= {"stem.forward": 1.0, "stem.weight": 0.5}
    start |= {"factor": 1.0, "context": 1740.0, "loader": 2.5}
    grids = {
        "factor": (1.0, 1.005, 1.01, 1.015),
        "context": tuple(range(1660, 1790, 10)),
        "loader": (1.0, 1.5, 2.0, 2.25, 2.5, 3.0, 3.5),
    }
    if given is not None:
        choices = (*grids["context"], given["context"])
        context = min(choices, key=lambda mib: loss_of(cases, {**given, "context": mib}))
        best = {**given, "context": context}
    else:
        best = descend(cases, start, lambda name: grids.get(name, STEPS))
    return best, margin_of(cases, best)


def fit_half(
    rows: Sequence[Row], cache: Path, given: dict[str, float] | None
) -> tuple[dict[str, float], float]:
    """Fit the context to the largest batch of the ladder that ran on a card of 24 GB.

    The table tells no totals, only that one rung ran and the next did not. The context is the middle of those
    that get the fewest rungs wrong; workspaces were tried too and changed no rung. The margin is the least
    (of a grid) with which no rung that did not run counts as safe.
    """
    card = find_accelerator("RTX 3090")
    rungs: list[tuple[Program, bool]] = []
    for row in rows:
        try:
            traces = cached_traces(row, cache, precision="fp16", channels_last=True)
            if not same_size(traces.exact(PROBES[0]).parameter_count, float(row.columns["param_count"])):
                continue
            place = LADDER.index(row.batch_size)
            sizes = [row.batch_size] + ([LADDER[place - 1]] if place else [])
            rungs += [
                (compile_program(traces.at(size), WorkspaceRule({}, benchmark=True)), size == row.batch_size)
                for size in sizes
            ]
        except CourseError as error:
            print(error, file=sys.stderr)

    def wrong(context: float) -> int:
        limit = card.usable_bytes - int(context * MIB)
        return sum(reserve(program, SGD, limit=limit).fitted is not ran for program, ran in rungs)

    if given is None:
        count = {context: wrong(context) for context in range(900, 2400, 100)}
        print(count, file=sys.stderr)
        best = [context for context, number in count.items() if number <= min(count.values()) + 1]
        context = statistics.fmean((min(best), max(best)))
    else:
        context = given["context"]
    limit = card.usable_bytes - int(context * MIB)
    margin = 0.02
    for program, ran in rungs:
        found = reserve(program, SGD, limit=limit)
        if found.fitted and not ran:
            margin = max(margin, limit / found.reserved - 1 + 0.001)
    return {"context": context, "loader": 0.0, "factor": 1.0}, round(margin, 3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("full", "half"))
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument(
        "--cached-only", action="store_true", help="only models whose traces are in the cache"
    )
    parser.add_argument(
        "--keep-workspaces", action="store_true", help="fit only the context and the margin anew"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the result and write nothing")
    arguments = parser.parse_args()
    column = "batch_size" if arguments.what == "full" else "train_batch_size"
    rows = [row for row in read_table(arguments.truth, column) if half_of(row.model) == "dev"]
    if arguments.cached_only:
        mode = "fp32" if arguments.what == "full" else "fp16"
        cached = {path.name for path in arguments.cache.iterdir()}
        rows = [
            row
            for row in rows
            if all(f"{mode}_{row.model}_{row.image_size or 0}_{n}.json.gz" in cached for n in PROBES)
        ]
    rows = sample(rows, arguments.limit)
    path = data_path("memory_stacks.json")
    table = json.loads(path.read_text(encoding="utf-8"))
    stack = "a100-timm" if arguments.what == "full" else "rtx3090-timm"
    own = table["stacks"][stack]
    given = table["workspaces"][arguments.what] | {
        "context": own["context_mib"], "loader": own["input_batches"], "factor": own["reserved_factor"],
    } if arguments.keep_workspaces else None  # fmt: skip
    if arguments.what == "full":
        best, margin = fit_full(rows, arguments.cache, parameter_counts(arguments.truth), given)
    else:
        timm.layers.set_fused_attn(False)  # the table is older than fused attention
        best, margin = fit_half(rows, arguments.cache, given)
    print(json.dumps({"parameters": best, "margin": margin}, indent=1))
    if arguments.dry_run:
        return
    table["workspaces"][arguments.what] = {n: v for n, v in best.items() if "." in n and v}
    table["stacks"][stack] |= {
        "context_mib": best["context"], "input_batches": best["loader"], "reserved_factor": best["factor"],
    }  # fmt: skip
    table["margins"][arguments.what] = margin
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
