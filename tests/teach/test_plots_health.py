"""The pictures of lesson 07: what they say in words, missing figures, and labels that do not overlap."""

from dataclasses import replace

import numpy as np
import pytest
from laid_out import assert_laid_out
from matplotlib.text import Text

from course_lib.diagnose.cluster_series import ClusterSeries
from course_lib.errors import CourseError
from course_lib.teach.labs.health import count_alarms, guessing_game
from course_lib.teach.plots_health import plot_alarms, plot_busy, plot_cards, plot_ranks
from course_lib.train.ranks.straggler import RankTimes


def rank_times(*medians: tuple[float, ...]) -> RankTimes:
    return RankTimes((medians, medians), (1.0,) * len(medians), (0.0,) * len(medians), 5, 1)


@pytest.mark.parametrize("number", range(1, 7))
def test_the_cases_of_the_game_are_drawn_without_overlap(number: int) -> None:
    case = guessing_game(number)
    picture = plot_cards(case.series, marked=case.gpu, title=f"Case {number} (simulated)")
    assert_laid_out(picture)
    assert f"GPU {case.gpu} is marked" in picture.alt
    assert "memory in GiB" in picture.alt


def test_the_picture_of_a_case_does_not_give_it_away() -> None:
    case = guessing_game(1)
    alt = plot_cards(case.series, title="Case 1").alt
    assert "throttl" not in alt
    assert "marked" not in alt


def test_missing_figures_are_said_to_be_missing() -> None:
    series = guessing_game(2).series
    nothing = np.full(series.util.shape, np.nan)
    bare = replace(
        series, power_w=nothing, sm_clock_mhz=nothing, used_mib=nothing, total_mib=np.full(8, np.nan)
    )
    picture = plot_cards(bare, title="Little is known")
    assert_laid_out(picture)
    assert "clock in MHz unknown" in picture.alt
    shown = [t.get_text() for t in picture.figure.findobj(Text)]
    assert shown.count("not in this dump") == 3


def test_sixteen_cards_and_one_sample_are_drawn() -> None:
    wide = {
        name: np.tile(getattr(guessing_game(1).series, name)[:1], (1, 2))
        for name in ("util", "used_mib", "power_w", "memory_activity", "sm_clock_mhz", "temp_c", "throttled")
    }
    limits = dict.fromkeys(("pcie_width", "pcie_width_max"), np.full(16, 16.0))
    series = ClusterSeries(**wide, **limits, total_mib=np.full(16, 40960.0), power_cap_w=np.full(16, 400.0))
    assert_laid_out(plot_cards(series, title="Sixteen"))


def test_what_cannot_be_drawn_is_told() -> None:
    series = guessing_game(1).series
    with pytest.raises(CourseError, match="no card 9"):
        plot_cards(series, marked=9, title="")
    for draw in (plot_ranks, lambda nothing: plot_busy(nothing, title="")):
        with pytest.raises(CourseError, match="There is no"):
            draw({})


@pytest.mark.parametrize("setting", [(60, 15, 20), (0, 0, 0), (100, 100, 100), (0, 100, 100)])
def test_alarms_are_drawn_at_the_ends_of_the_sliders(setting: tuple[int, int, int]) -> None:
    count = count_alarms(*setting)
    picture = plot_alarms(count)
    assert_laid_out(picture)
    assert f"healthy: {count.false_alarms} of 40" in picture.alt


@pytest.mark.parametrize(
    "times",
    [
        (rank_times((0.0, 0.02, 0.06, 0.003, 0.001), (0.06, 0.02, 0.0, 0.003, 0.001)),),
        tuple(rank_times(*[(0.0, 0.2 * n, 1e-6, 1e-6, 0.0) for n in range(1, 9)]) for _ in range(2)),
    ],
    ids=["two ranks", "eight ranks twice"],
)
def test_ranks_are_drawn_and_told(times: tuple[RankTimes, ...]) -> None:
    picture = plot_ranks({f"run {number}": one for number, one in enumerate(times)})
    assert_laid_out(picture)
    assert "run 0, rank 1: its batch" in picture.alt


@pytest.mark.parametrize(
    "rates", [(99.0, 0.2, 100.3, 63.0), (0.0, 0.0, 0.0, 0.0), (100.0, 1.5, 412.0, 712_345.0)]
)
def test_busy_bars_stay_in_the_picture(rates: tuple[float, ...]) -> None:
    picture = plot_busy({"tiny matrices": rates[:2], "large matrices": rates[2:]}, title="Busy")
    assert_laid_out(picture)
    assert "tiny matrices" in picture.alt
