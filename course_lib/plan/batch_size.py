"""Which is the largest batch of a workload that fits a card? Two traces and a search between them."""

from __future__ import annotations

from collections.abc import Callable

from course_lib.accelerators import Accelerator
from course_lib.plan.memory import MemoryPlan, largest_batch_that, plan_memory
from course_lib.plan.stacks import Stack
from course_lib.plan.step_trace import StepTrace, interpolate
from course_lib.plan.workload import Workload

PROBES = (4, 8)  # two batch sizes between which a model seldom branches


class BatchTraces:
    """The traces of a workload at any batch size: two are made, the others are drawn from them as
    straight lines.

    A model that branches on its batch size is traced anew each time.
    """

    def __init__(self, trace_at: Callable[[int], StepTrace]) -> None:
        self._trace_at = trace_at
        self._made: dict[int, StepTrace] = {}
        self._straight = True

    def exact(self, batch_size: int) -> StepTrace:
        """The trace itself, made at this batch size (once)."""
        if batch_size not in self._made:
            self._made[batch_size] = self._trace_at(batch_size)
        return self._made[batch_size]

    def at(self, batch_size: int) -> StepTrace:
        """The trace at this batch size, made or interpolated."""
        if batch_size in self._made:
            return self._made[batch_size]
        if self._straight:
            low, high = (self.exact(size) for size in PROBES)
            between = interpolate(low, high, batch_size)
            if between is not None:
                return between
            self._straight = False
        return self.exact(batch_size)


def traces_of(workload: Workload) -> BatchTraces:
    """The traces of ``workload`` at any batch size."""
    from course_lib.plan.tracer import trace

    return BatchTraces(lambda batch_size: trace(workload.with_batch(batch_size)))


def plan_workload(
    workload: Workload,
    card: Accelerator,
    *,
    traces: BatchTraces | None = None,
    batch_size: int | None = None,
    stack: Stack | None = None,
) -> MemoryPlan:
    """The memory plan of ``workload`` on ``card``, at its own batch size or another."""
    traces = traces or traces_of(workload)
    size = batch_size or workload.micro_batch
    taken = traces.exact(size) if batch_size is None else traces.at(size)
    return plan_memory(taken, card, optimizer=workload.optimizer, accumulate=workload.accumulate, stack=stack)


def largest_batch(
    workload: Workload, card: Accelerator, *, traces: BatchTraces | None = None, stack: Stack | None = None
) -> int:
    """The largest micro-batch of ``workload`` that fits ``card`` by the safe figure; 0 if not even one
    sample does.
    """
    shared = traces or traces_of(workload)
    return largest_batch_that(
        lambda size: plan_workload(workload, card, traces=shared, batch_size=size, stack=stack).fits
    )
