"""How far off are step times that `course calibrate` predicts for this machine, on models it did not run?

    python benchmarks/calibration.py [--device cpu] [--batch 4] [--seconds 60] [--json]

Measures the device, predicts a training step (float32, SGD with momentum) of ten torchvision models, then
runs each for a few steps and takes the median after the first. Let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn
from torchvision import models

from course_lib.errors import CourseError
from course_lib.machine import best_device
from course_lib.plan.calibrate import calibrate
from course_lib.plan.model_names import named_workload
from course_lib.plan.speed import predict
from course_lib.plan.tracer import trace

MODELS = (
    "resnet18", "mobilenet_v2", "resnet50", "efficientnet_b0", "densenet121", "mobilenet_v3_large",
    "regnet_x_400mf", "convnext_tiny", "vgg11", "vit_b_16",
)  # fmt: skip
STEPS = 6
LONGEST = 8.0  # seconds of steps of one model; two after the first are always run


def measure(name: str, device: str, batch_size: int) -> float:
    """The median of a few real training steps, in seconds."""
    model = models.get_model(name, weights=None).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch_size, 3, 224, 224, device=device)
    classes = torch.zeros(batch_size, dtype=torch.long, device=device)
    times: list[float] = []
    while len(times) < 3 or (len(times) < STEPS and sum(times) < LONGEST):
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), classes).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        elif device == "mps":
            torch.mps.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0, help="for the calibration")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    made = calibrate(arguments.device, seconds=arguments.seconds)
    rows: list[dict[str, Any]] = []
    for name in MODELS:
        step = predict(
            trace(named_workload(name, micro_batch=arguments.batch)),
            made.rates,
            coefficients=made.coefficients,
        )
        true = measure(name, arguments.device, arguments.batch)
        rows.append(
            {
                "model": name, "measured": true, "predicted": step.seconds,
                "error": step.seconds / true - 1, "inside": step.low <= true <= step.high,
            }
        )  # fmt: skip
    errors = [abs(row["error"]) for row in rows]
    result = {
        "median": statistics.median(errors), "largest": max(errors),
        "coverage90": sum(row["inside"] for row in rows) / len(rows), "rows": len(rows),
        "calibration_seconds": made.seconds, "device": made.rates.name, "models": rows,
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    print(made)
    for row in rows:
        print(
            f"{row['model']:<22}{1e3 * row['measured']:>9.1f} ms measured"
            f"{1e3 * row['predicted']:>9.1f} ms predicted{100 * row['error']:>+7.1f} %"
        )
    print(f"median {100 * result['median']:.1f} %, largest {100 * result['largest']:.1f} %")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
