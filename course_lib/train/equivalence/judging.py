"""From what was recorded to a proof: all faults that are seen, each once, and the largest differences."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from course_lib.train.equivalence.attribution import OLD, Attribution, MicroGradients, attribute
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
from course_lib.train.equivalence.large_batch import Clip, by_nature, expected_gradient, run_large_batch
from course_lib.train.equivalence.proof import TOLERANCE, Fault, Proof
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.reference import Task
from course_lib.train.equivalence.stopped import fault_behind
from course_lib.train.equivalence.weight_faults import weight_faults
from course_lib.train.equivalence.windows_seen import Seen, look_at, structure_faults

UNKNOWN_INPUTS = (
    "the model was given inputs that the step had changed; which batch they are from was taken from the order"
)
OWN_OPTIMIZER = (
    "each update has the right gradient, and the weights go another way: the step has an optimizer, a "
    "learning rate or another change of the weights of its own"
)
_OF_BATCHES = {"batch_used_twice", "batch_skipped"}
_DISTURBING = {"clip_every_micro_batch", "no_sync_inverted", "never_synchronised"}


def judge_records(records: list[Record], task: Task, *, wants_schedule: bool) -> Proof:
    """The proof from the records of all ranks."""
    gradients = MicroGradients(task)
    natural = by_nature(task, gradients)
    clip = clip_of(records, task.reference)
    first_rate = float(task.optimizer(task.model()).param_groups[0]["lr"])
    attributions = attribute(records, gradients)
    of_rank = {r.rank: [a for a in attributions if a.rank == r.rank] for r in records}
    rate = first_rate if wants_schedule else None
    looks = [_look(record, task, of_rank[record.rank], clip, rate) for record in records]
    due = task.reference.epochs * len(task.windows())
    paired = all(look.aligned for look in looks) and all(len(r.updates) == due for r in records)
    different = _differences(records, task, gradients, clip, natural) if paired else _Differences()
    large_equal = different.equal and different.beside_large
    faults: list[Fault] = []
    for record, look in zip(records, looks, strict=True):
        # Equal updates cannot come from other batches: then equal samples were taken for one another.
        faults += [f for f in look.faults if not (large_equal and f.id in _OF_BATCHES)]
        same = different.equal and not any(name.startswith("clip") for name, _ in record.calls)
        if look.seen is not None and look.aligned and not look.disturbed and not same:
            faults += weight_faults(of_rank[record.rank], look.seen, task, record.rank, scale=_scale(record))
    notes = [note for look in looks for note in look.notes]
    if not faults and different.equal and not natural and not different.beside_large:
        notes.append(OWN_OPTIMIZER)
    worst = max((a.unexplained for a in attributions), default=0.0)
    if not faults and not different.equal:
        made = max(len(record.updates) for record in records)
        faults.append(_unexplained(worst, different.gradient, made, due))
    return Proof(
        faults=tuple({found.id: found for found in reversed(faults)}.values())[::-1],
        natural=natural,
        notes=tuple(dict.fromkeys(notes)),
        gradient_difference=different.gradient,
        weight_difference=different.weights,
        updates=max(len(record.updates) for record in records),
        expected_updates=due,
        made_of=_made_of(attributions),
        columns=_columns(task),
        expected_made_of=_expected_made_of(task),
        bytes_sent=tuple(bytes_sent(record, task.reference.epochs) for record in records)
        if task.reference.ranks
        else (),
    )


@dataclass(frozen=True)
class _Look:
    """What the calls of one rank show. `disturbed`: weights would only repeat it in other words."""

    faults: list[Fault]
    notes: list[str]
    seen: Seen | None = None
    aligned: bool = False
    disturbed: bool = False


def _look(
    record: Record, task: Task, attributions: list[Attribution], clip: Clip, first_rate: float | None
) -> _Look:
    behind = fault_behind(record)
    if behind is not None:
        return _Look([behind], [])
    if not record.updates:
        return _Look([fault("no_update", f"{len(record.forwards)} forward passes, and no update")], [])
    seen = look_at(record, task, attributions)
    faults, aligned = structure_faults(seen, task, record.rank)
    exchange: list[Fault] = []
    notes: list[str] = []
    if task.reference.ranks:
        exchange, notes = exchange_faults(record, alone=_is_alone(attributions, task))
    clipping = clip_faults(record, clip, task.reference)
    if first_rate is not None:
        faults += schedule_faults(record, first_rate)
        if expected_rates(record, first_rate)[1]:
            notes.append(PER_EPOCH)
    if record.unknown_inputs:
        notes.append(UNKNOWN_INPUTS)
    disturbed = bool({f.id for f in (*exchange, *clipping)} & _DISTURBING)
    return _Look([*faults, *exchange, *clipping], notes, seen, aligned, disturbed)


def _is_alone(attributions: list[Attribution], task: Task) -> bool:
    """Whether nothing of any other rank's micro-batches is in a rank's updates."""
    others = [n for n in range(len(task.batches)) if n not in task.of_rank(attributions[0].rank)]
    return all(float(a.ratios[:, others].abs().max()) < OLD for a in attributions)


@dataclass(frozen=True)
class _Differences:
    """The largest relative differences; `weights` at the end.

    `beside_large` says that the gradients were compared with the large batch's run. Otherwise each was
    compared with the mean over its own forward passes, at the weights of that moment: for a model that is not
    equal by nature, and for a step with an optimizer of its own, whose weights go another way.
    """

    gradient: float | None = None
    weights: float | None = None
    beside_large: bool = False

    @property
    def equal(self) -> bool:
        return self.gradient is not None and self.gradient < TOLERANCE


def _differences(
    records: list[Record], task: Task, gradients: MicroGradients, clip: Clip, natural: tuple[str, ...]
) -> _Differences:
    first_rate = float(task.optimizer(task.model()).param_groups[0]["lr"])
    large = None
    if not natural:
        large = run_large_batch(task, clip, expected_rates(records[0], first_rate)[0])
        weights = max(_difference(record.weights[-1], large.weights) for record in records)
        found = _Differences(_largest(records, large.gradients), weights, beside_large=True)
        if found.equal:
            return found
    of_passes = tuple(
        clip.clipped(_expected(number, records, task, gradients)) for number in range(len(records[0].updates))
    )
    own = _Differences(_largest(records, of_passes), found.weights if large else None)
    return own if own.equal or not large else found


def _largest(records: list[Record], expected: tuple[Tensor, ...]) -> float:
    return max(
        _difference(update.gradient, expected[number])
        for record in records
        for number, update in enumerate(record.updates)
    )


def _unexplained(worst: float, gradient_difference: float | None, made: int, due: int) -> Fault:
    if gradient_difference is None:
        told = [f"{made} updates, and the large batch makes {due}"]
    else:
        told = [f"gradients differ by up to {gradient_difference:.1e}"]
    if worst > 1e-6:
        told.append(f"{worst:.2%} of a gradient comes from none of the batches")
    return fault("unexplained", "; ".join(told))


def _scale(record: Record) -> float:
    return max(record.values("scale"), default=1.0)


def _expected(number: int, records: list[Record], task: Task, gradients: MicroGradients) -> Tensor:
    """The right gradient of an update, from the forward passes that came before it on all ranks."""
    passes = []
    for record in records:
        begin = record.updates[number - 1].forwards if number else 0
        passes += [(f, record) for f in record.forwards[begin : record.updates[number].forwards]]
    return expected_gradient(task, gradients, passes)


def _difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp_min(1e-300))


def _columns(task: Task) -> tuple[str, ...]:
    return tuple(
        f"{epoch + 1}.{number + 1}"
        for epoch in range(task.reference.epochs)
        for number in range(len(task.batches))
    )


def _made_of(attributions: list[Attribution]) -> tuple[tuple[float, ...], ...]:
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
