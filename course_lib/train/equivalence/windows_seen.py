"""Which micro-batches did each update see, in which window? The structure of a run, before any number."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from course_lib.train.equivalence.attribution import OLD, Attribution
from course_lib.train.equivalence.catalogue import fault
from course_lib.train.equivalence.proof import Fault
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.reference import Task

Column = tuple[int, int]
"""An epoch and the number of a micro-batch."""


@dataclass(frozen=True)
class Seen:
    """The parts of micro-batches that passed forward before each update of a rank, and after the last one.

    A part of 1 is the whole micro-batch; one in which nothing counts is left out. `own` has an entry for each
    update; `tails` one for each epoch, with what passed after its last update (and so before the first one of
    the next epoch). `passed` counts all of them. `company` are the updates before which a rank only kept the
    others company: it repeated a batch that then counts for nothing. `leaked` says that gradients of a tail
    are in a later update.
    """

    own: tuple[dict[Column, float], ...]
    tails: tuple[dict[Column, float], ...]
    passed: dict[Column, float]
    company: frozenset[int] = frozenset()
    leaked: bool = False


def look_at(record: Record, task: Task, attributions: list[Attribution]) -> Seen:
    """Sort a record's forward passes by the update that they came before; `attributions` are this rank's."""
    own: list[dict[Column, float]] = []
    passed: Counter[Column] = Counter()
    company = set()
    begin = 0
    for number, update in enumerate(record.updates):
        parts = _parts(record, begin, update.forwards, task)
        begin = update.forwards
        idle = {c for c in parts if passed[c] and abs(float(attributions[number].ratios[c])) < OLD}
        if idle and idle == parts.keys() and task.reference.ranks:
            company.add(number)
            parts = {}
        passed.update(parts)
        own.append({column: part for column, part in parts.items() if column[0] == update.epoch})
    passed.update(_parts(record, begin, len(record.forwards), task))
    tails: list[dict[Column, float]] = []
    for epoch in range(task.reference.epochs):
        last = max((u.forwards for u in record.updates if u.epoch == epoch), default=0)
        rest = _parts(record, last, len(record.forwards), task)
        tails.append({column: part for column, part in rest.items() if column[0] == epoch})
    leaked = any(
        abs(float(attributions[number].ratios[column])) > OLD
        for number, update in enumerate(record.updates)
        for tail in tails[: update.epoch]
        for column in tail
    )
    return Seen(tuple(own), tuple(tails), dict(passed), frozenset(company), leaked)


def structure_faults(seen: Seen, task: Task, rank: int) -> tuple[list[Fault], bool]:
    """Faults that the order of passes and updates shows, and whether the windows are those of the reference.

    Where they are not, numbers cannot be compared window by window.
    """
    mine = [number for number in task.of_rank(rank) if task.total([number])]
    wanted = [len(numbers) for window in task.windows() if (numbers := set(window) & set(mine))]
    lengths = [
        round(sum(parts.values()), 6) for number, parts in enumerate(seen.own) if number not in seen.company
    ]
    found: list[Fault] = []
    if any(length == 0 for length in lengths):
        many = lengths.count(0)
        found.append(
            fault("optimizer_step_twice", f"{many} of {len(lengths)} updates had no forward pass before them")
        )
    lengths = [length for length in lengths if length]
    if not lengths:
        return found, False
    (usual, _), *_ = Counter(lengths).most_common(1)
    due = max(wanted)
    if set(lengths) == {1} and due > 1:
        evidence = f"{len(lengths)} updates, each after one micro-batch; {due} should make one"
        return [*found, fault("step_every_micro_batch", evidence)], False
    if usual != due and due not in lengths:
        evidence = f"an update after every {usual:g} micro-batches; the reference has {due}"
        return [*found, fault("other_window", evidence)], False
    aligned = True
    first = [i for i, parts in enumerate(seen.own) if (0, mine[0]) in parts]
    if first and round(sum(seen.own[first[0]].values()), 6) < wanted[0]:
        evidence = f"the first update came after {lengths[0]:g} of {wanted[0]} micro-batches"
        found.append(fault("first_window_short", evidence))
        aligned = False
    found += _coverage(seen, task, mine)
    return found, aligned


def _coverage(seen: Seen, task: Task, mine: list[int]) -> list[Fault]:
    """Batches that were used twice, or never, and windows that were left over."""
    found: list[Fault] = []
    passed = seen.passed
    twice = [column for column, part in passed.items() if part > 1.01]
    if twice:
        found.append(fault("batch_used_twice", f"{_told(twice)} passed forward {passed[twice[0]]:.3g} times"))
    own = [numbers for window in task.windows() if (numbers := [n for n in window if n in mine])]
    last = own[-1] if len(own[-1]) < len(own[0]) else []
    never = [(e, n) for e in range(task.reference.epochs) for n in mine if (e, n) not in passed]
    lost = sorted({column for tail in seen.tails for column in tail} | {c for c in never if c[1] in last})
    skipped = [column for column in never if column not in lost]
    if lost:
        how = "passed forward, and no update followed" if any(seen.tails) else "never passed forward"
        then = "; their gradients leaked into the next one" if seen.leaked else ""
        found.append(fault("last_window_dropped", f"{_told(lost)} {how} in their epoch{then}"))
    if skipped:
        found.append(fault("batch_skipped", f"{_told(skipped)} never passed forward"))
    return found


def _parts(record: Record, begin: int, end: int, task: Task) -> dict[Column, float]:
    parts: Counter[Column] = Counter()
    for forward in record.forwards[begin:end]:
        for number, _ in forward.samples:
            if task.total([number]):
                parts[forward.epoch, number] += 1 / len(task.units[number])  # type: ignore[assignment]
    return dict(parts)


def _told(columns: list[Column]) -> str:
    """Micro-batches in words: "micro-batches 9, 10, 11 of epoch 1 (and of epoch 2)"."""
    epoch = columns[0][0]
    numbers = [number + 1 for e, number in columns if e == epoch]
    others = sorted({e + 1 for e, _ in columns if e != epoch})
    more = f" (and in epoch {', '.join(map(str, others))})" if others else ""
    named = ", ".join(map(str, numbers[:6])) + (", ..." if len(numbers) > 6 else "")
    return f"micro-batch{'es' if len(numbers) > 1 else ''} {named} of epoch {epoch + 1}{more}"
