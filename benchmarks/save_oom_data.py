"""Make the data of lesson 06: traces of ResNet-50 for its lab, and the largest batches of twenty models.

    python benchmarks/save_oom_data.py traces|batches

Written to data/traces/resnet50 and data/largest_batches.csv. Both are predictions of this repository; run it
again when the tracer or the memory plan changes (tests/teach/labs/test_oom.py compares).
"""

from __future__ import annotations

import csv
import sys

from course_lib.accelerators import find_accelerator
from course_lib.files import data_path
from course_lib.plan.batch_size import largest_batch, traces_of
from course_lib.plan.model_names import named_workload
from course_lib.plan.tracer import trace
from course_lib.teach.labs import oom as lab

MODELS = (
    "alexnet", "convnext_large", "convnext_tiny", "densenet121", "efficientnet_b0",
    "efficientnet_v2_l", "fcn_resnet50", "gpt", "mobilenet_v3_small", "regnet_y_128gf",
    "regnet_y_16gf", "resnet152", "resnet18", "resnet50", "swin3d_b", "swin_t", "vgg16", "vit_b_16",
    "vit_h_14", "vit_l_16",
)  # fmt: skip


def save_traces() -> None:
    for size in lab.IMAGE_SIZES:
        for precision in lab.PRECISIONS:
            for checkpointing in (False, True):
                workload = named_workload(
                    "resnet50", image_size=size, precision=precision, checkpointing=checkpointing
                )
                for batch_size in lab.SAVED_BATCHES:
                    path = lab.trace_path(size, precision, checkpointing, batch_size)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    trace(workload.with_batch(batch_size)).save(path)
                    print(path.name, path.stat().st_size)


def save_batches() -> None:
    cards = [find_accelerator(name) for name in lab.CARDS]
    with (data_path("traces").parent / "largest_batches.csv").open(
        "w", encoding="utf-8", newline=""
    ) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["model", *lab.CARDS])
        for name in MODELS:
            workload = named_workload(name, precision=lab.TABLE_PRECISION, optimizer=lab.TABLE_OPTIMIZER)
            traces = traces_of(workload)
            batches = [largest_batch(workload, card, traces=traces) for card in cards]
            writer.writerow([name, *batches])
            print(name, batches, flush=True)


if __name__ == "__main__":
    {"traces": save_traces, "batches": save_batches}[sys.argv[1]]()
