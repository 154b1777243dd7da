"""Alarms are counted rightly, the game's cases are as they say, and the lab follows its sliders."""

from itertools import pairwise

import numpy as np
import pytest

from course_lib.diagnose.health import examine
from course_lib.diagnose.simulated_cluster import FAULTS
from course_lib.errors import CourseError
from course_lib.teach.alarm_count import HEALTHY
from course_lib.teach.exercises.health import WHICH_CARD
from course_lib.teach.labs import health
from course_lib.teach.labs.health import count_alarms, guessing_game, lab
from course_lib.teach.look import width_in


def test_a_rule_that_is_switched_off_finds_nothing_and_one_that_calls_all_sick_finds_all() -> None:
    off = count_alarms(0, 100, 100)
    assert (off.false_alarms, off.misses) == (0, off.sick)
    every = count_alarms(100, 100, 100)
    assert (every.false_alarms, every.misses) == (every.of[HEALTHY], 0)
    assert sum(off.of.values()) == 100


def test_alarms_are_counted_as_they_are_by_hand() -> None:
    count = count_alarms(60, 15, 20)
    for rule in count.by_rule.values():
        for kind, alarms in rule.items():
            assert 0 <= alarms <= count.alarmed[kind] <= count.of[kind]
    by_hand = dict.fromkeys(count.of, 0)
    for job, _ in health._jobs():
        used = np.nanmedian(job.series.used_mib, axis=0)
        too_uneven = (used.max() - used.min()) / used.max() > 0.15
        by_hand[job.fault or HEALTHY] += bool(
            np.nanmean(job.series.util) < 60 or too_uneven or job.communication_share > 0.2
        )
    assert by_hand == dict(count.alarmed)


def test_stricter_thresholds_never_raise_fewer_alarms() -> None:
    counts = [count_alarms(*setting) for setting in ((40, 30, 40), (60, 15, 20), (95, 5, 5))]
    for looser, stricter in pairwise(counts):
        assert looser.false_alarms <= stricter.false_alarms
        assert looser.misses >= stricter.misses


def test_no_setting_finds_all_sick_jobs_without_a_false_alarm() -> None:
    """The rules are joined by "or": the strictest of each without a false alarm make the best setting."""
    util = max(u for u in range(101) if not count_alarms(u, 100, 100).false_alarms)
    memory = min(m for m in range(101) if not count_alarms(0, m, 100).false_alarms)
    communication = min(c for c in range(101) if not count_alarms(0, 100, c).false_alarms)
    best = count_alarms(util, memory, communication)
    assert best.false_alarms == 0
    assert best.misses > 0


def test_what_passes_one_threshold_is_counted() -> None:
    count = count_alarms(0, 15, 100)
    passed, sick = count.passing("memory")
    assert passed == 100 - sum(count.by_rule["memory"].values())
    assert sick == count.misses
    with pytest.raises(CourseError, match="thresholds are for utilisation, memory, communication"):
        count.passing("heat")


def test_comparing_the_cards_beats_the_thresholds_here() -> None:
    count = count_alarms()
    assert sum(count.compared[fault] for fault in FAULTS) > count.sick - count.misses
    assert count.compared[HEALTHY] <= count.false_alarms


@pytest.mark.parametrize("setting", [(-1, 15, 20), (101, 15, 20), (60, -1, 20), (60, 15, 101), (60, "x", 20)])
def test_percentages_that_are_none_are_told(setting: tuple[int, int, int]) -> None:
    with pytest.raises(CourseError, match=r"in percent, cannot be .*: give a number from 0 to 100"):
        count_alarms(*setting)


@pytest.mark.parametrize("number", range(1, 7))
def test_each_case_of_the_game_shows_its_one_fault_in_figures_that_are_there(number: int) -> None:
    case = guessing_game(number)
    found = examine(case.series)
    assert [(one.kind, one.gpu) for one in found] == [(case.fault, case.gpu)]
    for column in (case.series.util, case.series.power_w, case.series.sm_clock_mhz, case.series.used_mib):
        assert np.isfinite(column).any()


def test_the_first_five_cases_show_all_faults_and_the_sixth_is_the_exercise() -> None:
    assert {guessing_game(number).fault for number in range(1, 6)} == set(FAULTS)
    assert guessing_game(6).fault == "straggler"
    assert WHICH_CARD.checker.right == "c"
    with pytest.raises(CourseError, match="number of the case cannot be 7: give a whole number from 1 to 6"):
        guessing_game(7)


def test_the_lab_follows_its_sliders() -> None:
    made = lab()
    assert "2 false alarms" in made._repr_mimebundle_()["text/html"]
    made.controls["util_percent"].value = 100
    assert "40 false alarms, 0 sick jobs missed" in made._repr_mimebundle_()["text/html"]
    assert made.errors == []
    assert made.result.thresholds.util_percent == 100


def test_the_count_prints_a_line_for_each_kind_of_job() -> None:
    count = count_alarms()
    assert "healthy" in str(count)
    assert "contexts on first card" in str(count)
    assert f"{count.misses} misses in {count.sick}" in count._repr_html_()


def test_no_name_of_a_slider_is_cut() -> None:
    for control in lab().controls.values():
        room_px = 13 * float(control.style.description_width.removesuffix("em"))  # JupyterLab's font size
        assert 96 * width_in(control.description, 13 * 72 / 96) < room_px
