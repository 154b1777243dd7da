from typing import Any

import pytest
from matplotlib.patches import Rectangle

from course_lib.errors import CourseError
from course_lib.teach.plots_loading import plot_climb, plot_stall, plot_sweep, plot_timeline
from course_lib.train.loading.gains import Climb, Rung
from course_lib.train.loading.measurement import STALL_PARTS, LoaderMeasurement, Rate
from course_lib.train.loading.timeline import Span, Timeline

RATE = Rate(100, 90, 110, 3)


def measurement(stall: Any) -> LoaderMeasurement:
    return LoaderMeasurement(
        RATE, RATE, RATE, 0.01, 0.01, 0.04, 0.001, stall, (0.1,), 20, 0, "cpu", emulated=True
    )


def texts(figure: Any) -> str:
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_the_stall_is_drawn_part_by_part() -> None:
    picture = plot_stall(measurement(dict(zip(STALL_PARTS, (0.01, 0.02, 0.01, 0.001, 0.0), strict=True))))
    assert "decoding 20.0 ms" in picture.alt
    assert "20" in texts(picture.figure).split()
    patches = picture.figure.axes[0].patches
    widths = [patch.get_width() for patch in patches if isinstance(patch, Rectangle)]
    assert sum(widths) == pytest.approx(51)
    named = [text.get_text() for text in picture.figure.texts]
    assert "transfer" in named
    assert "slower step" not in named  # it takes no time here
    tiny = plot_stall(measurement(dict(zip(STALL_PARTS, (0.01, 0.02, 0.01, 2e-5, 0.0), strict=True))))
    assert "transfer" not in [text.get_text() for text in tiny.figure.texts]  # too short to be seen
    with pytest.raises(CourseError, match="measure a DataLoader"):
        plot_stall(measurement(None))


def test_the_way_up_is_a_bar_for_each_set_up() -> None:
    up = Climb((Rung("first", RATE, Rate(400, 1, 1, 1)), Rung("last", RATE, RATE)), emulated=True)
    picture = plot_climb(up)
    assert "first: 25 %; last: 100 %" in picture.alt
    assert "25 %" in texts(picture.figure)
    named = [text.get_text() for text in picture.figure.texts]
    assert {"the step works (emulated)", "it waits"} <= set(named)


def test_a_sweep_marks_the_rules() -> None:
    picture = plot_sweep({0: 100.0, 2: 180.0}, alone=200.0, marks={"the guide": 2})
    assert "0 workers 100, 2 workers 180" in picture.alt
    assert "the guide suggests 2" in picture.alt
    assert "the step alone" in texts(picture.figure)
    far = plot_sweep({0: 1.0}, alone=4000.0)
    assert "the step alone: 4 k a second, far above this picture" in texts(far.figure)
    assert far.figure.axes[0].get_ylim()[1] == pytest.approx(1.2)
    many = plot_sweep({0: 100.0, 68: 180.0}, alone=200.0)
    assert len(many.figure.axes[0].get_xticks()) <= 18
    with pytest.raises(CourseError, match="Nothing was measured"):
        plot_sweep({})


def test_a_timeline_has_a_row_for_each_worker() -> None:
    spans = (
        Span("worker 0", 0, 0, 0.1),
        Span("step", 0, 0.1, 0.2),
        Span("worker 0", 1, 0.1, 0.25),
        Span("step", 1, 0.25, 0.35),
    )
    picture = plot_timeline({"one": Timeline(spans, 2, True)})
    assert "the step waits 50 ms" in picture.alt
    assert "worker 0" in texts(picture.figure)
    with pytest.raises(CourseError, match="no timeline"):
        plot_timeline({})
