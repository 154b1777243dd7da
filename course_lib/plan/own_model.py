"""Which workload does the learner's own ``module:factory`` make? Their code may raise anything."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.plan.workload import Batch, Workload, default_loss, workload_from


def own_workload(
    module_name: str, attribute: str, image_size: int | None, settings: dict[str, Any]
) -> Workload:
    """The workload of a factory (or a module) of the learner's.

    ``settings`` are fields of Workload. A module is called with its ``example_input`` where it has one, else
    with images of ``image_size`` (224) pixels. Raises CourseError for what cannot be imported, is not there,
    raises, or makes something else.
    """
    found = _found(module_name, attribute)
    name = f"{module_name}:{attribute}"
    made = found if isinstance(found, nn.Module) else _made(found, name)
    if not isinstance(made, Workload | nn.Module):
        raise CourseError(f"{name} gave {made!r:.60}: it must give a torch.nn.Module or a Workload.")
    sample = getattr(made, "example_input", None)
    if image_size is not None and (isinstance(made, Workload) or sample is not None):
        raise CourseError(f"{name} says itself what its input is: leave the image size out.")
    if isinstance(made, Workload):
        return replace(made, **settings)
    if sample is not None:
        return workload_from(made, sample, name=name, **settings)
    size = image_size or 224

    def batch(batch_size: int) -> Batch:
        images = torch.empty(batch_size, 3, size, size)
        return Batch((images,), target=torch.empty(batch_size, dtype=torch.long))

    return Workload(name, lambda: made, batch, default_loss, **settings)


def _found(module_name: str, attribute: str) -> Any:
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a script that ends itself is no module
        raise CourseError(
            f"The module {module_name!r} cannot be imported ({_told(error)}); give module:factory, with the "
            "module in this folder or installed."
        ) from error
    found = getattr(module, attribute, None)
    if found is None:
        names = [name for name in vars(module) if not name.startswith("_")]
        close = difflib.get_close_matches(attribute, names, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(close)}?" if close else "check its spelling."
        raise CourseError(f"{module_name} has no {attribute!r}; {hint}")
    return found


def _made(factory: Any, name: str) -> Any:
    if not callable(factory):
        raise CourseError(
            f"{name} is of the type {type(factory).__name__}: give a function that makes the model."
        )
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise CourseError(
            f"{name}() made no model ({_told(error)}): it must run without arguments."
        ) from error


def _told(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
