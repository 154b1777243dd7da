"""What does one look at the cards say, and what does it not say?

Each check answers from figures that are there, or not at all. A look is a moment: utilisation is the share
of the last second or less in which some kernel ran, so verdicts from it are "likely" at best. A series
(dmon, csv -l) is averaged first, and a longer one of several cards is judged by health.py as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import mean

from course_lib.diagnose.cards.common import pids_on_several, power_share
from course_lib.diagnose.cards.hardware import (
    compute_prohibited,
    ecc_errors,
    mig,
    pcie,
    throttled,
    waiting,
)
from course_lib.diagnose.cards.other_makers import other_makers
from course_lib.diagnose.cards.processes import (
    nobody_named,
    one_process_on_all,
    owner_gone,
    ranks_on_one_card,
)
from course_lib.diagnose.cards.trouble import trouble
from course_lib.diagnose.cards.unread import unreadable_memory
from course_lib.diagnose.cards.use import use
from course_lib.diagnose.cluster_series import ClusterSeries
from course_lib.diagnose.finding import Finding, Reading
from course_lib.diagnose.gpu_status import gpu_statuses
from course_lib.diagnose.health import examine
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.model import Gpu, GpuStatus

KIND = "GPU status"
_Key = tuple[int | None, str | None, str | None]  # by which a card is known again
_LONG_SERIES = 24  # looks at each card; fewer say little about time


def read(paste: Paste) -> list[Reading]:
    """One Reading for each dump in the text."""
    readings = []
    for status in gpu_statuses(paste):
        readings.append(
            Reading(
                kind=KIND,
                figures=status.to_json(),
                derived=derived(status),
                first_line=status.first_line,
                last_line=status.last_line,
                findings=tuple(diagnose(status)),
                source=status,
            )
        )
    return readings


def derived(status: GpuStatus) -> dict[str, object]:
    """What follows by arithmetic: who sits on several cards, and power as a share of its limit."""
    shares = [power_share(gpu) for gpu in status.gpus]
    by_card: dict[int, float] = {}
    for process in status.processes or ():
        if process.gpu is not None and process.mib is not None:
            by_card[process.gpu] = by_card.get(process.gpu, 0.0) + process.mib
    return {
        "gpus_seen": status.gpu_numbers(),
        "pids_on_more_than_one_gpu": sorted(pids_on_several(status)),
        "process_mib_by_gpu": by_card,
        "draw_over_limit_percent": [None if share is None else round(100 * share, 1) for share in shares],
    }


def diagnose(status: GpuStatus) -> list[Finding]:
    """What the dump supports, the most important first; empty where it supports nothing."""
    averaged = replace(status, gpus=tuple(_averages(status)))
    return [finding for check in _CHECKS for finding in check(averaged)]


def _key(gpu: Gpu) -> _Key:
    return gpu.index, gpu.uuid, gpu.bus_id


def _averages(status: GpuStatus) -> Iterator[Gpu]:
    """Each card with the mean of its samples' utilisation and power, and all of its throttle reasons."""
    by_card: dict[_Key, list[Gpu]] = {}
    for sample in status.samples:
        by_card.setdefault(_key(sample), []).append(sample)
    for place, gpu in enumerate(status.gpus):
        same = by_card.get(_key(gpu), [])
        if _key(gpu) == (None, None, None) and len(status.samples) % len(status.gpus) == 0:
            same = list(status.samples[place :: len(status.gpus)])  # the cards in turn, moment by moment
        if len(same) < 2:
            yield gpu
            continue
        utils = [s.util_percent for s in same if s.util_percent is not None]
        powers = [s.power_w for s in same if s.power_w is not None]
        reasons = [s.throttle_reasons for s in same if s.throttle_reasons is not None]
        yield replace(
            gpu,
            util_percent=mean(utils) if utils else None,
            power_w=mean(powers) if powers else None,
            throttle_reasons=tuple(sorted({r for some in reasons for r in some})) if reasons else None,
        )


def _over_time(status: GpuStatus) -> Iterator[Finding]:
    """What comparing the cards over time shows, where the series is long enough."""
    if len(status.gpus) < 2 or len(status.samples) < _LONG_SERIES * len(status.gpus):
        return
    for fault in examine(ClusterSeries.from_status(status)):
        if fault.kind not in ("contexts_on_first_card", "narrow_link"):  # the checks on one look tell these
            yield fault.finding


_CHECKS: tuple[Callable[[GpuStatus], Iterator[Finding]], ...] = (
    trouble,
    ranks_on_one_card,
    throttled,
    compute_prohibited,
    _over_time,
    ecc_errors,
    mig,
    unreadable_memory,
    waiting,
    nobody_named,
    owner_gone,
    one_process_on_all,
    other_makers,
    use,
    pcie,
)
