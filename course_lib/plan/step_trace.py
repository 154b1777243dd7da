"""What happens in one training step, operation by operation? Plain data, saved and loaded without torch.

A :class:`StepTrace` is what the tracer writes and what memory and speed are computed from. Sizes are what
a CUDA card would hold, in bytes as requested: rounding belongs to the allocator. The trace covers the
forward and the backward pass of one micro-batch; the optimizer step is computed from ``parameters`` (see
``optimizers.py``).
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from course_lib.errors import CourseError

Phase = Literal["load", "forward", "backward"]
Category = Literal["parameter", "buffer", "input", "activation", "gradient", "temporary"]
Shape = tuple[int, ...]

ALLOCATE, RELEASE, BECOMES_GRADIENT = 0, 1, 2
FORMAT = 1


@dataclass(frozen=True)
class Op:
    """One operation that a card would run.

    ``flops`` counts a multiply-add as two. ``bytes_moved`` is what is read and written at least once.
    ``inputs`` and ``outputs`` are the shapes of the tensors in the order of the operation's arguments.
    ``options`` holds what the shapes do not say: stride, groups and the output mask of a convolution.
    """

    name: str
    phase: Phase
    module: str
    dtype: str
    layout: str
    flops: int
    bytes_moved: int
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        """The value of one entry of ``options``."""
        return dict(self.options).get(name, default)


@dataclass(frozen=True)
class Block:
    """One tensor's storage: how many bytes, what for, made by which operation, at which line."""

    nbytes: int
    category: Category
    dtype: str
    shape: Shape
    op: int  # index into StepTrace.ops; -1: before the step
    module: str
    line: str = ""


