"""Which operations run, and when is each storage made and let go? A dispatch mode that writes it down.

It stands above the fake tensor mode and sees every operation with its real arguments, forward and
backward. A storage is watched by a weak reference: the moment it dies is the moment a card would get the
memory back.
"""

from __future__ import annotations

import bisect
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from course_lib.plan.step_trace import ALLOCATE, BECOMES_GRADIENT, RELEASE, Block, Category, Op, Phase

_TORCH = str(Path(torch.__file__).parent) + os.sep
_HERE = str(Path(__file__).parent) + os.sep
_TRACER = str(Path(__file__).with_name("tracer.py"))
_NO_KERNEL = frozenset(
    {"aten.detach.default", "aten.alias.default", "aten.lift_fresh.default", "prim.device.default"}
)

_CONVOLUTIONS = ("aten.convolution.default", "aten.convolution_backward.default")

# Kernels that first copy an input whose elements do not stand in order; the copy is made inside, where no
# mode sees it.
_COPIES_STRIDED = frozenset(
    f"aten.{name}.default"
    for name in (
        "native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward",
        "_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data", "bmm", "mm",
    )
)  # fmt: skip


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Collects ops, blocks and events while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[Op] = []
        self.blocks: list[Block] = []
        self.events: list[tuple[int, int, int]] = []
        self.phase: Phase = "load"
        self.module = ""
        self.last_op = ""
        self.failed_in = ""
        self.recording = True
        self._live: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._stack: list[str] = []
        self._marks: list[tuple[int, str]] = []
        self._views: dict[Any, bool] = {}
        self._names: dict[int, str] = {}

    # -- storages ------------------------------------------------------------------------------------

    def watch(self, tensor: torch.Tensor, category: Category, line: str = "") -> int | None:
        """Write down the storage of ``tensor`` if it is new. Returns the block's number, None if known."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return None
        nbytes = storage.nbytes()
        number = len(self.blocks)
        op = len(self.ops) - 1 if self.phase != "load" else -1
        self.blocks.append(
            Block(
                nbytes,
                category,
                str(tensor.dtype).removeprefix("torch."),
                tuple(tensor.shape),
                op,
                self.module,
                line,
            )
        )
        self.events.append((op, ALLOCATE, number))

        def released(_: Any, key: int = key, number: int = number) -> None:
            self._live.pop(key, None)
            if self.recording:
                self.events.append((len(self.ops) - 1 if self.phase != "load" else -1, RELEASE, number))

        self._live[key] = (number, weakref.ref(storage, released))
        return number

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """The number of the block that holds ``tensor``."""
        entry = self._live.get(tensor.untyped_storage()._cdata)
        return entry[0] if entry else None

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        """``parameter.grad`` was just set or added to."""
        grad = parameter.grad
        number = None if grad is None else self.block_of(grad)
        if number is not None and self.blocks[number].category != "gradient":
            block = self.blocks[number]
            self.blocks[number] = Block(
                block.nbytes,
                "gradient",
                block.dtype,
                block.shape,
                block.op,
                self._names.get(id(parameter), block.module),
            )
            self.events.append((len(self.ops) - 1, BECOMES_GRADIENT, number))

    def mark_activations(self) -> None:
        """At the end of the forward pass: what is alive and was made in it was kept for the backward pass."""
        for number, _ in self._live.values():
            block = self.blocks[number]
            if block.category == "temporary":
                self.blocks[number] = Block(
                    block.nbytes, "activation", block.dtype, block.shape, block.op, block.module, block.line
                )

    def stop(self) -> None:
        """No release after this counts: what is alive now stays alive until the next step."""
        self.recording = False

    # -- modules -------------------------------------------------------------------------------------

    def follow(self, model: nn.Module) -> Iterator[Callable[[], None]]:
        """Hooks that keep ``module`` true. Yields what takes each one away again."""
        for name, module in model.named_modules():
            for parameter_name, parameter in module.named_parameters(recurse=False):
                self._names[id(parameter)] = f"{name}.{parameter_name}" if name else parameter_name
            yield module.register_forward_pre_hook(self._enter(name)).remove
            yield module.register_forward_hook(self._leave, always_call=True).remove

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any) -> None:
            self._stack.append(self.module)
            self.module = name
            self._mark()

        return enter

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self.module = self._stack.pop() if self._stack else ""
        self._mark()

    def _mark(self) -> None:
        if self.phase == "forward":
            self._marks.append((torch._C._autograd._get_sequence_nr(), self.module))

    def enter_node(self, sequence: int) -> None:
        """In the backward pass: the module in which the forward operation of this node ran."""
        index = bisect.bisect_right(self._marks, sequence, key=lambda mark: mark[0]) - 1
        self.module = self._marks[index][1] if index >= 0 else ""

    # -- operations ----------------------------------------------------------------------------------

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operation. A subclass may time it."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.last_op = name = str(func)
        try:
            out = self.run(func, args, kwargs)
        except Exception:
            self.failed_in = self.module  # the modules are left before anyone hears of this
            raise
        if name in _CONVOLUTIONS:
            out = _laid_out_as_cudnn_does(name, args, out)
        view = self._views.get(func)
        if view is None:
            view = self._views[func] = bool(func.is_view) or name in _NO_KERNEL
        if view:
            return out
        outputs = [
            x for x in (out if isinstance(out, tuple | list) else (out,)) if isinstance(x, torch.Tensor)
        ]
        if not outputs:
            return out
        inputs: list[torch.Tensor] = []
        _collect(args, inputs)
        if kwargs:
            _collect(tuple(kwargs.values()), inputs)
        first = outputs[0]
        formula = flop_registry.get(func._overloadpacket)
        flops = int(formula(*args, **kwargs, out_val=out)) if formula is not None else 0
        moved = sum(x.numel() * x.element_size() for x in inputs) + sum(
            x.numel() * x.element_size() for x in outputs
        )
        self.ops.append(
            Op(
                name.removeprefix("aten."),
                self.phase,
                self.module,
                str((inputs or outputs)[0].dtype).removeprefix("torch."),
                _layout(inputs[0] if inputs else first),
                flops,
                moved,
                tuple(tuple(x.shape) for x in inputs),
                tuple(tuple(x.shape) for x in outputs),
                _options(name, args),
            )
        )
        line = ""
        for tensor in outputs:
            if tensor.untyped_storage()._cdata not in self._live:
                if not line and self.phase == "forward":
                    line = _caller()
                self.watch(tensor, "temporary", line)
        return out


def _laid_out_as_cudnn_does(name: str, args: tuple[Any, ...], out: Any) -> Any:
    """The outputs of a convolution in channels-last order if its image or its weight is.

    Source: ``cudnn_conv_suggest_memory_format`` in ``aten/src/ATen/native/ConvUtils.h``. The stand-in that
    runs without a card always gives the plain order, and each later permutation would seem to need a copy.
    """
    image, weight = (args[1], args[2]) if name == "aten.convolution_backward.default" else args[:2]
    if image.dim() != 4 or not (_is_channels_last(image) or _is_channels_last(weight)):
        return out

    def reorder(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return torch.empty_like(value, memory_format=torch.channels_last)
        return value

    return type(out)(map(reorder, out)) if isinstance(out, tuple | list) else reorder(out)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether the strides say channels last; those of a 1 x 1 kernel do too, though both orders are one."""
    channels = tensor.shape[1]
    return channels > 1 and tensor.stride(1) == 1 and tensor.stride(3) == channels


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    for item in value:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            _collect(item, found)


