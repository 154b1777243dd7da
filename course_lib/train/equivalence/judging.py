"""From what was recorded to a proof: all faults that are seen, each once, and the largest differences."""

from __future__ import annotations

from torch import Tensor

from course_lib.train.equivalence.attribution import Attribution, MicroGradients, attribute
from course_lib.train.equivalence.call_faults import (
    PER_EPOCH,
    bytes_sent,
    clip_faults,
    clip_of,
    exchange_faults,
    expected_rates,
    schedule_faults,
)
from course_lib.train.equivalence.catalogue import fault
from course_lib.train.equivalence.large_batch import by_nature, expected_gradient, run_large_batch
from course_lib.train.equivalence.proof import TOLERANCE, Fault, Proof
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.reference import Task
from course_lib.train.equivalence.stopped import fault_behind
from course_lib.train.equivalence.weight_faults import weight_faults
from course_lib.train.equivalence.windows_seen import Seen, look_at, structure_faults

UNKNOWN_INPUTS = (
    "the model was given inputs that the step had changed; which batch they are from was taken from the order"
)
_OF_EXCHANGE = ("no_sync_inverted", "never_synchronised")


def judge_records(records: list[Record], task: Task, *, wants_schedule: bool) -> Proof:
    """The proof from the records of all ranks."""
    faults: list[Fault] = []
    notes: list[str] = []
    gradients = MicroGradients(task)
    natural = by_nature(task, gradients)
    clip = clip_of(records, task.reference)
    first_rate = float(task.optimizer(task.model()).param_groups[0]["lr"])
    attributions = attribute(records, gradients)
    aligned = True
    for record in records:
        behind = fault_behind(record)
        if behind is not None:
            faults.append(behind)
            aligned = False
            continue
        if not record.updates:
            faults.append(fault("no_update", f"{len(record.forwards)} forward passes, and no update"))
            aligned = False
            continue
        seen = look_at(record, task)
        structure, ok = structure_faults(seen, task, record.rank)
        exchange, more_notes = exchange_faults(record, seen) if task.reference.ranks else ([], [])
        clipping = clip_faults(record, clip, task.reference)
        schedule = schedule_faults(record, first_rate, wants_schedule)
        faults += structure + exchange + clipping + schedule
        notes += more_notes
        aligned = aligned and ok
        told_apart = {f.id for f in (*exchange, *clipping)}
        if ok and not told_apart & {"clip_every_micro_batch", *_OF_EXCHANGE}:
            own = [a for a in attributions if a.rank == record.rank]
            scale = max(record.values("scale"), default=1.0) if _uses_scaler(record) else 1.0
            faults += weight_faults(own, seen, task, record.rank, scale=scale)
        if expected_rates(record, first_rate)[1]:
            notes.append(PER_EPOCH)
        if record.unknown_inputs:
            notes.append(UNKNOWN_INPUTS)
    due = task.reference.epochs * len(task.windows())
    gradient_difference, weight_difference = None, None
    if aligned and all(len(record.updates) == due for record in records):
        rates = expected_rates(records[0], first_rate)[0]
        large = run_large_batch(task, clip, rates) if not natural else None
        gradient_difference = max(
            _difference(
                update.gradient,
                large.gradients[number]
                if large
                else clip.clipped(_expected(number, records, task, gradients)),
            )
            for record in records
            for number, update in enumerate(record.updates)
        )
        if large:
            weight_difference = max(_difference(record.weights[-1], large.weights) for record in records)
        own_rates = [u.learning_rate for u in records[0].updates]
        if not faults and weight_difference is not None and weight_difference > TOLERANCE:
            if gradient_difference <= TOLERANCE or (not rates and len(set(own_rates)) > 1):
                notes.append("the weights differ: the step uses an optimizer or a learning rate of its own")
    once = _once(faults)
    worst = max((a.unexplained for a in attributions), default=0.0)
    if not once and (worst > 1e-6 or (gradient_difference or 0.0) > TOLERANCE):
        told = f"gradients differ by up to {max(gradient_difference or 0.0, 0.0):.1e}"
        if worst > 1e-6:
            told += f"; {worst:.1%} of a gradient comes from none of the batches"
        once = (fault("unexplained", told),)
    return Proof(
        faults=once,
        natural=natural,
        notes=tuple(dict.fromkeys(notes)),
        gradient_difference=gradient_difference,
        weight_difference=weight_difference,
        updates=max(len(record.updates) for record in records),
        expected_updates=due,
        made_of=_made_of(attributions, task),
        columns=_columns(task),
        expected_made_of=_expected_made_of(task),
        bytes_sent=tuple(bytes_sent(record) for record in records) if task.reference.ranks else (),
    )


def _uses_scaler(record: Record) -> bool:
    return record.count("scale") + record.count("scaler.step") > 0


def _expected(number: int, records: list[Record], task: Task, gradients: MicroGradients) -> Tensor:
    """The right gradient of an update, from the forward passes that came before it on all ranks."""
    passes = []
    for record in records:
        begin = record.updates[number - 1].forwards if number else 0
        passes += [(f, record) for f in record.forwards[begin : record.updates[number].forwards]]
    return expected_gradient(task, gradients, passes)


def _difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp_min(1e-300))


def _once(faults: list[Fault]) -> tuple[Fault, ...]:
    """One fault of each kind: what the first rank showed."""
    return tuple({found.id: found for found in reversed(faults)}.values())[::-1]


def _columns(task: Task) -> tuple[str, ...]:
    return tuple(
        f"{epoch + 1}.{number + 1}"
        for epoch in range(task.reference.epochs)
        for number in range(len(task.batches))
    )


def _made_of(attributions: list[Attribution], task: Task) -> tuple[tuple[float, ...], ...]:
    """A row for each update of the first rank."""
    return tuple(
        tuple(round(float(ratio), 9) for ratio in a.ratios.flatten()) for a in attributions if a.rank == 0
    )


def _expected_made_of(task: Task) -> tuple[tuple[float, ...], ...]:
    many = len(task.batches)
    rows = []
    for epoch in range(task.reference.epochs):
        for window in task.windows():
            row = [0.0] * (many * task.reference.epochs)
            for number in window:
                row[epoch * many + number] = 1.0
            rows.append(tuple(row))
    return tuple(rows)
