"""Lab of lesson 07: how often do the guide's three thresholds cry wolf, and how often do they sleep?

`count_alarms` applies the thresholds to a hundred simulated jobs on eight cards, of which it is known which
are sick, and counts. The lab puts a slider over each threshold. `guessing_game` gives the lesson's cases.
"""

from __future__ import annotations

from functools import lru_cache

from course_lib.bounds import number_in, whole_in
from course_lib.diagnose.health import Thresholds, by_the_guide, examine
from course_lib.diagnose.simulated_cluster import FAULTS, Fault, SimulatedCluster, simulate
from course_lib.teach.alarm_count import HEALTHY, AlarmCount
from course_lib.teach.labs.frame import Lab, whole_numbers
from course_lib.teach.plots_health import plot_alarms

HEALTHY_JOBS, JOBS_A_FAULT = 40, 12
_FIRST_SEED = 70_000  # away from the seeds on which health.py was tuned and is reported
_RULES = {
    "health.low_utilisation": "utilisation",
    "health.memory_imbalance": "memory",
    "health.communication": "communication",
}

# Seeds whose traces hold every column.
_GAME: tuple[tuple[int, Fault], ...] = (
    (303, "throttling"),
    (343, "starved_rank"),
    (353, "contexts_on_first_card"),
    (326, "memory_imbalance"),
    (305, "straggler"),
    (400, "straggler"),
)


def count_alarms(
    util_percent: int = 60, imbalance_percent: int = 15, communication_percent: int = 20
) -> AlarmCount:
    """Judge a hundred simulated jobs by three thresholds, and count where these are wrong.

    Args:
        util_percent: a job is called sick below this mean utilisation; 0 switches the rule off.
        imbalance_percent: or when memory differs by more between cards.
        communication_percent: or when the all-reduce takes more of the step, the waiting included.

    Raises:
        CourseError: a percentage outside 0 to 100.
    """
    for percent, what in (
        (util_percent, "The utilisation, in percent,"),
        (imbalance_percent, "The difference of memory, in percent,"),
        (communication_percent, "The share of communication, in percent,"),
    ):
        number_in(percent, what, 0, 100)
    limits = Thresholds(util_percent, imbalance_percent / 100, communication_percent / 100)
    kinds = (HEALTHY, *FAULTS)
    by_rule = {rule: dict.fromkeys(kinds, 0) for rule in _RULES.values()}
    of, alarmed, compared = (dict.fromkeys(kinds, 0) for _ in range(3))
    for case, found in _jobs():
        kind = case.fault or HEALTHY
        broken = {_RULES[f.id] for f in by_the_guide(case.series, limits, case.communication_share)}
        of[kind] += 1
        alarmed[kind] += bool(broken)
        compared[kind] += case.fault in found if case.fault else bool(found)
        for rule in broken:
            by_rule[rule][kind] += 1
    return AlarmCount(limits, of, alarmed, by_rule, compared)


def guessing_game(number: int) -> SimulatedCluster:
    """One of the lesson's simulated jobs, 1 to 6, of which the last is for the exercise.

    Raises CourseError for another number.
    """
    seed, fault = _GAME[whole_in(number, "The number of the case", 1, len(_GAME)) - 1]
    return simulate(seed, fault)


def lab() -> Lab:
    """A slider for each of the guide's thresholds, over a hundred simulated jobs."""
    return Lab(
        count_alarms,
        {
            "util_percent": whole_numbers("utilisation, %", 0, 100, 60),
            "imbalance_percent": whole_numbers("memory differs, %", 0, 100, 15),
            "communication_percent": whole_numbers("communication, %", 0, 100, 20),
        },
        show=lambda answers: plot_alarms(answers[-1].result),
    )


@lru_cache(maxsize=1)
def _jobs() -> tuple[tuple[SimulatedCluster, frozenset[str]], ...]:
    """The simulated jobs, each with the kinds of fault that comparing its cards finds."""
    kinds: list[Fault | None] = [None] * HEALTHY_JOBS
    for fault in FAULTS:
        kinds += [fault] * JOBS_A_FAULT
    jobs = [simulate(_FIRST_SEED + number, fault) for number, fault in enumerate(kinds)]
    return tuple((job, frozenset(found.kind for found in examine(job.series))) for job in jobs)
