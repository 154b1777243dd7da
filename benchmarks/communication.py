"""Is the measured share of communication right, and does it predict more ranks?

Run: python benchmarks/communication.py [--part injected|ranks|published] [--truth FILE] [--json]

- **injected**: two gloo ranks with an emulated step send known volumes (``--volumes-mib``). The share that
  ``measure_communication`` finds from steps with and without ``no_sync`` is compared with the share by a
  clock on the same all-reduce alone: ``injected_error_points`` is the mean of the differences' absolute
  values, in points of share; ``injected_worst_points`` the largest.
- **ranks**: the step of four gloo ranks on this computer (compute emulated, all-reduce real) is predicted
  from one and two: ``predicted_4rank_error`` is the relative error of the step, and
  ``predicted_4rank_exposed_error`` that of its exposed communication alone. The ranks share the cores: the
  link's bandwidth is divided by the ranks that have to share one.
- **published** (needs ``--truth``, a table of throughputs with the columns source, gpu, n_gpus, model,
  precision, batch, throughput, note): the throughput of 8 cards predicted from that of one, with the model's
  own gradients and the link of these cards; ``published_points`` is the mean absolute error in points of
  efficiency.
"""

import argparse
import csv
import json
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from course_lib.accelerators import find_accelerator
from course_lib.machine import usable_cores
from course_lib.plan.batch_size import traces_of
from course_lib.plan.interconnects import interconnect_of
from course_lib.plan.model_names import named_workload
from course_lib.plan.scaling import scale
from course_lib.plan.speed import predict
from course_lib.plan.step_time import StepTime
from course_lib.teach.measured_scaling import measured_link, measured_step
from course_lib.train.ranks.launch import launch
from course_lib.train.ranks.link import LinkBenchmark

RANK = "course_lib.train.ranks.communication_rank"
VOLUMES_MIB = [0.5, 2.0, 6.0, 12.0, 24.0]
MODELS = {
    "ResNet-50": "resnet50",
    "efficientnet-b0": "efficientnet_b0",
    "efficientnet-b4": "efficientnet_b4",
    "ResNeXt101-32x4d": "timm:resnext101_32x4d",
    "SE-ResNeXt101-32x4d": "timm:seresnext101_32x4d",
}


def injected(compute_s: float, volumes_mib: list[float], pairs: int) -> dict[str, Any]:
    arguments = {"compute_s": compute_s, "volumes_mib": volumes_mib, "pairs": pairs, "repeats": 2 * pairs}
    run = launch(f"{RANK}:measure_injected", 2, arguments=arguments, on_line=None)
    rows = run.values[0]
    points = [100 * abs(row["measured"] - row["expected"]) for row in rows]
    return {
        "injected": rows,
        "injected_error_points": statistics.fmean(points),
        "injected_worst_points": max(points),
    }


def ranks(compute_s: float, gradient_mib: float, pairs: int) -> dict[str, Any]:
    arguments = {"compute_s": compute_s, "gradient_mib": gradient_mib, "pairs": pairs, "repeats": pairs}
    found = {
        n: launch(f"{RANK}:measure_scaling", n, arguments=arguments, on_line=None).values[0]
        for n in (1, 2, 4)
    }
    link = LinkBenchmark(**found[2]["link"])
    alone = found[1]["share"]
    step = measured_step(alone["with_s"], round(gradient_mib * 2**20), layers=8)
    predicted = scale(step, 4, measured_link(link, 4, usable_cores()))
    truth = found[4]["share"]
    return {
        "ranks": {str(n): one["share"]["with_s"] for n, one in found.items()},
        "cores": usable_cores(),
        "predicted_4rank_s": predicted.seconds,
        "predicted_4rank_error": abs(predicted.seconds - truth["with_s"]) / truth["with_s"],
        "predicted_4rank_exposed_error": abs(predicted.exposed - truth["exposed_s"]) / truth["exposed_s"],
    }


def published(truth: Path) -> dict[str, Any]:
    groups: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    with truth.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            key = tuple(row[name] for name in ("source", "gpu", "model", "precision", "batch", "note"))
            groups[key].setdefault(int(row["n_gpus"]), float(row["throughput"]))
    steps: dict[str, StepTime] = {}
    rows = []
    for (_, gpu, model, precision, _, _), rates in groups.items():
        name = MODELS.get(model.split(" ")[0])
        if name is None or not {1, 8} <= rates.keys():
            continue
        card = find_accelerator(gpu.partition(" (")[0])
        if name not in steps:
            traces = traces_of(named_workload(name, micro_batch=64, precision="fp16"))
            steps[name] = predict(traces.at(64), find_accelerator("V100-SXM2-16GB"))
        rows.append(_published_row(steps[name], card.name, model, precision, rates))
    errors = [100 * abs(row["predicted"] - row["measured"]) for row in rows]
    return {"published": rows, "published_points": statistics.fmean(errors), "published_rows": len(rows)}


def _published_row(
    step: StepTime, card: str, model: str, precision: str, rates: dict[int, float]
) -> dict[str, Any]:
    batch = 128 if "fp32" in precision.lower() else 256
    seconds = batch / rates[1]
    factor = seconds / step.seconds
    own = replace(
        step, card=card, batch_size=batch, seconds=seconds, forward=step.forward * factor,
        backward=step.backward * factor, optimizer=step.optimizer * factor,
    )  # fmt: skip
    found = scale(own, 8, interconnect_of(find_accelerator(card)))
    return {
        "card": card,
        "model": model,
        "precision": precision,
        "measured": rates[8] / rates[1] / 8,
        "predicted": found.efficiency,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--part", choices=("injected", "ranks", "published"), action="append")
    parser.add_argument("--truth", type=Path, help="table of published throughputs")
    parser.add_argument("--compute-ms", type=float, default=30.0)
    parser.add_argument("--gradient-mib", type=float, default=8.0)
    parser.add_argument("--volumes-mib", type=float, nargs="+", default=VOLUMES_MIB, metavar="MIB")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    settings = parser.parse_args()
    parts = settings.part or ["injected", "ranks", *(["published"] if settings.truth else [])]
    found: dict[str, Any] = {}
    if "injected" in parts:
        found |= injected(settings.compute_ms / 1000, settings.volumes_mib, settings.pairs)
    if "ranks" in parts:
        found |= ranks(settings.compute_ms / 1000, settings.gradient_mib, settings.pairs)
    if "published" in parts:
        if settings.truth is None:
            parser.error("--part published needs --truth FILE")
        found |= published(settings.truth)
    if settings.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if isinstance(value, list):
            print(f"{name}:", *(f"  {row}" for row in value), sep="\n")
        else:
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
