"""What would one training step do on a CUDA card? Found out without a card, and without computing anything.

The model is built (on the meta device where it allows that, so that seven billion parameters cost no
memory), its parameters are replaced by fake tensors, and one forward and backward pass run under a
recorder.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from course_lib.errors import CourseError
from course_lib.plan.checkpointed import checkpoint_blocks
from course_lib.plan.fake_backward import backward
from course_lib.plan.fake_cuda import CudaRules, autocast, fake_device, fused_attention
from course_lib.plan.recorder import Recorder
from course_lib.plan.step_trace import RELEASE, StepTrace
from course_lib.plan.workload import PRECISIONS, Batch, Workload

_RANDOM_FILLS = frozenset(
    [
        "normal_",
        "uniform_",
        "trunc_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "xavier_uniform_",
        "xavier_normal_",
        "erfinv_",
        "orthogonal_",
        "bernoulli_",
        "exponential_",
        "log_normal_",
        "cauchy_",
        "geometric_",
    ]
)


class _SkipRandomFills(TorchFunctionMode):
    """Leaves new parameters as they are: their values never matter here, and drawing them takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _RANDOM_FILLS and args and isinstance(args[0], torch.Tensor):
            return args[0]
        return func(*args, **(kwargs or {}))


def build(workload: Workload) -> nn.Module:
    """The module of a workload, without values where it can be made so."""
    with _SkipRandomFills(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.device("meta"):
                model = workload.model()
        except CourseError:
            raise
        except Exception:  # a constructor that reads a value, which meta tensors do not have
            model = workload.model()
    if not isinstance(model, nn.Module):
        raise CourseError(f"{workload.name} made a {type(model).__name__}, not a torch.nn.Module.")
    return model


def trace(workload: Workload, *, device: str | None = None, inference: bool = False) -> StepTrace:
    """Trace the forward and backward pass of one micro-batch of ``workload``.

    ``device`` is the device that fake tensors claim; the default is right for the torch at hand. With
    ``inference`` the model is in evaluation mode and only its forward pass is traced, without a loss.
    Raises CourseError, naming the operation and the module, for a model that cannot be traced.
    """
    if not isinstance(workload, Workload):
        raise CourseError(
            f"A Workload is traced, not {workload!r:.60}: make one with workload_from(model, sample), or "
            "with named_workload('resnet50')."
        )
    device = device or fake_device()
    recorder = Recorder()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        model = build(workload)
        stack.enter_context(_same_draws())
        stack.enter_context(_without_a_card())
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        with fake:
            memo = _fakes(model, device, workload.channels_last)
        model = _copy(model, memo)
        stack.enter_context(fake)
        model.train(not inference)
        if workload.checkpointing and not inference:
            checkpoint_blocks(model)
        for undo in recorder.follow(model):
            stack.callback(undo)
        try:
            _run(workload, model, recorder, device, inference)
        except CourseError:
            raise
        except Exception as error:
            where = f" in module {recorder.failed_in!r}" if recorder.failed_in else ""
            reason = str(error).strip().splitlines()
            raise CourseError(
                f"{workload.name} cannot be traced: operation {recorder.last_op or 'none'}{where} "
                f"({recorder.phase} pass): {reason[0] if reason else type(error).__name__}"
            ) from error
        finally:
            recorder.stop()
        parameter_count = sum(p.numel() for p in model.parameters())
    return StepTrace(
        workload.name,
        workload.micro_batch,
        workload.precision,
        parameter_count,
        tuple(recorder.ops),
        tuple(recorder.blocks),
        _in_order(recorder.events),
    )


def _in_order(events: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """The events, with releases that follow each other directly sorted: a cache that is dropped lets go
    in any order, and two traces of the same step must be the same.
    """
    ordered: list[tuple[int, int, int]] = []
    for (_, kind), group in itertools.groupby(events, key=lambda event: event[:2]):
        run = list(group)
        ordered += sorted(run) if kind == RELEASE else run
    return tuple(ordered)


def _run(
    workload: Workload, model: nn.Module, recorder: Recorder, device: str, inference: bool = False
) -> None:
    for name, parameter in model.named_parameters():
        recorder.module = name
        recorder.watch(parameter, "parameter")
    for name, buffer in model.named_buffers():
        recorder.module = name
        recorder.watch(buffer, "buffer")
    recorder.module = ""
    with torch.device(device):
        batch = _place(workload.batch(workload.micro_batch), device, workload.channels_last)
    for tensor in _leaves((batch.args, batch.kwargs, batch.target)):
        recorder.watch(tensor, "input")
    recorder.phase = "forward"
    with recorder, CudaRules(device), fused_attention(device):
        with (
            torch.device(device),
            autocast(device, PRECISIONS[workload.precision]),
            torch.set_grad_enabled(not inference),
        ):
            if inference:
                model(*batch.args, **batch.kwargs)
                return
            loss = workload.loss(model(*batch.args, **batch.kwargs), batch.target)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise CourseError(
                f"The loss of {workload.name} must be one number; its loss function gave something else."
            )
        if loss.grad_fn is None:
            raise CourseError(
                f"The loss of {workload.name} does not depend on any parameter that is trained."
            )
        recorder.mark_activations()
        recorder.phase = "backward"
        recorder.module = ""
        start = [torch.ones_like(loss)]
        roots = [loss]
        del loss
        backward(roots, start, recorder.enter_node, recorder.gradient_ready)
    recorder.stop()


def _fakes(model: nn.Module, device: str, channels_last: bool) -> dict[int, Any]:
    """For each parameter and buffer (by its ``id``) a fake one on ``device``. Shared ones stay shared."""
    fakes: dict[int, Any] = {}

    def fake_like(tensor: torch.Tensor, where: str) -> torch.Tensor:
        layout = torch.channels_last if channels_last and tensor.dim() == 4 else torch.contiguous_format
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=where, memory_format=layout)

    for parameter in model.parameters():
        if id(parameter) not in fakes:
            fakes[id(parameter)] = nn.Parameter(
                fake_like(parameter.detach(), device), parameter.requires_grad
            )
    for buffer in model.buffers():
        if id(buffer) not in fakes:
            fakes[id(buffer)] = fake_like(buffer, device)
    for module in model.modules():  # plain attributes: they would have stayed on the CPU
        for value in vars(module).values():
            if isinstance(value, torch.Tensor) and value.is_meta and id(value) not in fakes:
                fakes[id(value)] = fake_like(value, "cpu")
    return fakes


def _copy(model: nn.Module, fakes: dict[int, Any]) -> nn.Module:
    """A copy of the module with fake parameters and buffers. The given module is left as it was."""
    try:
        return copy.deepcopy(model, fakes)
    except Exception as error:
        raise CourseError(
            f"The module cannot be copied, so it cannot be traced without changing it: {error}"
        ) from error


def _place(batch: Batch, device: str, channels_last: bool) -> Batch:
    def place(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.to(device)
            if channels_last and value.dim() == 4:
                value = value.contiguous(memory_format=torch.channels_last)
            return value
        if isinstance(value, tuple | list):
            return type(value)([place(item) for item in value])
        if isinstance(value, dict):
            return {name: place(item) for name, item in value.items()}
        return value

    return Batch(place(batch.args), place(batch.kwargs), place(batch.target))


def _leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(tuple(value.values()))


@contextlib.contextmanager
def _same_draws() -> Iterator[None]:
    """Models that draw a size (mixed tokens, dropped paths) draw the same one in each trace; the caller's
    own draws go on.
    """
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


@contextlib.contextmanager
def _without_a_card() -> Iterator[None]:
    """Questions that torch asks the machine, answered as a card would.

    Autocast would switch itself off when checkpointing enters it again. Checkpointing asks the engine
    which backward pass this is: there is one.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False)
        )
        stack.enter_context(mock.patch("torch._C._current_graph_task_id", return_value=0))
        stack.enter_context(mock.patch("torch.cuda.is_bf16_supported", return_value=True))
        # A few cuDNN operations (grid_sample) have no fake version; the plain ones take the same memory.
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield
