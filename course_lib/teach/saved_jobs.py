"""Which networks can lessons 01 and 09 plan at once? Those whose traces are saved with the course.

Each is saved at two batch sizes, so that any batch is drawn from them in milliseconds; tracing one afresh
takes a second or more. ``benchmarks/save_job_traces.py`` makes the files.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.batch_size import PROBES, BatchTraces
from course_lib.plan.step_trace import load_trace

SIZES: dict[str, tuple[int, ...]] = {
    "resnet50": (128, 224, 384),  # pixels
    "vit_b_16": (128, 224, 384),
    "gpt": (128, 512, 2048),  # tokens
}
PRECISIONS = ("fp32", "fp16")


def trace_path(model: str, size: int, precision: str, batch_size: int) -> Path:
    """Where the saved trace of one step is."""
    return data_path("traces") / f"jobs/{model}_{size}_{precision}_b{batch_size}.json.gz"


@lru_cache(maxsize=36)
def job_traces(model: str, size: int, precision: str = "fp16") -> BatchTraces:
    """The traces of a saved network at any batch size.

    Args:
        model: resnet50, vit_b_16 (both of torchvision) or gpt (the course's GPT, as large as GPT-2 small).
        size: pixels of an image's side, or tokens of a text.
        precision: fp32, or fp16 for autocast.

    Raises:
        CourseError: what is not saved, with what is.
    """
    if model not in SIZES or size not in SIZES[model] or precision not in PRECISIONS:
        known = "; ".join(f"{name} at {', '.join(map(str, sizes))}" for name, sizes in SIZES.items())
        raise CourseError(
            f"No trace of {model} at {size} in {precision} is saved. Saved are {known}, in "
            f"{' and '.join(PRECISIONS)}. Any other network: `course plan`."
        )
    return BatchTraces(lambda batch_size: load_trace(trace_path(model, size, precision, batch_size)))


def saved_batches() -> tuple[int, ...]:
    """The batch sizes at which traces are saved."""
    return PROBES
