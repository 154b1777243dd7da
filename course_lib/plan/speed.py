"""How long does one training step take on a card that is not at hand, and what is it waiting for?

``predict`` adds up the work of a trace, kind by kind, by the law of ``roofline.py`` with the shares of
``coefficients.py``. The error of the whole, on model families that the shares were not fitted to, stands in
``docs/accuracy.md`` and beside each prediction, as an interval.
"""

from __future__ import annotations

from collections.abc import Iterator

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.coefficients import Coefficients, find_coefficients
from course_lib.plan.optimizers import OptimizerRule, optimizer_rule
from course_lib.plan.roofline import Rates, rates_of
from course_lib.plan.step_time import StepTime
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.step_work import StepWork, optimizer_launches, optimizer_work, step_work
from course_lib.plan.work_timer import Parts, WorkTimer

__all__ = ["StepWork", "predict", "step_work"]

RARE = 0.1  # from this share of the time on, grouped convolutions and kinds not met decide over the error


def predict(
    trace: StepTrace | StepWork,
    card: Accelerator | Rates | str,
    *,
    optimizer: str | OptimizerRule = "sgd",
    accumulate: int = 1,
    coefficients: Coefficients | None = None,
) -> StepTime:
    """The time of one optimizer step of ``trace`` on ``card``: ``accumulate`` micro-batches and one update.

    ``card`` may be a name that :func:`course_lib.accelerators.find_accelerator` knows. Give a
    :class:`StepWork` (from ``step_work``) instead of the trace to time it on many cards. ``coefficients``
    default to those of the newest software stack that public measurements were found for; for a device that
    ``course calibrate`` measured, give its own (``calibrate.py``). Raises CourseError for a card that is not
    known, and for one of which the table gives no bandwidth or no rate.
    """
    if accumulate < 1:
        raise CourseError(f"A step needs at least one micro-batch, not {accumulate}.")
    if not isinstance(card, Accelerator | Rates):
        card = find_accelerator(card)
    work = trace if isinstance(trace, StepWork) else step_work(trace)
    table = coefficients or find_coefficients()
    rates = card if isinstance(card, Rates) else rates_of(card)
    rule = optimizer_rule(optimizer)
    parts = Parts(WorkTimer(work.precision, rates, table))
    for (piece, phase, module), count in work.pieces.items():
        parts.add(piece, phase, module, count * accumulate)
    launches = work.launches * accumulate
    if work.gradients:
        parts.add(optimizer_work(work, rule, table.optimizer_kernels), "optimizer", "optimizer", 1)
        launches += optimizer_launches(work, rule, table.optimizer_kernels)
    busy = parts.seconds() * table.bias.get(rates.name, 1.0)
    handing_out = table.launch_seconds * launches
    total = (busy**8 + handing_out**8) ** 0.125  # about the longer of the two, which run side by side
    scale = total / parts.seconds() if busy else 1.0
    low, high = table.intervals[_distance(card, rates, table, parts)]
    return StepTime(
        model=work.model,
        card=rates.name,
        batch_size=work.batch_size,
        precision=work.precision,
        accumulate=accumulate,
        seconds=total,
        low=total * low,
        high=total * high,
        bound="launch" if handing_out > busy else parts.bound(),
        flops=float(work.flops * accumulate),
        peak_flops_per_second=rates.peak(work.precision),
        forward=parts.seconds("forward") * scale,
        backward=parts.seconds("backward") * scale,
        optimizer=parts.seconds("optimizer") * scale,
        gradients=work.gradients,
        modules=parts.shares("module", scale),
        kinds=parts.shares("kind", scale),
        calibration=table.note,
        warnings=tuple(_warnings(card, parts)),
    )


def _distance(card: Accelerator | Rates, rates: Rates, table: Coefficients, parts: Parts) -> str:
    """Which interval holds: how near the card and the work are to what was measured."""
    if _other_make(card):
        return "other make"
    if rates.name == table.reference:
        rare = parts.share_of("grouped") + sum(parts.unknown().values())
        return "reference, rare kinds" if rare > RARE else "reference"
    return "measured" if rates.name in table.bias else "other card"


def _other_make(card: Accelerator | Rates) -> bool:
    return isinstance(card, Accelerator) and card.vendor != "NVIDIA"


_FAMILIES = {  # in words, where the family's own name is none
    "attention": "fused attention",
    "convolution": "convolutions",
    "copy": "copies and casts",
    "depthwise": "depthwise convolutions",
    "gather": "lookups",
    "grouped": "grouped convolutions",
    "matmul": "matrix products",
    "norm": "normalization",
    "optimizer": "the optimizer",
    "pointwise": "elementwise operations",
    "pool": "pooling",
    "reduction": "sums",
}


def _warnings(card: Accelerator | Rates, parts: Parts) -> Iterator[str]:
    if _other_make(card):
        yield f"No measurement of this make was used: take {card.name}'s figure as an order of magnitude."
    outside = {family: share for family, share in parts.unknown().items() if share > 0.02}
    if outside:
        told = ((_FAMILIES.get(family, family), 100 * share) for family, share in outside.items())
        names = ", ".join(f"{family} {percent:.0f} %" for family, percent in told)
        yield f"Part of the time is work that was not calibrated, told from similar work ({names})."