@dataclass(frozen=True)
class StepTrace:
    """Forward and backward of one micro-batch.

    ``events`` are ``(op, kind, block)`` in the order in which they happen: ``op`` indexes ``ops`` (-1 is
    loading), ``kind`` is ALLOCATE, RELEASE or BECOMES_GRADIENT, ``block`` indexes ``blocks``.
    """

    model: str
    batch_size: int
    precision: str
    parameter_count: int
    ops: tuple[Op, ...]
    blocks: tuple[Block, ...]
    events: tuple[tuple[int, int, int], ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def flops(self) -> int:
        """Floating-point operations of forward and backward."""
        return sum(op.flops for op in self.ops)

    @property
    def parameters(self) -> tuple[Block, ...]:
        """The blocks that hold parameters, in the order in which they are loaded."""
        return tuple(block for block in self.blocks if block.category == "parameter")

    @property
    def gradients(self) -> tuple[Block, ...]:
        """The blocks that end as gradients: one for each parameter that is trained."""
        return tuple(self.blocks[index] for _, kind, index in self.events if kind == BECOMES_GRADIENT)

    def bytes_of(self, category: Category) -> int:
        """Bytes of all blocks of one category."""
        return sum(block.nbytes for block in self.blocks if block.category == category)

    def live_peak(self) -> int:
        """Most bytes alive at one moment, without rounding and without optimizer state."""
        live = peak = 0
        for _, kind, index in self.events:
            if kind == ALLOCATE:
                live += self.blocks[index].nbytes
                peak = max(peak, live)
            elif kind == RELEASE:
                live -= self.blocks[index].nbytes
        return peak

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON, compressed if the name ends in ``.gz``."""
        text = json.dumps(_pack(self), separators=(",", ":"))
        path = Path(path)
        if path.suffix == ".gz":
            with (
                path.open("wb") as raw,
                gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, filename="", mtime=0) as stream,
            ):
                stream.write(text.encode("utf-8"))
        else:
            path.write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return (
            f"{self.model}, batch {self.batch_size}, {self.precision}: {len(self.ops)} operations, "
            f"{self.flops / 1e9:.1f} GFLOP, at most {self.live_peak() / 2**20:,.0f} MiB alive"
        )


def load_trace(path: str | Path) -> StepTrace:
    """Read a trace written by :meth:`StepTrace.save`. Raises CourseError if the file is not one."""
    path = Path(path)
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        return _unpack(json.loads(text))
    except FileNotFoundError:
        raise CourseError(
            f"There is no saved trace at {path}; give the path of a file that `save` wrote."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError) as error:
        raise CourseError(f"{path} is not a saved trace ({error}); give a file that `save` wrote.") from None


def interpolate(low: StepTrace, high: StepTrace, batch_size: int) -> StepTrace | None:
    """The trace at another batch size, from two traces of the same step: every size is ``a + b * batch``.

    None if the two traces do not run the same operations (a model that branches on the batch size), or if
    a size does not come out whole: then trace again.
    """
    if len(low.ops) != len(high.ops) or len(low.blocks) != len(high.blocks) or low.events != high.events:
        return None
    step, offset = high.batch_size - low.batch_size, batch_size - low.batch_size
    if step == 0:
        raise ValueError("two different batch sizes are needed")

    def line(first: int, second: int) -> int:
        if first == second:
            return first
        value, rest = divmod((second - first) * offset, step)
        if rest:
            raise ArithmeticError
        return first + value

    def shape(first: Shape, second: Shape) -> Shape:
        if first == second:
            return first
        if len(first) != len(second):
            raise ArithmeticError
        return tuple(map(line, first, second))

    def shapes(first: tuple[Shape, ...], second: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return first if first == second else tuple(map(shape, first, second))

    try:
        ops = tuple(
            replace(
                a,
                flops=line(a.flops, b.flops),
                bytes_moved=line(a.bytes_moved, b.bytes_moved),
                inputs=shapes(a.inputs, b.inputs),
                outputs=shapes(a.outputs, b.outputs),
            )
            for a, b in zip(low.ops, high.ops, strict=True)
        )
        blocks = tuple(
            a
            if a.nbytes == b.nbytes
            else replace(a, nbytes=line(a.nbytes, b.nbytes), shape=shape(a.shape, b.shape))
            for a, b in zip(low.blocks, high.blocks, strict=True)
        )
    except ArithmeticError:
        return None
    if any(a.name != b.name for a, b in zip(low.ops, high.ops, strict=True)):
        return None
    return replace(low, batch_size=batch_size, ops=ops, blocks=blocks)


def _pack(trace: StepTrace) -> dict[str, Any]:
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    ops = [
        [
            word(op.name), word(op.phase), word(op.module), word(op.dtype), word(op.layout),
            op.flops, op.bytes_moved, op.inputs, op.outputs, dict(op.options),
        ]
        for op in trace.ops
    ]  # fmt: skip
    blocks = [
        [b.nbytes, word(b.category), word(b.dtype), b.shape, b.op, word(b.module), word(b.line)]
        for b in trace.blocks
    ]
    return {
        "format": FORMAT, "model": trace.model, "batch_size": trace.batch_size, "precision": trace.precision,
        "parameter_count": trace.parameter_count, "notes": trace.notes, "words": list(words), "ops": ops,
        "blocks": blocks, "events": [number for event in trace.events for number in event],
    }  # fmt: skip


def _unpack(data: dict[str, Any]) -> StepTrace:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
    words = data["words"]

    def frozen(value: Any) -> Any:
        return tuple(frozen(item) for item in value) if isinstance(value, list) else value

    ops = tuple(
        Op(
            words[row[0]],
            words[row[1]],
            words[row[2]],
            words[row[3]],
            words[row[4]],
            row[5],
            row[6],
            frozen(row[7]),
            frozen(row[8]),
            tuple((name, frozen(value)) for name, value in row[9].items()),
        )
        for row in data["ops"]
    )
    blocks = tuple(
        Block(row[0], words[row[1]], words[row[2]], tuple(row[3]), row[4], words[row[5]], words[row[6]])
        for row in data["blocks"]
    )
    flat = data["events"]
    events = tuple(zip(flat[0::3], flat[1::3], flat[2::3], strict=True))
    return StepTrace(
        data["model"], data["batch_size"], data["precision"], data["parameter_count"],
        ops, blocks, events, tuple(data["notes"]),
    )  # fmt: skip
