"""How much memory does one training step need on a card, why, and does it fit?

``plan_memory`` replays a trace through the caching allocator and adds what the software itself takes.
Every part says where its number comes from: *computed* from the model, *sourced*, or *calibrated* on
public measurements. The error of the whole stands in ``docs/accuracy.md``.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.plan.allocator import MIB, CachingAllocator, OutOfMemoryError
from course_lib.plan.expandable_allocator import ExpandableAllocator
from course_lib.plan.optimizers import OptimizerRule, optimizer_rule
from course_lib.plan.replay import Program, compile_program, replay
from course_lib.plan.stacks import Stack, find_stack
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.timeline import Timeline, timeline
from course_lib.plan.workspaces import WorkspaceRule
from course_lib.units import format_bytes

CHOICES = (0.0, 0.5, 1.0, 1.5)  # shares of the fitted workspaces: what cuDNN may choose, see reserve()


@dataclass(frozen=True)
class Part:
    """One part of the total. ``origin``: computed, sourced or calibrated."""

    name: str
    nbytes: int
    origin: str


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one training step on one card; all sizes in bytes.

    ``allocated``: most bytes in tensors and workspaces at once (``torch.cuda.max_memory_allocated``).
    ``reserved``: most bytes that the allocator took from the card (``max_memory_reserved``). ``total``:
    what ``nvidia-smi`` shows for the process, the typical figure. ``safe``: a total that is exceeded in
    few cases. ``capacity``: usable bytes of the card. ``fits``: the safe figure is within it; ``tight``:
    only the typical one is.
    """

    model: str
    card: str
    batch_size: int
    precision: str
    optimizer: str
    accumulate: int
    allocated: int
    reserved: int
    total: int
    safe: int
    capacity: int
    parts: tuple[Part, ...]
    timeline: Timeline

    @property
    def fits(self) -> bool:
        """Whether also the safe figure is within the card."""
        return self.safe <= self.capacity

    @property
    def tight(self) -> bool:
        """Whether the typical figure is within the card and the safe one is not: try it, with an eye on
        it.
        """
        return self.total <= self.capacity < self.safe

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data: sizes in MiB under the names of the ``course plan --json`` output, and
        the details.
        """
        return {
            "model": self.model,
            "card": self.card,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "optimizer": self.optimizer,
            "accumulate": self.accumulate,
            "allocated_mib": round(self.allocated / MIB, 1),
            "reserved_mib": round(self.reserved / MIB, 1),
            "total_mib": round(self.total / MIB, 1),
            "safe_mib": round(self.safe / MIB, 1),
            "capacity_mib": round(self.capacity / MIB, 1),
            "fits": self.fits,
            "tight": self.tight,
            "parts": [asdict(part) for part in self.parts],
            "peak_phase": self.timeline.phase,
            "alive_at_peak": dict(self.timeline.alive),
            "largest_at_peak": [asdict(tensor) for tensor in self.timeline.largest],
        }

    @property
    def verdict(self) -> str:
        """The answer in words."""
        if self.fits:
            return "fits"
        return "tight: fits by the typical figure, not by the safe one" if self.tight else "does not fit"

    def __str__(self) -> str:
        lines = [
            f"{self._subject}: {self.verdict}",
            f"  {self._figures}",
        ]
        lines += [f"  {format_bytes(part.nbytes):>10}  {part.name} ({part.origin})" for part in self.parts]
        lines.append(f"  At the peak ({self.timeline.phase} pass), alive:")
        lines += [f"  {format_bytes(nbytes):>10}  {name}" for name, nbytes in self.timeline.alive]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(format_bytes(part.nbytes))}</td>"
            f"<td style='text-align:left'>{html.escape(part.name)}</td>"
            f"<td>{html.escape(part.origin)}</td></tr>"
            for part in self.parts
        )
        alive = ", ".join(
            f"{html.escape(name)} {html.escape(format_bytes(n))}" for name, n in self.timeline.alive
        )
        return (
            f"{html.escape(self._subject)}: <b>{html.escape(self.verdict)}</b><br>"
            f"{html.escape(self._figures)}"
            f"<table>{rows}</table>At the peak ({html.escape(self.timeline.phase)} pass): {alive}"
        )

    @property
    def _subject(self) -> str:
        step = f"batch {self.batch_size}" + (f" x {self.accumulate}" if self.accumulate > 1 else "")
        return f"{self.model}, {step}, {self.precision}, {self.optimizer}, on {self.card}"

    @property
    def _figures(self) -> str:
        total, safe, capacity = map(format_bytes, (self.total, self.safe, self.capacity))
        return f"total {total}, safe {safe}, card {capacity}"


@dataclass(frozen=True)
class Reserved:
    """What the allocator did with a trace, in bytes. ``fitted``: whether it stayed within the limit."""

    allocated: int
    reserved: int
    fitted: bool


def reserve(
    program: Program,
    optimizer: OptimizerRule,
    *,
    accumulate: int = 1,
    limit: int | None = None,
    expandable_segments: bool = False,
) -> Reserved:
    """Replay two steps of ``program`` on an allocator that may reserve ``limit`` bytes.

    Which kernels cuDNN chooses, and so what workspaces it borrows, is not known of one model. So the steps
    are replayed with each of ``CHOICES``, and the mean is returned. A choice that does not fit, where another
    does, counts as the limit: cuDNN passes over a kernel whose workspace does not fit.
    """
    kind = ExpandableAllocator if expandable_segments else CachingAllocator

    def peaks(share: float, capacity: int | None) -> tuple[int, int] | None:
        allocator = kind(capacity=capacity)
        try:
            replay(program, allocator, optimizer, accumulate=accumulate, share=share)
        except OutOfMemoryError:
            return None
        return allocator.allocated_peak, allocator.reserved_peak

    shares = CHOICES if program.has_choices else (1.0,)
    for capacity in (limit, None):
        if capacity is not None and capacity <= 0:
            continue
        found = [peaks(share, capacity) for share in shares]
        if any(found):
            full = (capacity or 0, capacity or 0)
            allocated, reserved = (
                round(fmean(column)) for column in zip(*(pair or full for pair in found), strict=True)
            )
            return Reserved(allocated, reserved, capacity is not None or limit is None)
    raise AssertionError("an allocator without a limit cannot run out of memory")


def rule_of(stack: Stack, precision: str) -> WorkspaceRule:
    """The workspaces of a stack in one precision."""
    return WorkspaceRule(stack.multiples[_family(precision)], stack.cudnn_benchmark)


def _family(precision: str) -> str:
    return "half" if precision in ("fp16", "bf16") else "full"


def margin(trace: StepTrace, stack: Stack) -> float:
    """What share of the reserved bytes the safe figure adds.

    Of the reserved ones alone: the context beside them is the same for every model, and known.
    """
    return stack.margins[_family(trace.precision)]


def plan_memory(
    trace: StepTrace,
    card: Accelerator | str,
    *,
    optimizer: str | OptimizerRule = "sgd",
    accumulate: int = 1,
    stack: Stack | None = None,
    expandable_segments: bool = False,
) -> MemoryPlan:
    """The memory of one training step of ``trace`` on ``card``.

    ``card`` may be a name that :func:`course_lib.accelerators.find_accelerator` knows. Raises CourseError for
    an unknown one.
    """
    if not isinstance(card, Accelerator):
        card = find_accelerator(card)
    stack = stack or find_stack()
    rule = optimizer_rule(optimizer)
    context = int(stack.context_mib * MIB)
    loader = int(stack.input_batches * sum(b.nbytes for b in trace.blocks if b.category == "input"))
    limit = card.usable_bytes - context - loader
    program = compile_program(trace, rule_of(stack, trace.precision))
    found = reserve(
        program, rule, accumulate=accumulate, limit=limit, expandable_segments=expandable_segments
    )
    reserved = int(found.reserved * stack.reserved_factor)
    if found.fitted:
        reserved = min(reserved, limit)
    total = reserved + context + loader
    moments = timeline(trace, rule, accumulate=accumulate)
    parts = [
        Part("tensors alive at the peak", moments.peak_bytes, "computed"),
        Part("rounding, workspaces", max(0, found.allocated - moments.peak_bytes), "calibrated"),
        Part("cached by the allocator", reserved - max(found.allocated, moments.peak_bytes), "computed"),
        Part("CUDA context and kernels", context, stack.context_origin),
    ]
    if loader:
        parts.append(Part("batches that the loader keeps ready", loader, "calibrated"))
    return MemoryPlan(
        trace.model, card.name, trace.batch_size, trace.precision, rule.name, accumulate,
        found.allocated, reserved, total, total + int(reserved * margin(trace, stack)), card.usable_bytes,
        tuple(parts), moments,
    )  # fmt: skip


def largest_batch_that(fits: Callable[[int], bool], most: int = 1 << 16) -> int:
    """The largest batch size for which ``fits`` holds, by doubling and halving; 0 if not even one sample
    fits.

    Takes for granted that what fits in a batch fits in a smaller one.
    """
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
