"""Can this data set travel to a worker that starts anew, and which start method is right for it?"""

import io
import multiprocessing
import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.train.loading.settings import Source, StartMethod

IMPORTED = "Put its classes and functions into a .py file and import them, and use no lambda."


def best_start_method(source: Source) -> tuple[StartMethod | None, str]:
    """The start method, and why; None is the system's own, as it is set now.

    One that a `DataLoader` asks for is kept.

    Raises CourseError when no start method of this system can bring the data set to a worker.
    """
    asked = source.start_method
    trouble = why_it_cannot_travel(source)
    if asked is not None:
        if trouble is not None and asked != "fork":
            raise CourseError(
                f"Your loader starts its workers by {asked}, and this data set cannot travel to such a "
                f"worker: {trouble}. {IMPORTED}"
            )
        return asked, "your loader asks for it"
    now = multiprocessing.get_start_method()
    known = multiprocessing.get_all_start_methods()
    cuda_is_used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if now == "fork" and cuda_is_used and trouble is None:
        return "forkserver", "CUDA is in use, and a forked worker must not touch it"
    if trouble is None or now == "fork":
        return None, ""
    if "fork" in known:
        return "fork", f"the data set cannot travel to a new process ({trouble})"
    raise CourseError(f"This data set cannot travel to a worker: {trouble}. {IMPORTED}")


def why_it_cannot_travel(source: Source) -> str | None:
    """What keeps the data set or its collating from being pickled; None when nothing does."""
    for name, thing in (("the data set", source.dataset), *source.arguments.items()):
        if name in ("sampler", "batch_sampler"):
            continue  # they stay in the training process
        try:
            _Measuring(io.BytesIO()).dump(thing)
        except Exception as error:
            return f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        if _is_from_a_notebook(thing):
            return f"{name} is made by a class or function of the notebook"
    return None


def _is_from_a_notebook(thing: Any) -> bool:
    """Whether a new process would look for it in a module that has no file."""
    of = thing if hasattr(thing, "__qualname__") else type(thing)
    main = sys.modules.get("__main__")
    return getattr(of, "__module__", None) == "__main__" and not hasattr(main, "__file__")


class _Measuring(ForkingPickler):
    """A pickler that leaves tensors out: to pickle one for another process would move it there."""

    def persistent_id(self, thing: Any) -> Any:
        return "tensor" if isinstance(thing, torch.Tensor | torch.UntypedStorage) else None
