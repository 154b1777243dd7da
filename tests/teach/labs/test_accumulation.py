"""The lab of lesson 05 measures what its sliders say, and keeps the latest bars."""

from course_lib.teach.labs.accumulation import lab, measure, plot_measurements
from course_lib.teach.labs.frame import Answer


def test_a_micro_batch_above_the_global_batch_is_the_global_batch() -> None:
    cost = measure(16, 64, budget_s=0.01)
    assert (cost.micro_batch, cost.accumulation_steps) == (16, 1)


def test_the_picture_has_a_bar_for_each_measurement() -> None:
    answers = [
        Answer({"global_batch": 16, "micro_batch": size}, measure(16, size, budget_s=0.01))
        for size in (8, 16)
    ]
    picture = plot_measurements(answers)
    assert "2 × 8" in picture.alt
    assert "1 × 16" in picture.alt


def test_the_lab_offers_what_it_can_measure() -> None:
    controls = lab().controls
    assert set(controls) == {"global_batch", "micro_batch"}
    assert max(controls["micro_batch"].options) <= max(controls["global_batch"].options)
