"""By which marks is each fault of a card told from the outside?

A step of data-parallel training ends when the slowest rank has ended. The others spin in the all-reduce: full
utilisation, little power. So the straggler is the card that draws more than the others, the starved rank the
one that is idle more, and utilisation alone points at neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_lib.diagnose.cluster_series import Array, ClusterSeries
from course_lib.diagnose.finding import Evidence, Finding
from course_lib.diagnose.foreign_contexts import foreign_contexts
from course_lib.diagnose.health_words import FAULT_TEXTS
from course_lib.diagnose.nan_stats import mean, median, quantile

# Chosen on the tuning part of benchmarks/health.py; the report there is made on other ranges and seeds.
_WINDOW = 8  # active samples that are averaged before cards are compared
_SOME_WINDOWS = 0.7  # a fault may come late or in stretches: this quantile of the windows must show it
_THROTTLED_SHARE = 0.06  # of the active samples; single ones are blips
_CLOCK_LOSS = 0.06
_UTIL_LOSS = 8.0  # points
_EXCESS = 0.075  # power and memory activity above the others
_EXCESS_OF_POWER = 0.11  # where there is no memory activity: cards differ more in power by nature
_AHEAD = 0.03  # above the next card: by nature the two highest are close
_IMBALANCE = 0.15
Moments = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CardFault:
    """A fault that was found: its kind, the card's number, its size (a share or points), and the Finding."""

    kind: str
    gpu: int
    size: float
    finding: Finding

    def __str__(self) -> str:
        return str(self.finding)

    def _repr_html_(self) -> str:
        return self.finding._repr_html_()


def active(series: ClusterSeries) -> Moments:
    """The samples in which the job works: not warm-up, pauses, or work on one card alone."""
    keep = np.ones(series.util.shape[0], dtype=bool)
    for values, share in ((series.util, 0.5), (series.power_w, 0.62)):
        middle = median(values, axis=1)
        if np.isfinite(middle).any():
            level = np.nanquantile(middle, 0.75)
            keep &= ~(middle < share * level)
    # The first samples after a pause are mixed, so single survivors between pauses are dropped as well.
    alone = keep & ~np.roll(keep, 1) & ~np.roll(keep, -1)
    keep &= ~alone
    return keep if keep.sum() >= 2 else np.ones_like(keep)


