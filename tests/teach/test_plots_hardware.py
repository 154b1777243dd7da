"""Pictures of lesson 01: names beside their dots, whatever the machine."""

import pytest
from matplotlib.text import Annotation

from course_lib.errors import CourseError
from course_lib.teach.plots_hardware import Operation, plot_roofline


def test_a_name_stands_on_the_side_of_its_dot_where_the_roof_is_not() -> None:
    above, below = Operation("fast", 1e6, 8e6, 1e-4), Operation("slow", 1e6, 8e6, 1e-2)
    axes = plot_roofline(50e9, 20e9, [above, below]).figure.axes[0]
    sides = {
        text.get_text(): text.get_verticalalignment() for text in axes.texts if isinstance(text, Annotation)
    }
    assert sides == {"fast": "bottom", "slow": "top"}
    with pytest.raises(CourseError):
        plot_roofline(50e9, 20e9, [])
