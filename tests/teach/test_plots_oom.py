"""The pictures of lesson 06: what they say in words, and labels that do not overlap or leave the page."""

from dataclasses import replace

import pytest
from laid_out import assert_laid_out

from course_lib.errors import CourseError
from course_lib.plan.alive import alive_over_step
from course_lib.teach.labs.oom import BATCHES, memory_of, resnet50_trace, rule_of_thumb
from course_lib.teach.plots_batch import plot_rule, plot_trials
from course_lib.teach.plots_oom import parts_of, plot_memory, plot_step
from course_lib.train.rescue.batch_search import Trial
from course_lib.train.rescue.batch_size_result import BatchSizeSearch

MIB = 2**20


def search(*trials: Trial, limit: int | None = 1000 * MIB) -> BatchSizeSearch:
    best = max(trial.batch_size for trial in trials if trial.fits)
    return BatchSizeSearch(best, trials, limit, 900 * MIB, 905 * MIB, MIB, "in use", 1, None, 1)


@pytest.mark.parametrize("batch_size", [BATCHES[0], 32, BATCHES[-1]])
@pytest.mark.parametrize("other", ["T4", "A100 80GB"])
def test_bars_are_laid_out_from_one_sample_to_far_too_many(batch_size: int, other: str) -> None:
    answers = [memory_of(batch_size, size, optimizer="adamw", other=other) for size in (128, 224, 384)]
    picture = plot_memory({one.setting: one.plan for one in answers}, other=answers[-1].other)
    assert_laid_out(picture)
    assert answers[0].plan.verdict in picture.alt
    assert other in picture.alt


def test_the_parts_of_a_bar_are_the_total() -> None:
    for setting in (memory_of(1), memory_of(256), memory_of(64, checkpointing=True, optimizer="adamw")):
        parts = parts_of(setting.plan)
        assert sum(parts.values()) == setting.plan.total
        assert all(nbytes > 0 for nbytes in parts.values())


def test_a_long_name_is_cut_and_no_plan_is_refused() -> None:
    assert_laid_out(plot_memory({"a very long name " * 8: memory_of(32).plan}))
    with pytest.raises(CourseError, match="no plan"):
        plot_memory({})


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_mountain_names_its_summit(checkpointing: bool) -> None:
    trace = resnet50_trace(8, checkpointing=checkpointing)
    for capacity in (None, 2**30, 12 * 2**30):
        picture = plot_step(trace, "adamw", capacity=capacity)
        assert_laid_out(picture)
        peak = max(alive_over_step(trace, "adamw").totals) / 2**30
        assert f"{peak:.2f} GiB" in picture.alt


def test_the_rule_is_drawn_with_its_failures() -> None:
    rule = rule_of_thumb()
    picture = plot_rule(rule)
    assert_laid_out(picture)
    assert f"{rule.failures} run out of memory" in picture.alt


@pytest.mark.parametrize(
    "trials",
    [
        (Trial(8, 908 * MIB, None, 0.1), Trial(54, 950 * MIB, None, 0.1), Trial(95, 995 * MIB, None, 0.1)),
        (Trial(1, 901 * MIB, None, 0.1),),
        (Trial(4, 909 * MIB, None, 0.1), Trial(900, None, None, 0.1, "no"), Trial(80, 980 * MIB, None, 0.1)),
    ],
)
def test_trials_are_drawn_beyond_what_was_in_use(trials: tuple[Trial, ...]) -> None:
    picture = plot_trials(search(*trials))
    assert_laid_out(picture)
    assert "limit is 100 MiB" in picture.alt
    assert f"{sum(not t.fits for t in trials)} out of memory" in picture.alt


def test_a_search_without_readings_or_limit() -> None:
    assert_laid_out(plot_trials(search(Trial(8, 908 * MIB, None, 0.1), limit=None)))
    with pytest.raises(CourseError, match="nothing to draw"):
        plot_trials(replace(search(Trial(8, None, None, 0.1)), fixed_bytes=None))


def test_a_card_beyond_the_edge_is_told_and_no_line_strikes_words_through():
    answer = memory_of(1, card="RTX 3060 12GB", other="Quadro RTX 8000")
    picture = plot_memory({answer.setting: answer.plan}, other=answer.other)
    assert_laid_out(picture)
    axes = picture.figure.axes[0]
    assert "Quadro RTX 8000" in axes.get_xlabel()
    words = [t for t in axes.texts if t.get_text() == answer.setting or "fits" in t.get_text()]
    assert len(words) == 2
    assert all(t.get_zorder() > axes.lines[0].get_zorder() and t.get_bbox_patch() is not None for t in words)
    within = memory_of(512, card="RTX 3060 12GB", other="T4")
    picture = plot_memory({within.setting: within.plan}, other=within.other)
    assert "further" not in picture.figure.axes[0].get_xlabel()
