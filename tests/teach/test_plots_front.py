"""Cards by hours and money: names that can be read, whatever the job and the budget."""

from itertools import combinations

import pytest
from matplotlib.text import Text

from course_lib.teach.labs.hardware import which_card
from course_lib.teach.plots_front import plot_front


@pytest.mark.parametrize("settings", [{}, {"precision": "fp32"}, {"model": "gpt"}, {"samples": 10_000}])
@pytest.mark.parametrize("budget", [1, 20, 10_000])
def test_no_name_of_the_front_covers_another_or_leaves_the_picture(
    settings: dict[str, object], budget: int
) -> None:
    answer = which_card(**settings, budget=budget)  # type: ignore[arg-type]
    figure = plot_front(answer.advice, budget=answer.budget).figure
    figure.draw_without_rendering()
    # The method of Text, as that of Annotation adds the line to the dot.
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]
    names = {text.get_text().partition(", far")[0] for text in figure.axes[0].texts}
    assert names == {choice.card.name for choice in answer.advice.front} | {f"budget {budget:,}"}
    bounds = [(box.x0, box.y0, box.x1, box.y1) for box in (b.shrunk(0.9, 0.7) for b in boxes)]
    assert not [1 for a, b in combinations(bounds, 2) if _cross(a, b)]
    assert figure.axes[0].yaxis.label.get_window_extent().x0 >= 0


def _cross(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_a_budget_far_from_all_points_does_not_press_them_together() -> None:
    answer = which_card(budget=10_000)
    axes = plot_front(answer.advice, budget=answer.budget).figure.axes[0]
    assert axes.get_ylim()[1] < 1000
    assert "budget 10,000, far above" in [text.get_text() for text in axes.texts]
