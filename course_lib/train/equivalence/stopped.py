"""What does the error mean that stopped a step? PyTorch's own complaints, each with the fault behind it."""

from __future__ import annotations

from typing import Final

from course_lib.train.equivalence.catalogue import fault
from course_lib.train.equivalence.proof import Fault
from course_lib.train.equivalence.record import Record

_MEANINGS: Final = (
    ("unscale_() has already been called", "unscale_twice"),
    ("unscale_() is being called after step()", "unscale_twice"),
    ("step() has already been called since the last update()", "scaler_update_missing"),
    ("No inf checks were recorded prior to update", "scaler_update_twice"),
    ("No inf checks were recorded for this optimizer", "zero_grad_misplaced"),
    ("Trying to backward through the graph a second time", "graph_used_twice"),
)


def fault_behind(record: Record) -> Fault | None:
    """The fault behind the error that stopped a run; None for an error that is none of accumulation's."""
    for text, kind in _MEANINGS:
        if text in record.error:
            return fault(kind, f'PyTorch stopped with "{record.error.partition(".")[0]}"{_where(record)}')
    return None


def _where(record: Record) -> str:
    forwards, updates = len(record.forwards), len(record.updates)
    line = f", in the line `{record.own_line}`" if record.own_line else ""
    return f" after {forwards} forward passes and {updates} updates{line}"
