"""What do other tools say about the memory of a training step? The same question, put to each in its own way.

- **accelerate** (``accelerate estimate-memory``): four times the parameters for training with Adam; no
  activations.
- **torchinfo**: input, parameters, and the outputs of the layers of forward and backward.
- **MemTracker** (``torch.distributed._tools``): a step under fake tensors on the CPU, parameters to
  optimizer states.

Each answers in MiB, without the CUDA context.
"""

from __future__ import annotations

from collections.abc import Callable

import timm
import torch
from torch import nn
from torch.nn import functional

MIB = 2**20


def _model(name: str) -> tuple[nn.Module, tuple[int, int, int]]:
    model = timm.create_model(name, pretrained=False)
    return model, tuple(model.default_cfg["input_size"])


def accelerate_estimate(name: str, batch_size: int) -> float:
    """What ``accelerate estimate-memory`` prints under "Training w/ Adam" for float32."""
    from accelerate.utils import calculate_maximum_sizes

    model, _ = _model(name)
    total, _ = calculate_maximum_sizes(model)
    return 4 * float(total) / MIB


def torchinfo_estimate(name: str, batch_size: int) -> float:
    """torchinfo's "Estimated Total Size"."""
    from torchinfo import summary

    model, size = _model(name)
    found = summary(model, input_size=(2, *size), verbose=0, mode="train")
    per_sample = (found.total_input + found.total_output_bytes) / 2
    return float(per_sample * batch_size + found.total_param_bytes) / MIB


def memtracker_estimate(name: str, batch_size: int) -> float:
    """The peak that MemTracker sees in the second step with SGD and momentum."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    model, size = _model(name)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for module in model.modules():
            for key, parameter in list(module._parameters.items()):
                if parameter is not None:
                    module._parameters[key] = nn.Parameter(mode.from_tensor(parameter.detach()))
            for key, buffer in list(module._buffers.items()):
                if buffer is not None:
                    module._buffers[key] = mode.from_tensor(buffer)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        images = torch.empty(batch_size, *size)
        target = torch.zeros(batch_size, dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, images, target)
        with tracker:
            for step in range(2):
                functional.cross_entropy(model(images), target).backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
        peak = tracker.get_tracker_snapshot("peak")
    return max(snapshot["Total"] for snapshot in peak.values()) / MIB


RIVALS: dict[str, Callable[[str, int], float]] = {
    "accelerate": accelerate_estimate,
    "torchinfo": torchinfo_estimate,
    "MemTracker": memtracker_estimate,
}
