"""How is a convolutional network made slimmer, and what does that save before anything is trained?

Two changes: depthwise separable convolutions (Sifre 2014; MobileNets, Howard et al. 2017) in place of plain
ones, and a head that is pooled or narrower in place of VGG's wide fully connected layers. Each returns a
changed copy with new random weights in what it replaced; `compare` tells the difference in parameters,
activations and operations. What it costs in accuracy, only training tells.
"""

import copy
import fnmatch
import html
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from course_lib.errors import CourseError
from course_lib.units import format_bytes, format_count


class SeparableConv2d(nn.Module):
    """A depthwise convolution (one filter a channel), then a 1 × 1 convolution that mixes the channels.

    Takes (batch, in_channels, height, width) and returns (batch, out_channels, height', width') as the
    plain convolution with the same kernel, stride, padding and dilation does. k·k·in + in·out weights in
    place of k·k·in·out. The output between the two is kept for the backward pass: there are fewer
    parameters and operations, and more activations.
    """

    def __init__(self, plain: nn.Conv2d) -> None:
        """Shaped after `plain`, on its device and with its type; nothing of its weights is used."""
        super().__init__()
        place: dict[str, Any] = {"device": plain.weight.device, "dtype": plain.weight.dtype}
        geometry: dict[str, Any] = {
            name: getattr(plain, name)
            for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        }
        channels = plain.in_channels
        self.depthwise = nn.Conv2d(channels, channels, groups=channels, bias=False, **geometry, **place)
        self.pointwise = nn.Conv2d(channels, plain.out_channels, 1, bias=plain.bias is not None, **place)

    def forward(self, images: Tensor) -> Tensor:
        """Each channel filtered, then mixed."""
        mixed: Tensor = self.pointwise(self.depthwise(images))
        return mixed


def separable(model: nn.Module, layers: Sequence[str] = ("*",)) -> nn.Module:
    """A copy of `model` with depthwise separable convolutions in place of the plain ones whose names match
    one of `layers`.

    `layers` are shell patterns on the names in `named_modules()`, such as "features.*". Plain is what has
    one group and a kernel larger than 1 × 1. The first convolution is left as it is unless a pattern is its
    exact name: it sees three colours, and there is little to save. Raises CourseError when nothing matches.
    """
    slim = copy.deepcopy(model)
    convolutions = [(name, module) for name, module in slim.named_modules() if isinstance(module, nn.Conv2d)]
    first = convolutions[0][0] if convolutions else ""
    chosen = [
        (name, module)
        for name, module in convolutions
        if type(module) is nn.Conv2d
        and module.groups == 1
        and max(module.kernel_size) > 1
        and (
            name in layers if name == first else any(fnmatch.fnmatchcase(name, pattern) for pattern in layers)
        )
    ]
    if not chosen:
        plain = [name for name, module in convolutions if module.groups == 1 and max(module.kernel_size) > 1]
        raise CourseError(
            f"No plain convolution matches {', '.join(layers)}: "
            f"{'the model has ' + _some(plain) if plain else 'the model has none at all'}."
        )
    for name, module in chosen:
        _replace(slim, name, SeparableConv2d(module))
    return slim


def pooled_head(model: nn.Module, head: str = "classifier", pool: str = "avgpool") -> nn.Module:
    """A copy of `model` that averages over the picture and has one fully connected layer: `pool` becomes 1
    × 1, `head` one Linear.

    `head` is a Linear, or a Sequential with some, that follows the AdaptiveAvgPool2d `pool`: so it is in
    torchvision's VGG and AlexNet. Raises CourseError where the two do not fit together.
    """
    slim = copy.deepcopy(model)
    linears = _linears(slim, head)
    pooling = _named(slim, pool)
    if not isinstance(pooling, nn.AdaptiveAvgPool2d):
        raise CourseError(
            f"{pool!r} is a {type(pooling).__name__}, not an AdaptiveAvgPool2d: "
            "name the pooling before the head."
        )
    size: Any = pooling.output_size
    height, width = size if isinstance(size, tuple) else (size, size)
    first, last = linears[0], linears[-1]
    if not height or not width or first.in_features % (height * width):
        raise CourseError(
            f"{head!r} takes {first.in_features} numbers, which the {height} × {width} places of {pool!r} "
            "do not divide: name the pooling that stands right before the head."
        )
    if height * width == 1 and len(linears) == 1:
        raise CourseError(
            f"The head {head!r} is pooled to 1 × 1 and has one layer already: there is nothing to save."
        )
    channels = first.in_features // (height * width)
    _replace(slim, pool, nn.AdaptiveAvgPool2d(1))
    single = nn.Linear(
        channels, last.out_features, last.bias is not None, device=last.weight.device, dtype=last.weight.dtype
    )
    old = _named(slim, head)
    dropouts = [module for module in old.modules() if isinstance(module, nn.Dropout)]
    _replace(slim, head, nn.Sequential(dropouts[0], single) if dropouts else single)
    return slim


