"""The saved traces of lessons 01 and 09 are all there, and what the tracer says today."""

import sys
from pathlib import Path

import pytest

from course_lib.errors import CourseError
from course_lib.plan.tracer import trace
from course_lib.teach.saved_jobs import PRECISIONS, SIZES, job_traces, saved_batches, trace_path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))


@pytest.mark.parametrize("model", SIZES)
def test_every_job_is_there_at_any_batch(model: str) -> None:
    for size in SIZES[model]:
        for precision in PRECISIONS:
            assert all(trace_path(model, size, precision, batch).is_file() for batch in saved_batches())
            drawn = job_traces(model, size, precision).at(100)
            assert drawn.batch_size == 100
            assert drawn.precision == precision


@pytest.mark.parametrize(("model", "size"), [("resnet50", 128), ("gpt", 128)])
def test_the_tracer_still_says_the_same(model: str, size: int) -> None:
    from save_job_traces import job

    fresh = trace(job(model, size, "fp16").with_batch(4))
    saved = job_traces(model, size, "fp16").exact(4)
    assert fresh.flops == saved.flops
    assert fresh.parameter_count == saved.parameter_count
    assert len(fresh.ops) == len(saved.ops)
    assert [block.nbytes for block in fresh.blocks] == [block.nbytes for block in saved.blocks]


@pytest.mark.parametrize(
    ("model", "size", "precision"), [("vgg16", 224, "fp16"), ("gpt", 224, "fp16"), ("gpt", 128, "int8")]
)
def test_what_is_not_saved_is_refused(model: str, size: int, precision: str) -> None:
    with pytest.raises(CourseError, match="No trace of"):
        job_traces(model, size, precision)