def _layout(tensor: torch.Tensor) -> str:
    if (
        tensor.dim() == 4
        and not tensor.is_contiguous()
        and tensor.is_contiguous(memory_format=torch.channels_last)
    ):
        return "channels_last"
    return "contiguous" if tensor.is_contiguous() else "strided"


def _options(name: str, args: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    """What the shapes of a convolution do not say, and which of its arguments a kernel must first copy."""
    if name == "aten.convolution.default":
        stride, padding, dilation, transposed, _, groups = args[3:9]
        mask: tuple[bool, ...] = ()
        tensors = args[:2]
    elif name == "aten.convolution_backward.default":
        stride, padding, dilation, transposed, _, groups = args[4:10]
        mask = tuple(bool(x) for x in args[10])
        tensors = args[:3]
    elif name in _COPIES_STRIDED:
        layouts = tuple(_layout(x) for x in args if isinstance(x, torch.Tensor))
        return (("layouts", layouts),) if "strided" in layouts or "channels_last" in layouts else ()
    else:
        return ()
    return (
        ("stride", tuple(stride)),
        ("padding", tuple(padding)),
        ("dilation", tuple(dilation)),
        ("transposed", bool(transposed)),
        ("groups", int(groups)),
        ("mask", mask),
        ("layouts", tuple(_layout(x) for x in tensors)),
    )


def _caller() -> str:
    """The line of the model's own code that asked for the operation."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _TRACER and code.co_name == "_run":
            return ""  # the loss, or a model without code of its own
        if not code.co_filename.startswith((_TORCH, _HERE, "<")):
            return f"{'/'.join(Path(code.co_filename).parts[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
