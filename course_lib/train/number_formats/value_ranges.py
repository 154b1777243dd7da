"""How large are the numbers of a training step, and which format would lose some of them?

`value_ranges` runs one real step of a copy of the model in float32 and keeps, for each layer, a histogram of
its activations, of the gradients that flow back through it, and of the gradients of its weights. The rest is
arithmetic: at which scale do how many gradients vanish in fp16, and how far off does bf16 round?
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.errors import CourseError
from course_lib.train.batch import to_device
from course_lib.train.misfit import one_sentence, require_model
from course_lib.train.number_formats.exponents import ExponentHistogram, histogram
from course_lib.train.number_formats.float_formats import rounded
from course_lib.train.preformatted import preformatted
from course_lib.train.step import LossFn, as_pair, device_of

Kind = Literal["activations", "activation gradients", "weight gradients"]
KINDS: tuple[Kind, ...] = ("activations", "activation gradients", "weight gradients")
SCALES = (1.0, 2.0**8, 2.0**16, 2.0**24)  # for the printed table; 2^16 is where a GradScaler begins


@dataclass(frozen=True)
class ValueRange:
    """The numbers of one kind in one layer. The errors are relative: |rounded - x| over |x|, as 2-norms."""

    layer: str
    kind: Kind
    histogram: ExponentHistogram
    bf16_error: float
    fp16_error: float


@dataclass(frozen=True)
class ValueRanges:
    """All of a step's numbers, layer by layer, as float32 holds them."""

    ranges: tuple[ValueRange, ...]

    def of(self, kind: Kind, layer: str | None = None) -> ExponentHistogram:
        """One histogram over all layers, or of one. Raises CourseError when there is no such layer."""
        found = [r.histogram for r in self.ranges if r.kind == kind and layer in (None, r.layer)]
        if not found:
            layers = ", ".join(dict.fromkeys(r.layer for r in self.ranges))
            raise CourseError(f"There are no {kind} of {layer!r}; there are those of {layers}.")
        return reduce(add, found)

    def to_json(self) -> list[dict[str, Any]]:
        """Each layer's numbers as plain data: exponents with their counts, and the rounding errors."""
        return [
            {
                "layer": r.layer,
                "kind": r.kind,
                "total": r.histogram.total,
                "zeros": r.histogram.zeros,
                "not_finite": r.histogram.not_finite,
                "exponents": r.histogram.by_exponent(),
                "bf16_error": r.bf16_error,
                "fp16_error": r.fp16_error,
            }
            for r in self.ranges
        ]

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for kind in KINDS:
            here = [r for r in self.ranges if r.kind == kind]
            if not any(r.histogram.nonzero for r in here):
                continue
            whole = self.of(kind)
            low, high = whole.span()
            lost = [f"{whole.becomes_zero('fp16', scale):.1%}" for scale in SCALES]
            worst = max(r.bf16_error for r in here)
            rows.append((kind, f"2^{low} to 2^{high + 1}", *lost, f"{worst:.2%}"))
        return rows

    def __str__(self) -> str:
        scales = [f"×2^{round(torch.tensor(scale).log2().item())}" for scale in SCALES]
        head = ("", "size", *scales, "bf16 off by")
        table = [head, *self._rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(head))]
        lines = [
            "  ".join(
                f"{cell:{'<' if i < 2 else '>'}{w}}"
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        return "Share that becomes zero in fp16, by the scale it is multiplied with:\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


@dataclass
class _Numbers:
    """Tensors of one layer and kind, measured as they come, so that none has to be kept."""

    parts: list[ExponentHistogram] = field(default_factory=list)
    squares: float = 0.0
    off: dict[str, float] = field(default_factory=lambda: {"bf16": 0.0, "fp16": 0.0})

    def add(self, tensor: Tensor) -> None:
        exact = tensor.detach().double()
        exact = exact[exact.isfinite()]
        self.parts.append(histogram(tensor))
        self.squares += float(exact.square().sum())
        for name in self.off:
            difference = rounded(exact.float(), name) - exact
            self.off[name] += float(difference[difference.isfinite()].square().sum())

    def error(self, name: str) -> float:
        return float((self.off[name] / self.squares) ** 0.5) if self.squares else 0.0


def value_ranges(model: nn.Module, batch: Any, loss_fn: LossFn = cross_entropy) -> ValueRanges:
    """Run one training step of a copy of the model in float32 and look at every layer's numbers.

    `batch` is a pair (inputs, targets). A layer is a module without modules inside. The model is not changed.
    Raises CourseError when model, loss and batch do not fit together, or nothing can be trained.
    """
    require_model(model)
    device = device_of(model)
    trained = copy.deepcopy(model).float().train()
    inputs, targets = (_as_float32(part) for part in to_device(as_pair(batch), device))
    numbers: dict[tuple[str, Kind], _Numbers] = {}
    hooks = [
        module.register_forward_hook(_watch(name or type(module).__name__, numbers))
        for name, module in trained.named_modules()
        if not any(module.children())
    ]
    try:
        with one_sentence():
            loss = loss_fn(trained(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
    finally:
        for hook in hooks:
            hook.remove()
    for name, parameter in trained.named_parameters():
        if parameter.grad is not None:
            layer = name.rpartition(".")[0] or type(trained).__name__
            numbers.setdefault((layer, "weight gradients"), _Numbers()).add(parameter.grad)
    return ValueRanges(
        tuple(
            ValueRange(layer, kind, reduce(add, seen.parts), seen.error("bf16"), seen.error("fp16"))
            for (layer, kind), seen in numbers.items()
        )
    )


def _as_float32(part: Any) -> Any:
    return part.float() if isinstance(part, Tensor) and part.is_floating_point() else part


def _watch(layer: str, numbers: dict[tuple[str, Kind], _Numbers]) -> Callable[..., None]:
    def after_forward(module: nn.Module, inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return
        numbers.setdefault((layer, "activations"), _Numbers()).add(output)
        if output.requires_grad:
            gradients = numbers.setdefault((layer, "activation gradients"), _Numbers())
            output.register_hook(gradients.add)  # type: ignore[no-untyped-call]

    return after_forward
