"""In which number type did each operation of a training step really run?

`inspect_dtypes` runs one real step of a copy of the model, under the autocast of a precision, and writes down
every operation below autocast: its layer, the types that went in, the type that came out. What autocast
decided is then no table in a manual but a fact about this model.
"""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.train.batch import to_device
from course_lib.train.misfit import one_sentence, require_model
from course_lib.train.number_formats.float_formats import Format
from course_lib.train.precision import Precision, precision_for
from course_lib.train.preformatted import preformatted
from course_lib.train.step import LossFn, as_pair, device_of

Phase = Literal["forward", "backward"]

SHORT: dict[torch.dtype, str] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}
_CAST = "_to_copy"
# Operations that look at numbers without computing any: views, and bookkeeping of autograd.
# fmt: off
_NO_WORK = frozenset((
    "detach", "view", "t", "transpose", "expand", "permute", "unsqueeze", "squeeze", "select", "slice",
    "split", "unbind", "reshape", "alias", "as_strided", "empty", "empty_like", "empty_strided",
    "zeros", "zeros_like", "ones_like", "new_zeros", "new_empty", "fill_", "_unsafe_view", "unfold",
    "copy_", "clone",
))
# fmt: on


@dataclass(frozen=True)
class Operation:
    """One operation as it ran: PyTorch's name for it, the layer, and the short names of its types."""

    name: str
    layer: str
    phase: Phase
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class DtypeReport:
    """What ran in which type during one step. `casts` are the conversions, which autocast put in."""

    precision: Precision
    operations: tuple[Operation, ...]
    casts: tuple[Operation, ...]

    def by_operation(self, phase: Phase = "forward") -> dict[str, dict[str, int]]:
        """Operation to output type to how often."""
        return self._count(lambda operation: operation.name, phase)

    def by_layer(self) -> dict[str, dict[str, int]]:
        """Layer to output type to how many of its operations, in the forward pass; "loss" is outside."""
        return self._count(lambda operation: operation.layer, "forward")

    def kept_in_fp32(self) -> tuple[str, ...]:
        """Names of the forward operations that ran in float32, in order."""
        return tuple(name for name, types in self.by_operation().items() if "fp32" in types)

    def _count(self, key: Callable[[Operation], str], phase: Phase) -> dict[str, dict[str, int]]:
        counts: dict[str, Counter[str]] = {}
        for operation in self.operations:
            if operation.phase == phase:
                counts.setdefault(key(operation), Counter())[operation.output] += 1
        return {name: dict(types) for name, types in counts.items()}

    def to_json(self) -> dict[str, Any]:
        """Counts by operation for both passes, and the number of conversions."""
        return {
            "precision": self.precision.format,
            "forward": self.by_operation("forward"),
            "backward": self.by_operation("backward"),
            "casts": len(self.casts),
        }

    def __str__(self) -> str:
        lines = [f"One step in {self.precision.format}: the type that each operation gave"]
        phases: tuple[Phase, ...] = ("forward", "backward")
        for phase in phases:
            counts = self.by_operation(phase)
            width = max((len(name) for name in counts), default=0)
            lines.append(f"{phase}:")
            lines += [
                f"  {name:{width}}  " + ", ".join(f"{many} × {kind}" for kind, many in types.items())
                for name, types in counts.items()
            ]
        lines.append(f"{len(self.casts)} conversions between types")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def inspect_dtypes(
    model: nn.Module,
    batch: Any,
    precision: Precision | Format,
    loss_fn: LossFn = cross_entropy,
) -> DtypeReport:
    """Run forward and backward of a copy of the model under `precision`, and tell each operation's type.

    `batch` is a pair (inputs, targets). The model is not changed. Raises CourseError when model, loss and
    batch do not fit together. fp16 on a processor is slow: give a small batch.
    """
    require_model(model)
    device = device_of(model)
    chosen = precision_for(precision, device) or Precision("fp32", device.type)
    inspected = copy.deepcopy(model).train()
    inputs, targets = to_device(as_pair(batch), device)
    recorder = _Recorder()
    hooks = recorder.follow(inspected)
    try:
        with one_sentence(), recorder, chosen.float32_products():
            with chosen.autocast():
                loss = loss_fn(inspected(inputs), targets)
            recorder.phase = "backward"
            loss.backward()  # type: ignore[no-untyped-call]
    finally:
        for hook in hooks:
            hook.remove()
    return DtypeReport(chosen, tuple(recorder.operations), tuple(recorder.casts))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operation below autocast and autograd, with the tensors that it really gets."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase: Phase = "forward"
        self.operations: list[Operation] = []
        self.casts: list[Operation] = []
        self._within: list[str] = []

    def follow(self, model: nn.Module) -> list[Any]:
        """Hooks that tell in which layer the forward pass is."""
        hooks: list[Any] = []
        for name, module in model.named_modules():
            layer = name or type(module).__name__
            hooks.append(module.register_forward_pre_hook(self._enter(layer)))
            hooks.append(module.register_forward_hook(self._leave))
        return hooks

    def _enter(self, layer: str) -> Callable[..., None]:
        def before_forward(module: nn.Module, inputs: Any) -> None:
            self._within.append(layer)

        return before_forward

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._within.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and write it down."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in _NO_WORK:
            return result
        output = next((kind for kind in map(_short, tree_leaves(result)) if kind), None)
        if output is not None:
            inputs = tuple(kind for kind in map(_short, tree_leaves((args, kwargs))) if kind)
            layer = (self._within[-1] if self._within else "loss") if self.phase == "forward" else ""
            target = self.casts if name == _CAST else self.operations
            target.append(Operation(name, layer, self.phase, inputs, output))
        return result


def _short(value: Any) -> str | None:
    return SHORT.get(value.dtype) if isinstance(value, Tensor) else None
