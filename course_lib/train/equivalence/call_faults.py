"""What do the calls between passes and updates say? Clipping, the schedule, and what the ranks exchange."""

from __future__ import annotations

import math

from course_lib.train.equivalence.catalogue import fault
from course_lib.train.equivalence.large_batch import Clip
from course_lib.train.equivalence.proof import Fault
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.reference import Reference, learning_rate_factor

PER_EPOCH = "the learning rate changes once an epoch; the proof takes that as meant"


def clip_of(records: list[Record], reference: Reference) -> Clip:
    """How the reference clips: as it says, else as the step was seen to."""
    for record in records:
        scaled, scale = record.values("clip scaled"), max(record.values("scale"), default=1.0)
        limit = reference.max_norm
        if scaled and (math.isclose(scaled[0], limit * scale) if limit is not None else scaled[0] >= scale):
            return Clip("norm", scaled[0] / scale, scale)  # somebody multiplied the limit: right, if unusual
    if reference.max_norm is not None:
        return Clip("norm", reference.max_norm)
    for record in records:
        for name, kind in (("clip", "norm"), ("clip scaled", "norm"), ("clip value", "value")):
            if limits := record.values(name):
                return Clip(kind, limits[0])
    return Clip()


def clip_faults(record: Record, clip: Clip, reference: Reference) -> list[Fault]:
    """Clipping at the wrong moment."""
    found: list[Fault] = []
    scaled = record.values("clip scaled")
    scale = max(record.values("scale"), default=1.0)
    if scaled and not math.isclose(scaled[0], clip.limit * scale):
        evidence = f"clipped to {scaled[0]:g} while the gradients were {scale:g} times too large"
        found.append(fault("clip_before_unscale", evidence))
    clips = sum(name.startswith("clip") for name, _ in record.calls)
    updates, forwards = len(record.updates), len(record.forwards)
    if clips > updates and clips >= forwards > updates:
        evidence = f"{clips} clippings for {updates} updates"
        found.append(fault("clip_every_micro_batch", evidence))
    if not clips and reference.max_norm is not None and not found:
        found += _without_clipping(record, reference.max_norm)
    return found


def _without_clipping(record: Record, limit: float) -> list[Fault]:
    """Nobody called torch's clipping: then a gradient above the limit was not clipped by hand either."""
    norms = [float(update.gradient.norm()) for update in record.updates]
    if norms and max(norms) > limit * 1.001:
        return [fault("clip_missing", f"a gradient of norm {max(norms):.3g}, and the limit is {limit:g}")]
    return []


def expected_rates(record: Record, first_rate: float) -> tuple[list[float], bool]:
    """The learning rates that a right schedule gives this run's updates, and whether it goes by epochs."""
    if not record.count("schedule"):
        return [], False
    by_epoch = [first_rate * learning_rate_factor(update.epoch) for update in record.updates]
    if _same(by_epoch, [update.learning_rate for update in record.updates]) and len(set(by_epoch)) > 1:
        return by_epoch, True
    return [first_rate * learning_rate_factor(number) for number in range(len(record.updates))], False


def schedule_faults(record: Record, first_rate: float) -> list[Fault]:
    """A scheduler that is stepped too often, too seldom, or too early."""
    rates = [update.learning_rate for update in record.updates]
    expected, by_epoch = expected_rates(record, first_rate)
    if by_epoch or (expected and _same(rates, expected)):
        return []
    steps = record.count("schedule")
    updates = len(rates)
    evidence = f"{steps} scheduler steps for {updates} updates; the learning rate of the last one was "
    evidence += f"{rates[-1]:.3g}" + (f" and should be {expected[-1]:.3g}" if expected else "")
    if not expected:
        return [fault("scheduler_too_slow", f"{updates} updates, and the scheduler was never stepped")]
    one_early = [first_rate * learning_rate_factor(number + 1) for number in range(updates)]
    if _same(rates, one_early):
        return [fault("scheduler_before_update", evidence)]
    return [fault("scheduler_too_fast" if rates[-1] < expected[-1] else "scheduler_too_slow", evidence)]


def exchange_faults(record: Record, *, alone: bool) -> tuple[list[Fault], list[str]]:
    """Where a rank sent its gradients; a note where it sent more than needed.

    `alone` says that its updates hold nothing of the other ranks: they may have exchanged by other means.
    """
    sent = _sent_after(record)
    begin = 0
    flags: list[list[bool]] = []
    for update in record.updates:
        flags.append(sent[begin : update.forwards])
        begin = update.forwards
    many = [of_window for of_window in flags if len(of_window) > 1]
    told = f"gradients were sent after {sum(map(sum, flags))} of {sum(map(len, flags))} backward passes"
    if not any(map(any, flags)):
        return ([fault("never_synchronised", told)] if alone else []), []
    if many and all(not window[-1] and any(window[:-1]) for window in many):
        return [fault("no_sync_inverted", told + ", and not after the last of a window")], []
    if many and all(all(window) for window in many):
        if record.count("no_sync"):
            return [
                fault(
                    "no_sync_without_forward", told + f"; no_sync was entered {record.count('no_sync')} times"
                )
            ], []
        return [], [f"{told}: right, and more than needed; no_sync() saves the others"]
    return [], []


def bytes_sent(record: Record, epochs: int) -> tuple[int, ...]:
    """The bytes of gradients that a rank gave to all-reduces, in each epoch."""
    sent = [0] * epochs
    epoch = 0
    for name, value in record.calls:
        if name == "epoch":
            epoch = int(value)
        elif name == "sync":
            sent[epoch] += round(value)
    return tuple(sent)


def _sent_after(record: Record) -> list[bool]:
    """For each forward pass: whether gradients were sent before the next one."""
    sent: list[bool] = []
    for name, _ in record.calls:
        if name == "forward":
            sent.append(False)
        elif name == "sync" and sent:
            sent[-1] = True
    return sent


def _same(some: list[float], others: list[float]) -> bool:
    return len(some) == len(others) and all(
        math.isclose(one, other, rel_tol=1e-9) for one, other in zip(some, others, strict=True)
    )