def _windows(values: Array, working: Moments) -> Array:
    """Means over stretches of active samples, [window, card]."""
    chosen = values[working]
    count = max(len(chosen) // _WINDOW, 1)
    return np.array([mean(part, axis=0) for part in np.array_split(chosen, count)])


def _against_others(values: Array, *, relative: bool = True) -> Array:
    """Each card minus the median of the other cards, [window, card]; as a share of it if ``relative``."""
    result = np.full(values.shape, np.nan)
    for card in range(values.shape[1]):
        others = median(np.delete(values, card, axis=1), axis=1)
        difference = values[:, card] - others
        result[:, card] = difference / np.where(others == 0, np.nan, others) if relative else difference
    return result


def throttling(series: ClusterSeries, working: Moments) -> list[CardFault]:
    """Cards whose clock is below the others', or that report that they slow down."""
    reported = mean(series.throttled[working], axis=0)
    loss = np.full(len(series.gpus), np.nan)
    if len(series.gpus) > 1:
        windows = _against_others(_windows(series.sm_clock_mhz, working))
        loss = quantile(-windows, _SOME_WINDOWS)
    faults = []
    for card, gpu in enumerate(series.gpus):
        by_reason, by_clock = reported[card] > _THROTTLED_SHARE, loss[card] > _CLOCK_LOSS
        if not by_reason and not by_clock:
            continue
        evidence = []
        if np.isfinite(loss[card]):
            evidence.append(Evidence("clock against the others", f"{-loss[card]:+.0%}"))
        if np.isfinite(reported[card]):
            evidence.append(Evidence("samples with a reason", f"{reported[card]:.0%}"))
        temperature = mean(series.temp_c[working], axis=0)[card]
        if np.isfinite(temperature):
            evidence.append(Evidence("temperature", f"{temperature:.0f} °C"))
        size = float(loss[card]) if np.isfinite(loss[card]) else float(reported[card])
        why = f"GPU {gpu} runs at a lower clock than the others, or reports that it slows itself down."
        faults.append(fault("throttling", gpu, size, why, tuple(evidence)))
    return faults


def starved(series: ClusterSeries, working: Moments) -> list[CardFault]:
    """Cards that are idle while the others spin and wait."""
    loss = quantile(-_against_others(_windows(series.util, working), relative=False), _SOME_WINDOWS)
    return [
        fault(
            "starved_rank",
            gpu,
            float(loss[card]),
            f"GPU {gpu} is idle {loss[card]:.0f} points more than the others, which spin at full "
            "utilisation and wait.",
            (Evidence("utilisation against the others", f"{-loss[card]:+.0f} points"),),
        )
        for card, gpu in enumerate(series.gpus)
        if loss[card] > _UTIL_LOSS
    ]


def straggler(series: ClusterSeries, working: Moments) -> list[CardFault]:
    """The one card that works while the others wait."""
    power = quantile(_against_others(_windows(series.power_w, working)), _SOME_WINDOWS)
    activity = quantile(_against_others(_windows(series.memory_activity, working)), _SOME_WINDOWS)
    score = mean(np.stack([power, activity]), axis=0)
    if not np.isfinite(score).any():
        return []
    card = int(np.nanargmax(score))
    next_highest = float(np.nanmax(np.append(np.delete(score, card), -np.inf)))
    least = _EXCESS if np.isfinite(activity).any() else _EXCESS_OF_POWER
    if score[card] <= least or score[card] - next_highest <= _AHEAD:
        return []
    evidence = [
        Evidence(f"{name} against the others", f"{value[card]:+.0%}")
        for name, value in (("power", power), ("memory activity", activity))
        if np.isfinite(value[card])
    ]
    gpu = series.gpus[card]
    why = (
        f"GPU {gpu} works while the others wait: all read full utilisation, but only this one draws full "
        "power."
    )
    return [fault("straggler", gpu, float(score[card]), why, tuple(evidence))]


def imbalance(series: ClusterSeries, working: Moments) -> list[CardFault]:
    """Cards that hold more than the others, guests not counted."""
    used = median(series.used_mib[working], axis=0)
    guests = _guest_mib(series)
    own = used - np.array([guests.get(gpu, 0.0) for gpu in series.gpus])
    faults = []
    for card, gpu in enumerate(series.gpus):
        others = float(median(np.delete(own, card), axis=0))
        if not (np.isfinite(own[card]) and others > 0):
            continue
        excess = own[card] / others - 1
        if excess > _IMBALANCE:
            evidence = (
                Evidence(f"GPU {gpu}", f"{own[card]:.0f} MiB"),
                Evidence("median of the others", f"{others:.0f} MiB"),
            )
            why = f"GPU {gpu} holds {excess:.0%} more than the others."
            faults.append(fault("memory_imbalance", gpu, float(excess), why, evidence))
    return faults


def _homes(series: ClusterSeries) -> dict[int, set[int]]:
    cards: dict[int, set[int]] = {}
    for process in series.processes or ():
        if process.pid is not None and process.gpu is not None and process.kind != "G":
            cards.setdefault(process.pid, set()).add(process.gpu)
    return cards


def _guest_mib(series: ClusterSeries) -> dict[int, float]:
    """Memory on each card of processes that have another card of their own, in MiB."""
    homes = _homes(series)
    sizes: dict[int, float] = {}
    largest = {
        pid: max((p.mib or 0.0, p.gpu or 0) for p in series.processes or () if p.pid == pid)[1]
        for pid in homes
    }
    for process in series.processes or ():
        if process.pid is None or process.gpu is None or process.mib is None:
            continue
        if len(homes.get(process.pid, ())) > 1 and largest[process.pid] != process.gpu:
            sizes[process.gpu] = sizes.get(process.gpu, 0.0) + process.mib
    return sizes


def contexts(series: ClusterSeries) -> list[CardFault]:
    """The card on which other ranks have opened a context."""
    found = foreign_contexts(series.processes or ())
    if not found:
        return []
    ((gpu, guests),) = found.items()
    held = _guest_mib(series).get(gpu)
    amount = "" if held is None else f", which hold {held:.0f} MiB there"
    who = (
        "One rank has a card of its own"
        if len(guests) == 1
        else f"{len(guests)} ranks have a card of their own"
    )
    why = f"{who} and a context on GPU {gpu} as well{amount}."
    evidence = (Evidence("guests", str(len(guests))),)
    return [fault("contexts_on_first_card", gpu, float(len(guests)), why, evidence)]


def narrow_link(series: ClusterSeries) -> list[CardFault]:
    """Cards on a narrower link than they could have."""
    faults = []
    for card, gpu in enumerate(series.gpus):
        now, best = series.pcie_width[card], series.pcie_width_max[card]
        if np.isfinite(now) and np.isfinite(best) and now < best:
            why = f"GPU {gpu} is connected with x{now:.0f}, at best x{best:.0f}."
            faults.append(fault("narrow_link", gpu, float(1 - now / best), why, ()))
    return faults


def fault(kind: str, gpu: int, size: float, why: str, evidence: Sequence[Evidence]) -> CardFault:
    """A CardFault with the words for its kind."""
    summary, explanation, remedies, not_helpful = FAULT_TEXTS[kind]
    finding = Finding(
        id=f"health.{kind}",
        summary=summary.format(gpu=gpu),
        why=f"{why} {explanation}",
        remedies=remedies,
        not_helpful=not_helpful,
        evidence=tuple(evidence),
        certainty="certain" if kind == "contexts_on_first_card" else "likely",
    )
    return CardFault(kind, gpu, size, finding)
