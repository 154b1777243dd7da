"""How is a learner's step called? By the names of its parameters: each name says what is wanted.

    def train(model, loader, optimizer, criterion, accum_steps): ...

A step that takes the batches is called once an epoch, one that takes a `window` once a window, and one that
takes `epochs` once in all. What has a default and no known name is left alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

from course_lib.errors import CourseError
from course_lib.train.equivalence.recorder import Recorder
from course_lib.train.equivalence.reference import Reference, learning_rate_factor

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "model": ("model", "net", "network", "student", "ddp", "ddp_model", "module"),
    "batches": (
        "batches", "loader", "train_loader", "dataloader", "train_dataloader", "data_loader", "data",
        "trainloader",
    ),
    "window": ("window", "micro_batches", "micros"),
    "optimizer": ("optimizer", "opt", "optim"),
    "loss_fn": ("loss_fn", "criterion", "loss_function", "objective"),
    "scheduler": ("scheduler", "lr_scheduler", "sched"),
    "scaler": ("scaler", "grad_scaler"),
    "accumulation_steps": (
        "accumulation_steps", "accum_steps", "accumulate", "accum", "grad_accum", "k",
        "gradient_accumulation_steps", "grad_accum_steps",
    ),
    "max_norm": ("max_norm", "max_grad_norm", "clip", "grad_clip", "clip_norm"),
    "device": ("device",),
    "epochs": ("epochs", "num_epochs", "n_epochs"),
    "epoch": ("epoch",),
    "world_size": ("world_size",),
    "rank": ("rank",),
}  # fmt: skip
"""What a step can ask for, and the parameter names that ask for it."""

MEANING: Final = {name: meaning for meaning, names in NAMES.items() for name in names}


class _HandedOut(Dataset[Any]):
    """The micro-batches of a rank, in order; says which one was asked for, and when a new pass begins."""

    def __init__(self, recorder: Recorder, *, counts_epochs: bool) -> None:
        self._recorder = recorder
        self._numbers = recorder.task.of_rank(recorder.record.rank)
        self._counts_epochs = counts_epochs
        self._passes = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: int) -> Any:
        if at == 0 and self._counts_epochs:
            self._recorder.begin_epoch(min(self._passes, self._recorder.task.reference.epochs - 1))
            self._passes += 1
        number = self._numbers[at]
        self._recorder.latest_batch = number
        return self._recorder.task.batches[number]


def run_step(step: Callable[..., Any], recorder: Recorder, model: nn.Module) -> None:
    """Call the step for all epochs of the reference; `model` may be the recorder's own, wrapped in DDP.

    Raises CourseError for a step that asks for something unknown. What the step raises goes through.
    """
    reference, task = recorder.task.reference, recorder.task
    wanted = _wanted(step, reference)
    optimizer = task.optimizer(recorder.model)
    in_one = "epochs" in wanted.values()
    loader: DataLoader[Any] = DataLoader(_HandedOut(recorder, counts_epochs=in_one), batch_size=None)
    things: dict[str, Any] = {
        "model": model, "batches": loader, "optimizer": optimizer, "loss_fn": task.loss_fn,
        "accumulation_steps": reference.accumulation_steps, "max_norm": reference.max_norm,
        "device": torch.device("cpu"), "epochs": reference.epochs, "world_size": reference.world_size,
        "rank": recorder.record.rank,
    }  # fmt: skip
    if "scheduler" in wanted.values():
        things["scheduler"] = _schedule(optimizer)
    if "scaler" in wanted.values():
        things["scaler"] = torch.amp.GradScaler("cpu")
    recorder.record.calls.clear()  # a scheduler steps once when it is made
    if in_one:
        step(**{name: things[meaning] for name, meaning in wanted.items()})
        return
    for epoch in range(reference.epochs):
        recorder.begin_epoch(epoch)
        things["epoch"] = epoch
        for things["window"] in _windows(recorder, loader) if "window" in wanted.values() else [()]:
            step(**{name: things[meaning] for name, meaning in wanted.items()})


def _wanted(step: Callable[..., Any], reference: Reference) -> dict[str, str]:
    """The parameters to fill, each with what is meant. Raises CourseError for one that is not understood."""
    try:
        parameters = inspect.signature(step).parameters
    except (TypeError, ValueError):
        raise CourseError(
            f"{step!r} cannot be called as a step: give a function such as train(model, loader, optimizer)."
        ) from None
    wanted = {}
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        meaning = MEANING.get(name)
        optional = parameter.default is not parameter.empty
        if meaning is None and not optional:
            known = ", ".join(names[0] for names in NAMES.values())
            raise CourseError(
                f"The step asks for {name!r}, which is not known: rename it, or give it a default. "
                f"It can ask for {known}."
            )
        if meaning == "max_norm" and reference.max_norm is None:
            if optional:
                continue
            raise CourseError(f"The step asks for {name!r}: say to what, as in Reference(max_norm=1.0).")
        if meaning is not None:
            wanted[name] = meaning
    for needed in ("model", "optimizer"):
        if needed not in wanted.values():
            raise CourseError(
                f"The step does not take the {needed}: make it a parameter, named {NAMES[needed][0]!r}, "
                "so that the step and the large batch begin alike."
            )
    if not {"batches", "window"} & set(wanted.values()):
        raise CourseError(
            "The step takes no batches: give it a parameter 'loader' (it is called once an epoch), or "
            "'window' (a list of micro-batches; called once an update)."
        )
    return wanted


def wants(step: Callable[..., Any], meaning: str) -> bool:
    """Whether a step asks for a thing, such as "scheduler", under any of its names."""
    return any(MEANING.get(name) == meaning for name in inspect.signature(step).parameters)


def _schedule(optimizer: Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, learning_rate_factor)


def _windows(recorder: Recorder, loader: DataLoader[Any]) -> Iterator[list[Any]]:
    k = recorder.task.reference.accumulation_steps
    batches = list(loader)
    for at in range(0, len(batches), k):
        yield batches[at : at + k]
