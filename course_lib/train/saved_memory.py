"""How many bytes does a forward pass keep for the backward pass?

These are the activations. They are counted where autograd saves them, on any device, each storage once;
parameters and the batch itself, which are there anyway, are not counted.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.train.batch import to_device
from course_lib.train.misfit import one_sentence, require_model
from course_lib.train.number_formats.float_formats import Format
from course_lib.train.precision import Precision, precision_for
from course_lib.train.step import LossFn, as_pair, device_of


def saved_bytes(
    model: nn.Module,
    batch: Any,
    precision: Precision | Format | None = None,
    loss_fn: LossFn = cross_entropy,
) -> int:
    """Bytes that autograd keeps between forward and backward pass of one step, under `precision`.

    With autocast these include the weights' copies in 16 bits. `batch` is a pair (inputs, targets). The
    model is not changed. Raises CourseError when model, loss and batch do not fit together.
    """
    require_model(model)
    device = device_of(model)
    chosen = precision_for(precision, device) or Precision("fp32", device.type)
    watched = copy.deepcopy(model).train()
    inputs, targets = to_device(as_pair(batch), device)
    given = [part for part in (inputs, targets) if isinstance(part, Tensor)]
    present = {_place(tensor) for tensor in (*watched.parameters(), *watched.buffers(), *given)}
    kept: dict[int, Tensor] = {}  # holds them, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        if _place(tensor) not in present:
            kept.setdefault(_place(tensor), tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with one_sentence(), hooks, chosen.autocast():
        loss_fn(watched(inputs), targets)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
