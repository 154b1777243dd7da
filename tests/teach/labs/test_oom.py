"""The lab of lesson 06 answers from traces that are those of the tracer today; so does its table."""

import pytest
import torch

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.plan.batch_size import largest_batch
from course_lib.plan.model_names import named_workload
from course_lib.plan.tracer import trace
from course_lib.teach.labs import oom
from course_lib.teach.labs.oom import lab, memory_of, resnet50_trace, rule_of_thumb, your_model_lab


def test_each_setting_of_the_lab_has_its_traces() -> None:
    for size in oom.IMAGE_SIZES:
        for precision in oom.PRECISIONS:
            plain = memory_of(16, size, precision=precision).plan
            assert plain.precision == precision
            assert (
                memory_of(16, size, precision=precision, checkpointing=True).plan.allocated < plain.allocated
            )


def test_a_saved_trace_is_what_the_tracer_makes_today() -> None:
    fresh = trace(named_workload("resnet50", image_size=224, micro_batch=4))
    saved = resnet50_trace(4)
    assert saved.live_peak() == pytest.approx(fresh.live_peak(), rel=0.01)
    assert saved.flops == fresh.flops


def test_memory_grows_with_batch_and_picture_and_falls_with_every_remedy() -> None:
    start = memory_of(32).plan.allocated
    assert memory_of(64).plan.allocated > start
    assert memory_of(32, 384).plan.allocated > start
    assert memory_of(32, precision="bf16").plan.allocated < start
    assert memory_of(1, optimizer="sgd-plain").plan.allocated < memory_of(1, optimizer="adamw").plan.allocated


@pytest.mark.parametrize(
    "setting", [{"image_size": 200}, {"precision": "fp64"}, {"batch_size": 0}, {"card": "RTX 9999"}]
)
def test_settings_that_are_not_there_are_told(setting: dict[str, object]) -> None:
    with pytest.raises(CourseError):
        memory_of(**setting)  # type: ignore[arg-type]


def test_the_lab_keeps_the_last_three_settings_and_starts_with_the_learners_card() -> None:
    made = lab("RTX 3090")
    assert made.values["card"] == "RTX 3090"
    for size in (64, 128, 256):
        made.controls["batch_size"].value = size
    assert [one.values["batch_size"] for one in made.answers] == [64, 128, 256]
    assert made.errors == []
    shown = made._repr_mimebundle_()["text/html"]
    assert "batch 256" in shown
    assert "batch 32," not in shown
    assert lab("no card of the table").values["card"] == oom.own_card()


@pytest.mark.parametrize(
    ("driver_says", "card"),
    [("NVIDIA GeForce RTX 4090", "RTX 4090"), ("Some New Card", "RTX 3060 12GB"), (None, "RTX 3060 12GB")],
)
def test_the_learners_own_card_comes_first(
    driver_says: str | None, card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: driver_says is not None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: driver_says)
    assert oom.own_card() == card


def test_a_model_of_ones_own_is_traced_when_measure_is_pressed() -> None:
    workload = named_workload("cnn")
    made = your_model_lab(workload)
    made.measure()
    assert made.wait(60)
    assert made.errors == []
    assert made.result.plan.model == "cnn"
    assert "batch 32, fp32, adamw" in made._repr_mimebundle_()["text/html"]
    assert workload.model().state_dict().keys() == DigitsCNN().state_dict().keys()


def test_the_guides_rule_is_the_guides() -> None:
    rule = rule_of_thumb()
    assert rule.rule == {name: find_accelerator(name).advertised_gb * 0.25 for name in oom.CARDS}
    assert len(rule.largest) == 20
    assert all(list(row.values()) == sorted(row.values()) for row in rule.largest.values())
    assert rule.failures == sum(
        fits < rule.rule[card] for row in rule.largest.values() for card, fits in row.items()
    )
    assert max(rule.factors) == rule.too_small > 50
    assert "the guide says" in str(rule)


def test_a_row_of_the_table_is_what_the_plan_predicts_today() -> None:
    workload = named_workload("alexnet", precision=oom.TABLE_PRECISION, optimizer=oom.TABLE_OPTIMIZER)
    predicted = largest_batch(workload, find_accelerator("T4"))
    assert rule_of_thumb().largest["alexnet"]["T4"] == pytest.approx(predicted, rel=0.03)
