"""Does memory grow from step to step, in the figures that a log prints?

A leak shows as figures that keep rising: tensors kept in a list, a history that is never cut, a cache without
a limit. Two or three figures say nothing; a rise that ends says nothing either (the first steps, a longer
batch). "max mem" can only rise, so its rise counts for less.
"""

import itertools
import re
from dataclasses import dataclass

from course_lib.diagnose.finding import Evidence, Finding, Reading
from course_lib.diagnose.memory_summary import MemorySummary
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.size import PrintedSize, show_mib

KIND = "memory over steps"
_MEMORY = re.compile(
    r"\b(?P<name>(?:max[ _]|peak[ _]|gpu[ _]|cpu[ _]|cuda[ _]|host[ _]|ram[ _])*"
    r"(?:mem(?:ory)?(?:[ _](?:allocated|reserved|usage|used))?|(?:memory_)?allocated|reserved|rss))"
    r"\s*[:=]?\s*(?P<number>\d{1,12}(?:\.\d{1,4})?)\s*(?P<unit>[KMGT]i?B?\b)?(?!\s*/)",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"\b(?:step|iter(?:ation)?|epoch|batch|it)\b\s*[:=#\[(]*\s*\d|\[\s*\d+\s*/\s*\d+\s*\]", re.IGNORECASE
)
_FEWEST = 5
_GROWTH = 1.2
_LEAST_GROWTH_MIB = 100.0
_MOST_LINES = 200_000


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """The figures of one name in the order of the log, in MiB."""

    name: str
    mib: tuple[float, ...]
    first_line: int
    last_line: int

    @property
    def running_peak(self) -> bool:
        """Whether this figure can only rise by what it is."""
        return bool(re.search(r"max|peak", self.name))

    @property
    def grows(self) -> bool:
        """Whether it rises over the whole log: mostly upwards, by a good part, to the end."""
        values = self.mib
        if len(values) < _FEWEST:
            return False
        rise = values[-1] - values[0]
        steps = [b - a for a, b in itertools.pairwise(values)]
        upward = sum(step >= 0 for step in steps) / len(steps)
        moving = sum(step > 0 for step in steps) / len(steps)
        middle = values[len(values) // 2]
        return (
            values[-1] >= _GROWTH * max(values[0], 1.0)
            and rise >= _LEAST_GROWTH_MIB
            and upward >= 0.8
            and moving >= 0.5
            and values[-1] - middle >= 0.3 * rise
        )


def read(paste: Paste) -> list[Reading]:
    """One Reading for each figure that grows over the log; none where nothing grows."""
    return [
        Reading(
            kind=KIND,
            figures={"name": series.name, "mib": list(series.mib)},
            first_line=series.first_line,
            last_line=series.last_line,
            findings=(_leak(series.name, series.mib, series.running_peak),),
            source=series,
        )
        for series in memory_series(paste)
        if series.grows
    ]


def memory_series(paste: Paste) -> list[MemorySeries]:
    """The figures about memory on lines that name a step, an iteration or an epoch, by their name."""
    values: dict[str, list[float]] = {}
    places: dict[str, list[int]] = {}
    for number, line in enumerate(paste.lines[:_MOST_LINES], start=1):
        text = line[:2000]
        if not _STEP.search(text):
            continue
        for match in _MEMORY.finditer(text):
            name = re.sub(r"[ _]+", " ", match["name"]).strip().lower()
            # A bare number in such logs is MiB, as "max mem: 15123" of many vision repositories.
            size = PrintedSize.of(match["number"], match["unit"] or "MiB")
            values.setdefault(name, []).append(size.mib)
            places.setdefault(name, []).append(number)
    return [
        MemorySeries(name, tuple(numbers), places[name][0], places[name][-1])
        for name, numbers in values.items()
    ]


def over_summaries(summaries: list[MemorySummary]) -> Finding | None:
    """A leak, if several memory summaries of one device show more in use each time; else None."""
    values = [s.mib["allocated_cur"] for s in summaries if "allocated_cur" in s.mib]
    series = MemorySeries("allocated memory", tuple(values), 1, 1)
    if len(values) >= 3 and all(b > a for a, b in itertools.pairwise(values)):
        enough = values[-1] >= _GROWTH * values[0] and values[-1] - values[0] >= _LEAST_GROWTH_MIB
        return _leak(series.name, series.mib, peak=False) if enough else None
    return None


def _leak(name: str, mib: tuple[float, ...], peak: bool) -> Finding:
    caution = " This figure can only rise, so a longer batch would look the same." if peak else ""
    host = bool(re.search(r"cpu|host|ram|rss", name))
    where = "host memory" if host else "memory"
    return Finding(
        id="oom.leak_over_steps",
        summary=f"The {where} in use grows from step to step: something is kept",
        why=f"{name}: {show_mib(mib[0])} at first, {show_mib(mib[-1])} at last, over {len(mib)} figures, "
        "and still growing in the second half. A size that does not fit fails at once; a leak fails "
        f"later.{caution}",
        remedies=(
            "Look for what outlives a step: append loss.item() and not loss, detach() what is kept for "
            "statistics, no list of outputs over the epoch, torch.no_grad() around validation.",
            "Print torch.cuda.memory_allocated() after each step with the parts of the loop switched off in "
            "turn."
            if not host
            else "Print psutil.Process().memory_info().rss each epoch with num_workers=0 and with workers.",
        ),
        not_helpful=(
            "A smaller batch alone: it fails later instead.",
            "torch.cuda.empty_cache(): what is kept is in use.",
        ),
        evidence=(Evidence("first", show_mib(mib[0])), Evidence("last", show_mib(mib[-1]))),
        certainty="possible" if peak else "likely",
    )
