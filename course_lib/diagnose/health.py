"""Is one of several cards sick, and which?

Two ways to judge. ``by_the_guide`` applies the guide's three thresholds to what is there. ``examine``
compares each card with the others over time and names a fault and a card: throttling, a starved rank, a
straggler, memory out of balance, other ranks' contexts on the first card, a narrow link. A figure that is
missing leads to no verdict. ``straggler_by_time`` judges measured seconds of ranks, where those can be had:
they say more than any figure of a card.
"""

from dataclasses import dataclass, replace

import numpy as np

from course_lib.bounds import number_in
from course_lib.diagnose.cluster_series import Array, ClusterSeries
from course_lib.diagnose.finding import Evidence, Finding
from course_lib.diagnose.health_checks import (
    CardFault,
    active,
    contexts,
    imbalance,
    narrow_link,
    starved,
    straggler,
    throttling,
)
from course_lib.diagnose.health_words import LATE_RANK_NOT_HELPFUL, LATE_RANK_TEXTS, LatePart
from course_lib.diagnose.nan_stats import median
from course_lib.errors import CourseError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The guide's three: utilisation in percent at least, imbalance and communication as shares at most."""

    util_percent: float = 60.0
    imbalance: float = 0.15
    communication: float = 0.2

    def __post_init__(self) -> None:
        number_in(self.util_percent, "The threshold of utilisation, in percent,", 0, 100)
        number_in(self.imbalance, "The threshold of imbalance, a share,", 0, 100)
        number_in(self.communication, "The threshold of communication, a share,", 0, 1)


def by_the_guide(
    series: ClusterSeries, thresholds: Thresholds | None = None, communication_share: float | None = None
) -> tuple[Finding, ...]:
    """What the guide's thresholds say; nothing about a figure that is missing.

    ``communication_share``: communication in a step's time, 0 to 1, measured elsewhere (a step with and
    without ``no_sync``).
    """
    limits = thresholds or Thresholds()
    found = []
    util = overall(series.util)
    if util is not None and util < limits.util_percent:
        found.append(
            Finding(
                id="health.low_utilisation",
                summary=f"Utilisation is {util:.0f} % on average, below {limits.util_percent:.0f} %",
                why="By the guide's first threshold. Pauses for evaluation and saving count in this "
                "average, and 100 % would not mean efficient: it says that some kernel ran.",
                remedies=("Time the loader alone, then the step on a batch that is already there.",),
                severity="warning",
                certainty="possible",
            )
        )
    used = median_of_each(series.used_mib)
    if used is not None and used.size > 1 and used.max() > 0:
        spread = float((used.max() - used.min()) / used.max())
        if spread > limits.imbalance:
            card = series.gpus[int(used.argmax())]
            found.append(
                Finding(
                    id="health.memory_imbalance",
                    summary=f"Memory differs by {spread:.0%} between cards; GPU {card} holds most",
                    why=f"By the guide's second threshold ({limits.imbalance:.0%}).",
                    remedies=("See who sits on that card: nvidia-smi lists the processes.",),
                    severity="warning",
                )
            )
    if communication_share is not None and communication_share > limits.communication:
        found.append(
            Finding(
                id="health.communication",
                summary=f"Communication takes {communication_share:.0%} of a step",
                why=f"By the guide's third threshold ({limits.communication:.0%}). A rank that waits for a "
                "slower one counts as communicating too.",
                remedies=("Find a straggler first; then larger batches or accumulation with no_sync.",),
                severity="warning",
            )
        )
    return tuple(found)


def examine(series: ClusterSeries) -> tuple[CardFault, ...]:
    """The faults that the series shows, the most certain first; empty for a healthy job.

    At least two cards are needed to compare; of one card only throttling and a narrow link can be told.
    """
    working = active(series)
    faults = [*contexts(series), *throttling(series, working)]
    throttled = {found.gpu for found in faults if found.kind == "throttling"}
    if len(series.gpus) > 1:
        waiting = [f for f in starved(series, working) if f.gpu not in throttled]
        faults += waiting
        if not throttled and not waiting:
            faults += straggler(series, working)
        faults += imbalance(series, working)
    return (*faults, *narrow_link(series))


def straggler_by_time(
    busy_seconds: Array, *, data_seconds: Array | None = None, factor: float = 1.1
) -> CardFault | None:
    """The rank that makes the others wait, from measured times; None if no rank stands out.

    ``busy_seconds`` is [step, rank]: seconds from the start of a step to the moment the rank is ready for the
    all-reduce. ``data_seconds``, of the same shape, is the part of it in which the rank waited for its batch:
    with it the finding says whether the rank is late by its input or by its work. A rank counts if its median
    is ``factor`` times the median of the others. Raises CourseError for another shape.
    """
    times = np.asarray(busy_seconds, dtype=float)
    if times.ndim != 2 or times.shape[1] < 2 or not times.size:
        raise CourseError(f"busy_seconds must be [step, rank] with two ranks or more, not {times.shape}.")
    medians = np.nanmedian(times, axis=0)
    rank = int(np.nanargmax(medians))
    others = float(np.nanmedian(np.delete(medians, rank)))
    if not others > 0 or medians[rank] < factor * others:
        return None
    late = float(medians[rank] / others - 1)
    evidence = (
        Evidence(f"rank {rank}", f"{medians[rank] * 1000:.0f} ms"),
        Evidence("the others", f"{others * 1000:.0f} ms"),
    )
    finding = Finding(
        id="health.straggler",
        summary=f"Rank {rank} is the straggler: the others wait for it",
        why=f"Rank {rank} needs {late:.0%} longer than the others until it is ready for the all-reduce.",
        remedies=(),
        not_helpful=LATE_RANK_NOT_HELPFUL,
        evidence=evidence,
        certainty="likely",
    )
    part = _late_part(times, data_seconds, rank, float(medians[rank]) - others)
    why, remedies = LATE_RANK_TEXTS[part]
    return CardFault("straggler", rank, late, replace(finding, why=f"{finding.why} {why}", remedies=remedies))


def _late_part(times: Array, data_seconds: Array | None, rank: int, late_s: float) -> LatePart:
    """Where most of the time is by which the rank is late."""
    if data_seconds is None:
        return "unknown"
    data = np.asarray(data_seconds, dtype=float)
    if data.shape != times.shape:
        raise CourseError(
            f"data_seconds must have the shape of busy_seconds, {times.shape}, not {data.shape}."
        )
    medians = np.nanmedian(data, axis=0)
    return "input" if medians[rank] - np.nanmedian(np.delete(medians, rank)) >= 0.5 * late_s else "work"


def overall(values: Array) -> float | None:
    """The mean of all figures; None where there is none."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def median_of_each(values: Array) -> Array | None:
    """The median of each card over time; None where a card has no figure."""
    medians = median(values, axis=0)
    return medians if np.isfinite(medians).all() else None
