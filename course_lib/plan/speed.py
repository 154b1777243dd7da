"""How long does one training step take on a card that is not at hand, and what is it waiting for?

``predict`` adds up the work of a trace, kind by kind, by the law of ``roofline.py`` with the shares of
``coefficients.py``. The error of the whole, on model families that the shares were not fitted to, stands in
``docs/accuracy.md`` and beside each prediction, as an interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.coefficients import Coefficients, find_coefficients
from course_lib.plan.op_kinds import Work, work_of
from course_lib.plan.optimizers import OptimizerRule, optimizer_rule
from course_lib.plan.roofline import Rates, rates_of, seconds, together
from course_lib.plan.step_time import Share, StepTime
from course_lib.plan.step_trace import BECOMES_GRADIENT, StepTrace

FLOPS_A_BYTE = 50.0  # about what cards reach of their peaks in 16 bits: 35 TFLOP/s beside 700 GB/s


@dataclass(frozen=True)
class StepWork:
    """The work of one micro-batch, equal pieces counted once, ready to be timed on many cards.

    ``pieces`` maps (work, phase, module) to how often it runs. ``launches`` counts what the processor hands
    out. ``gradients``: for each, the share of the backward pass after which it is ready, and its bytes.
    """

    model: str
    batch_size: int
    precision: str
    pieces: Mapping[tuple[Work, str, str], int]
    launches: int
    flops: int
    parameter_bytes: int
    gradients: tuple[tuple[float, int], ...]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(nbytes for _, nbytes in self.gradients)


def step_work(trace: StepTrace) -> StepWork:
    """Sort the operations of a trace into kinds of work. Do it once for many cards."""
    channels_last = keeps_channels_last(trace)
    pieces: Counter[tuple[Work, str, str]] = Counter()
    launches = 0
    known: dict[object, tuple[Work, ...]] = {}
    for op in trace.ops:
        key = (op.name, op.phase, op.dtype, op.layout, op.bytes_moved, op.inputs, op.outputs, op.options)
        found = known.get(key)
        if found is None:
            found = known[key] = work_of(op, channels_last)
        launches += 1 if found else 0
        for work in found:
            pieces[work, op.phase, op.module] += 1
    return StepWork(
        trace.model,
        trace.batch_size,
        trace.precision,
        dict(pieces),
        launches,
        trace.flops,
        trace.bytes_of("parameter"),
        _gradients(trace),
    )


def _gradients(trace: StepTrace) -> tuple[tuple[float, int], ...]:
    """When each gradient is ready, as a share of the backward pass, by what the operations before it take.

    Here a few flops stand for a byte, as on today's cards; what matters is the order, not the card.
    """
    done, at = 0.0, []
    for op in trace.ops:
        if op.phase == "backward":
            done += max(op.flops / FLOPS_A_BYTE, op.bytes_moved)
        at.append(done)
    return tuple(
        (at[op] / done if done and op >= 0 else 1.0, trace.blocks[index].nbytes)
        for op, kind, index in trace.events
        if kind == BECOMES_GRADIENT
    )


def keeps_channels_last(trace: StepTrace) -> bool:
    """Whether the images of a step stand in channels-last order: whether its convolutions get them so."""
    for op in trace.ops:
        if op.name == "convolution.default" and "channels_last" in op.option("layouts", ()):
            return True
    return False


def optimizer_work(work: StepWork, optimizer: OptimizerRule) -> Work:
    """One step of the optimizer: it reads gradients, parameters and states and writes the last two, and moves
    what it holds for a moment twice.
    """
    share = work.gradient_bytes
    moved = share * (3 + 2 * optimizer.states + 2 * optimizer.temporaries)
    return Work("optimizer", "optimizer", 0, moved)


def predict(
    trace: StepTrace | StepWork,
    card: Accelerator | Rates,
    *,
    optimizer: str | OptimizerRule = "sgd",
    accumulate: int = 1,
    coefficients: Coefficients | None = None,
) -> StepTime:
    """The time of one optimizer step of ``trace`` on ``card``: ``accumulate`` micro-batches and one update.

    ``coefficients`` default to those of the newest software stack that public measurements were found for;
    for a device that ``course calibrate`` measured, give its own (``calibrate.py``). Raises CourseError for
    a card of which the table gives no bandwidth or no rate.
    """
    if accumulate < 1:
        raise CourseError(f"A step needs at least one micro-batch, not {accumulate}.")
    work = trace if isinstance(trace, StepWork) else step_work(trace)
    table = coefficients or find_coefficients()
    rates = card if isinstance(card, Rates) else rates_of(card)
    timer = _Timer(work.precision, rates, table)
    parts = _Parts()
    for (piece, phase, module), count in work.pieces.items():
        parts.add(piece, phase, module, count * accumulate, timer)
    rule = optimizer_rule(optimizer)
    if work.gradients:
        parts.add(optimizer_work(work, rule), "optimizer", "optimizer", 1, timer)
    busy = parts.seconds() * table.bias.get(rates.name, 1.0)
    handing_out = table.launch_seconds * (work.launches * accumulate + _optimizer_launches(rule))
    total = max(busy, handing_out) + table.step_seconds
    scale = total / busy if busy else 1.0
    bound = "launch" if handing_out > busy else parts.bound()
    warnings = tuple(_warnings(card, table, parts))
    low, high = table.intervals[_distance(card, table, parts)]
    phases = parts.phases()
    return StepTime(
        work.model,
        rates.name,
        work.batch_size,
        work.precision,
        accumulate,
        total,
        total * low,
        total * high,
        bound,
        float(work.flops * accumulate),
        rates.peak(work.precision),
        *(phases.get(name, 0.0) * scale for name in ("forward", "backward", "optimizer")),
        work.gradients,
        parts.shares("module", scale),
        parts.shares("kind", scale),
        table.note,
        warnings,
    )


def _optimizer_launches(rule: OptimizerRule) -> int:
    return 2 + rule.states + rule.temporaries


class _Timer:
    """Seconds of pieces of work on one device."""

    def __init__(self, precision: str, rates: Rates, table: Coefficients) -> None:
        self.rates, self.table = rates, table
        self._half = precision if precision in ("fp16", "bf16") else "fp16"
        # PyTorch lets convolutions of float32 use TF32 units by default; matrix products only if asked.
        self._single = {"convolution": "tf32", "grouped": "tf32"}
        if precision == "tf32":
            self._single |= {"matmul": "tf32", "attention": "tf32"}
        self._peaks: dict[str, float] = {}
        self._bandwidths: dict[float, float] = {}

    def peak(self, work: Work) -> float:
        """The peak rate that the arithmetic of a piece of work has at most."""
        name = self._half if work.half else self._single.get(work.family, "fp32")
        if name not in self._peaks:
            self._peaks[name] = self.rates.peak(name)
        return self._peaks[name]

    def bandwidth(self, issue: float) -> float:
        """The bandwidth that a kind sees which follows SMs times clock by the share ``issue``."""
        if issue not in self._bandwidths:
            rate = self.rates.bandwidth
            if issue and self.rates.issue and self.rates.name != self.table.reference:
                known = rates_of(find_accelerator(self.table.reference))
                if known.issue:
                    rate = known.bandwidth * (rate / known.bandwidth) ** (1 - issue)
                    rate *= (self.rates.issue / known.issue) ** issue
            self._bandwidths[issue] = rate
        return self._bandwidths[issue]

    def time(self, work: Work) -> tuple[float, float, float, bool]:
        """Seconds in all, on the arithmetic and on the memory clock, and whether the kind was calibrated."""
        share, known = self.table.of(work)
        rate = self.bandwidth(share.issue) * share.memory * self._cache(work)
        peak = self.peak(work) if work.flops else 0.0
        compute, memory = seconds(work, peak * share.compute, rate, share.tile)
        return together(compute, memory, self.table.start_seconds * work.kernels), compute, memory, known

    def _cache(self, work: Work) -> float:
        cache = self.rates.cache
        return self.table.cache_gain if cache and work.nbytes < 1.2 * cache else 1.0


class _Parts:
    """Sums of seconds by phase, module and kind, and by what bounds them."""

    def __init__(self) -> None:
        self.rows: list[tuple[Work, str, str, int, float, float, float]] = []
        self.unknown: Counter[str] = Counter()
        self.grouped = 0.0

    def add(self, work: Work, phase: str, module: str, count: int, timer: _Timer) -> None:
        total, compute, memory, known = timer.time(work)
        self.rows.append((work, phase, module, count, total * count, compute * count, memory * count))
        if not known:
            self.unknown[work.kind] += total * count  # type: ignore[assignment]
        if work.family == "grouped":
            self.grouped += total * count

    def seconds(self) -> float:
        return math.fsum(row[4] for row in self.rows)

    def phases(self) -> dict[str, float]:
        sums: dict[str, float] = {}
        for _, phase, _, _, total, _, _ in self.rows:
            sums[phase] = sums.get(phase, 0.0) + total
        return sums

    def bound(self) -> str:
        """Where most of the time goes: to the kernels that arithmetic holds up, or to those that bytes do."""
        by_compute = sum(row[4] for row in self.rows if row[5] > row[6])
        return "compute" if by_compute > self.seconds() / 2 else "memory"

    def shares(self, key: str, scale: float) -> tuple[Share, ...]:
        """The parts by module or by kind, the longest first."""
        sums: dict[str, list[float]] = {}
        for work, _, module, count, total, compute, memory in self.rows:
            entry = sums.setdefault(module if key == "module" else work.kind, [0.0] * 5)
            for place, value in enumerate((total, compute, memory, work.flops * count, work.nbytes * count)):
                entry[place] += value
        made = [
            Share(name, total * scale, "compute" if compute > memory else "memory", flops, nbytes)
            for name, (total, compute, memory, flops, nbytes) in sums.items()
        ]
        return tuple(sorted(made, key=lambda share: -share.seconds))


def _far(card: Accelerator | Rates) -> bool:
    return isinstance(card, Accelerator) and card.vendor != "NVIDIA"


def _distance(card: Accelerator | Rates, table: Coefficients, parts: _Parts) -> str:
    """Which interval holds: how near the card and the work are to what was measured."""
    if _far(card):
        return "other make"
    unknown, whole = sum(parts.unknown.values()), parts.seconds()
    name = card.name
    near = "reference" if name == table.reference else "measured" if name in table.bias else "other card"
    if near == "reference" and (parts.grouped > 0.1 * whole or unknown > 0.1 * whole):
        return "reference, grouped"
    return near


def _warnings(card: Accelerator | Rates, table: Coefficients, parts: _Parts) -> Iterable[str]:
    whole = parts.seconds()
    if _far(card):
        yield f"{card.name}: no measurement of this make was used; take the figure as an order of magnitude."
    outside = {kind: spent for kind, spent in parts.unknown.items() if spent > 0.02 * whole}
    if outside:
        share = 100 * sum(outside.values()) / whole
        names = ", ".join(sorted(outside, key=lambda kind: -outside[kind])[:4])
        yield f"{share:.0f} % of the time is work outside the calibration ({names})."
