"""Make the traces that lessons 01 and 09 plan with: three networks, three sizes, two precisions.

    python benchmarks/save_job_traces.py

Written to data/traces/jobs. Run it again when the tracer changes (tests/teach/test_saved_jobs.py compares).
"""

from __future__ import annotations

from course_lib.plan.model_names import named_workload
from course_lib.plan.tracer import trace
from course_lib.plan.workload import Workload
from course_lib.teach.saved_jobs import PRECISIONS, SIZES, saved_batches, trace_path


def job(model: str, size: int, precision: str) -> Workload:
    """The step that is traced, at the batch size to come."""
    sized = {"sequence": size} if model == "gpt" else {"image_size": size}
    return named_workload(model, precision=precision, **sized)


def main() -> None:
    for model, sizes in SIZES.items():
        for size in sizes:
            for precision in PRECISIONS:
                workload = job(model, size, precision)
                for batch_size in saved_batches():
                    path = trace_path(model, size, precision, batch_size)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    trace(workload.with_batch(batch_size)).save(path)
                    print(path.name, path.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