def smaller_head(model: nn.Module, hidden: int, head: str = "classifier") -> nn.Module:
    """A copy of `model` whose fully connected layers inside `head` are at most `hidden` wide; what goes in
    and comes out stays.

    `head` is a Sequential with two Linear layers or more, at its top. Raises CourseError where there is
    nothing to narrow.
    """
    if hidden < 1:
        raise CourseError(f"A layer is 1 wide or more, not {hidden}.")
    slim = copy.deepcopy(model)
    linears = _linears(slim, head)
    if len(linears) < 2 or all(linear.out_features <= hidden for linear in linears[:-1]):
        widths = ", ".join(str(linear.out_features) for linear in linears[:-1]) or "none"
        raise CourseError(
            f"No hidden layer in {head!r} is wider than {hidden} (they have: {widths}): "
            "there is nothing to save."
        )
    names = {module: name for name, module in slim.named_modules()}
    width = linears[0].in_features
    for linear in linears:
        out = linear.out_features if linear is linears[-1] else min(hidden, linear.out_features)
        place = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        _replace(slim, names[linear], nn.Linear(width, out, linear.bias is not None, **place))
        width = out
    return slim


@dataclass(frozen=True)
class ModelCost:
    """What a model costs for one batch of a shape.

    `parameters` counts numbers, `parameter_bytes` and `activation_bytes` are bytes: what the forward pass
    keeps for the backward pass, parameters not counted. `forward_flops` counts a multiply-add as two
    (torch's flop counter: matrix products and convolutions).
    """

    parameters: int
    parameter_bytes: int
    activation_bytes: int
    forward_flops: int


@dataclass(frozen=True)
class SlimReport:
    """A model before and after it was changed, for one batch of shape `input_shape`."""

    before: ModelCost
    after: ModelCost
    input_shape: tuple[int, ...]

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self))

    def _cells(self) -> list[tuple[str, str, str, str]]:
        before, after = asdict(self.before), asdict(self.after)
        rows: list[tuple[str, str, Callable[[float], str]]] = [
            ("parameters", "parameters", format_count),
            ("parameter memory", "parameter_bytes", format_bytes),
            ("activation memory", "activation_bytes", format_bytes),
            ("forward operations", "forward_flops", lambda flops: format_count(flops, "FLOP")),
        ]
        return [
            (
                title,
                written(before[name]),
                written(after[name]),
                f"× {after[name] / before[name]:.3g}" if before[name] else "–",
            )
            for title, name, written in rows
        ]

    def _caption(self) -> str:
        return f"for one batch of {' × '.join(map(str, self.input_shape))}, before training"

    def __str__(self) -> str:
        rows = [("", "before", "after", ""), *self._cells()]
        return "\n".join(
            [
                *(f"{name:<20}{old:>14}{new:>14}  {times}".rstrip() for name, old, new, times in rows),
                self._caption(),
            ]
        )

    def _repr_html_(self) -> str:
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in self._cells()
        )
        return (
            f"<table><caption>{html.escape(self._caption())}</caption><thead><tr><th></th><th>before</th><th>after</th>"
            f"<th></th></tr></thead><tbody>{body}</tbody></table>"
        )


def cost_of(model: nn.Module, inputs: Tensor) -> ModelCost:
    """Count a model's cost for one training batch like `inputs`, without computing anything.

    A copy of the model runs in training mode on torch's "meta" device, where tensors have shapes and no
    contents. Raises CourseError when the model cannot run so: it does not take such inputs, or it looks at
    the numbers in them.
    """
    twin = copy.deepcopy(model).to("meta").train()
    own = {parameter.untyped_storage()._cdata for parameter in twin.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()._cdata
        if storage not in own:
            kept[storage] = tensor  # held, so that the key stays its own
        return tensor

    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            twin(inputs.detach().to("meta"))
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CourseError(
            f"The model cannot be counted on inputs of shape {tuple(inputs.shape)} ({reason}): "
            "give a batch that it is trained on."
        ) from None
    return ModelCost(
        sum(parameter.numel() for parameter in twin.parameters()),
        sum(parameter.numel() * parameter.element_size() for parameter in twin.parameters()),
        sum(tensor.untyped_storage().nbytes() for tensor in kept.values()),
        counter.get_total_flops(),
    )


def compare(before: nn.Module, after: nn.Module, inputs: Tensor) -> SlimReport:
    """The cost of both models for one training batch like `inputs`.

    Raises CourseError where one cannot be counted.
    """
    return SlimReport(cost_of(before, inputs), cost_of(after, inputs), tuple(inputs.shape))


def _named(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        raise CourseError(
            f"The model has no part {name!r}: it has {_some([n for n, _ in model.named_children()])}."
        ) from None


def _linears(model: nn.Module, head: str) -> list[nn.Linear]:
    found = [module for module in _named(model, head).modules() if isinstance(module, nn.Linear)]
    if not found:
        raise CourseError(f"{head!r} holds no fully connected layer: name the part of the model that does.")
    return found


def _replace(model: nn.Module, name: str, new: nn.Module) -> None:
    """Put `new` in the place of the module `name`."""
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, new)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
