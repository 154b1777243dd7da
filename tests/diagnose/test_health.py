"""The sick card is found among eight, healthy jobs raise no alarm, and missing figures lead to no verdict."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.diagnose.cluster_series import ClusterSeries
from course_lib.diagnose.gpu_status import GpuProcess, gpu_statuses
from course_lib.diagnose.health import Thresholds, by_the_guide, examine, straggler_by_time
from course_lib.diagnose.simulated_cluster import FAULTS, Fault, simulate
from course_lib.errors import CourseError


def test_most_simulated_faults_are_found_with_their_card() -> None:
    right = named = alarms = 0
    for seed in range(12):
        for fault in FAULTS:
            case = simulate(9000 + seed, fault)
            found = {f.kind: f.gpu for f in examine(case.series)}
            right += fault in found
            named += found.get(fault) == case.gpu
        alarms += bool(examine(simulate(9000 + seed, None).series))
    assert right >= 56
    assert named >= 56
    assert alarms <= 1


def test_the_same_seed_gives_the_same_trace() -> None:
    one, two = simulate(7, "straggler"), simulate(7, "straggler")
    np.testing.assert_array_equal(one.series.util, two.series.util)
    assert one.gpu == two.gpu


def steady(**columns: float) -> ClusterSeries:
    """Eight cards that all read the same for 80 samples; columns that are not given are missing."""
    names = ("util", "used_mib", "power_w", "memory_activity", "sm_clock_mhz", "temp_c", "throttled")
    arrays = {name: np.full((80, 8), columns.get(name, np.nan)) for name in names}
    limits = {"total_mib": 40960.0, "power_cap_w": 400.0, "pcie_width": 16.0, "pcie_width_max": 16.0}
    return ClusterSeries(**arrays, **{name: np.full(8, value) for name, value in limits.items()})


HEALTHY = {
    "util": 97.0,
    "used_mib": 30000.0,
    "power_w": 330.0,
    "memory_activity": 50.0,
    "sm_clock_mhz": 1900.0,
}


def changed(series: ClusterSeries, name: str, card: int, factor: float) -> ClusterSeries:
    values = getattr(series, name).copy()
    values[:, card] *= factor
    return replace(series, **{name: values})


@pytest.mark.parametrize(
    ("column", "factor", "kind"),
    [
        ("sm_clock_mhz", 0.7, "throttling"),
        ("util", 0.6, "starved_rank"),
        ("used_mib", 1.3, "memory_imbalance"),
        ("power_w", 1.3, "straggler"),
    ],
)
def test_one_change_gives_one_fault(column: str, factor: float, kind: Fault) -> None:
    series = steady(**HEALTHY)
    assert examine(series) == ()
    if kind == "straggler":
        series = changed(series, "memory_activity", 5, 1.3)
    (fault,) = examine(changed(series, column, 5, factor))
    assert (fault.kind, fault.gpu) == (kind, 5)
    assert fault.finding.id == f"health.{kind}"
    assert "GPU 5" in fault.finding.summary


@pytest.mark.parametrize(("missing", "kind"), [("sm_clock_mhz", "throttling"), ("util", "starved_rank")])
def test_no_verdict_from_a_missing_column(missing: str, kind: str) -> None:
    columns = {name: value for name, value in HEALTHY.items() if name != missing}
    columns.setdefault("util", np.nan)
    series = changed(changed(steady(**columns), missing, 5, 0.5), "temp_c", 5, 2.0)
    assert kind not in [fault.kind for fault in examine(series)]


def test_nothing_known_says_nothing() -> None:
    assert examine(steady()) == ()
    assert by_the_guide(steady()) == ()


def test_a_narrow_link_is_told() -> None:
    series = steady(**HEALTHY)
    width = series.pcie_width.copy()
    width[3] = 4
    (fault,) = examine(replace(series, pcie_width=width))
    assert (fault.kind, fault.gpu) == ("narrow_link", 3)


def test_one_card_is_compared_with_nobody() -> None:
    series = steady(**HEALTHY)
    names = ("util", "used_mib", "power_w", "memory_activity", "sm_clock_mhz", "temp_c", "throttled")
    alone = {name: getattr(series, name)[:, :1] for name in names}
    limits = {n: getattr(series, n)[:1] for n in ("total_mib", "power_cap_w", "pcie_width", "pcie_width_max")}
    assert examine(ClusterSeries(**alone, **limits)) == ()


def test_the_guides_three_thresholds() -> None:
    series = changed(steady(**{**HEALTHY, "util": 40.0}), "used_mib", 2, 1.4)
    ids = [f.id for f in by_the_guide(series, communication_share=0.3)]
    assert ids == ["health.low_utilisation", "health.memory_imbalance", "health.communication"]
    relaxed = Thresholds(util_percent=30, imbalance=0.5, communication=0.5)
    assert by_the_guide(series, relaxed, communication_share=0.3) == ()
    assert [f.id for f in by_the_guide(steady(**HEALTHY))] == []
    with pytest.raises(CourseError, match="threshold of utilisation, in percent, cannot be 140"):
        Thresholds(util_percent=140)


def test_the_guides_thresholds_do_not_see_a_straggler_and_examine_does() -> None:
    case = simulate(9001, "straggler")
    assert by_the_guide(case.series) == ()
    assert [f.kind for f in examine(case.series)] == ["straggler"]


def test_a_straggler_by_measured_times() -> None:
    rng = np.random.default_rng(0)
    times = rng.normal(0.1, 0.005, (50, 4))
    assert straggler_by_time(times) is None
    times[:, 2] *= 1.4
    fault = straggler_by_time(times)
    assert fault is not None
    assert fault.gpu == 2
    assert fault.size == pytest.approx(0.4, abs=0.05)
    assert fault.finding.summary == "Rank 2 is the straggler: the others wait for it"
    assert "look the same" in fault.finding.why
    with pytest.raises(CourseError, match="two ranks"):
        straggler_by_time(np.ones((5, 1)))
    with pytest.raises(CourseError, match="shape of busy_seconds"):
        straggler_by_time(times, data_seconds=times[:, :2])


@pytest.mark.parametrize(("late", "word"), [("data", "waiting for its batch"), ("work", "longer samples")])
def test_a_late_batch_is_not_called_longer_samples(late: str, word: str) -> None:
    data, work = np.full((20, 3), 0.01), np.full((20, 3), 0.05)
    (data if late == "data" else work)[:, 1] += 0.08
    found = straggler_by_time(data + work, data_seconds=data)
    assert found is not None
    assert word in found.finding.why
    assert ("loader" in str(found.finding.first_remedy)) == (late == "data")


def test_one_foreign_context_in_a_series() -> None:
    processes = (
        GpuProcess(gpu=0, pid=5, kind="C", mib=9000.0),
        GpuProcess(gpu=0, pid=6, kind="C", mib=400.0),
        GpuProcess(gpu=1, pid=6, kind="C", mib=9000.0),
    )
    series = simulate(3, None).series
    found = [f for f in examine(replace(series, processes=processes)) if f.kind == "contexts_on_first_card"]
    assert [(f.gpu, f.size) for f in found] == [(0, 1.0)]
    assert "One rank has a card of its own" in str(found[0])


def test_a_series_from_dmon() -> None:
    header = (
        "# gpu   pwr gtemp    sm   mem  mclk  pclk    fb\n# Idx     W     C     %     %   MHz   MHz    MB\n"
    )
    rows = "".join(
        f"    {gpu}   {300 - 100 * (gpu == 2)}    60    {98 - 40 * (gpu == 2)}    30  1593  1400 30000\n"
        for _ in range(30)
        for gpu in range(4)
    )
    (status,) = gpu_statuses(header + rows)
    series = ClusterSeries.from_status(status)
    assert series.util.shape == (30, 4)
    assert [(f.kind, f.gpu) for f in examine(series)] == [("starved_rank", 2)]


def test_arrays_that_do_not_fit_are_refused() -> None:
    series = steady(**HEALTHY)
    with pytest.raises(CourseError, match=r"\[time, card\]"):
        replace(series, util=series.util[:5])


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([None, *FAULTS]), st.permutations(range(8)))
def test_the_verdict_follows_the_card_wherever_it_stands(
    seed: int, fault: Fault | None, order: list[int]
) -> None:
    """Renumbering the cards renumbers the verdict: no card is special, but by its processes."""
    series = replace(simulate(seed, fault).series, processes=None)
    moved = {
        name: getattr(series, name)[:, order]
        for name in ("util", "used_mib", "power_w", "memory_activity", "sm_clock_mhz", "temp_c", "throttled")
    }
    renumbered = replace(series, **moved)
    before = {(f.kind, f.gpu) for f in examine(series)}
    after = {(f.kind, order[f.gpu]) for f in examine(renumbered)}
    assert before == after
