"""A step's time follows from its work: more work takes longer, a faster card takes less, and parts add up."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.accelerators import accelerators, find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.coefficients import coefficients_from, find_coefficients
from course_lib.plan.kind_words import words
from course_lib.plan.model_names import named_workload
from course_lib.plan.roofline import Rates, fill, rates_of, seconds, together
from course_lib.plan.speed import predict
from course_lib.plan.step_time import StepTime
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.step_work import keeps_channels_last, step_work
from course_lib.plan.tracer import trace
from course_lib.plan.work import Work

CARD = find_accelerator("RTX 3090")


@pytest.fixture(scope="module")
def taken() -> StepTrace:
    return trace(named_workload("resnet18", micro_batch=64, precision="fp16", channels_last=True))


@pytest.fixture(scope="module")
def told(taken: StepTrace) -> StepTime:
    return predict(taken, CARD)


def test_the_parts_of_a_step_add_up_to_it(told: StepTime) -> None:
    assert told.forward + told.backward + told.optimizer == pytest.approx(told.seconds)
    assert sum(share.seconds for share in told.modules) == pytest.approx(told.seconds)
    assert sum(share.seconds for share in told.kinds) == pytest.approx(told.seconds)
    assert told.low < told.seconds < told.high
    assert told.backward > told.forward > told.optimizer > 0


def test_a_card_may_be_named(taken: StepTrace) -> None:
    assert predict(taken, "3090") == predict(taken, CARD)
    with pytest.raises(CourseError, match="is no name of a card"):
        predict(taken, 3090)  # type: ignore[arg-type]


def test_samples_and_mfu_follow_from_the_seconds(told: StepTime) -> None:
    assert told.samples_per_second == pytest.approx(64 / told.seconds)
    # ResNet-18 at 224 x 224: 1.81 G multiply-adds forward; forward and backward are 3 times 2 times that,
    # less
    # the gradient of the first image.
    assert told.flops == pytest.approx(64 * 6 * 1.81e9, rel=0.05)
    assert 0.05 < told.mfu < 1
    assert told.seconds_for(1281167, 90) == pytest.approx(1281167 * 90 / told.samples_per_second)


def test_it_agrees_with_a_public_measurement(taken: StepTrace) -> None:
    # ResNet-18, 512 images under fp16 autocast, channels last, RTX 3090: 3,482 images/s in timm's table.
    step = predict(taken, CARD, coefficients=find_coefficients("timm-2022"))
    assert step.samples_per_second == pytest.approx(3482, rel=0.25)


def test_modules_carry_their_names_and_the_stem_its_intensity(told: StepTime) -> None:
    by_name = {share.name: share for share in told.modules}
    assert "layer4.1.conv2" in by_name
    conv = by_name["layer4.1.conv2"]
    assert conv.flops == pytest.approx(3 * 2 * 64 * 7 * 7 * 512 * 512 * 9)
    assert conv.flops / conv.nbytes > by_name["bn1"].flops / by_name["bn1"].nbytes
    assert by_name["bn1"].bound == "memory"


def test_a_larger_batch_takes_longer_and_the_same_work_counts_once_for_many_cards(taken: StepTrace) -> None:
    larger = trace(named_workload("resnet18", micro_batch=128, precision="fp16", channels_last=True))
    work = step_work(taken)
    assert predict(larger, CARD).seconds > 1.7 * predict(work, CARD).seconds
    assert predict(work, CARD) == predict(taken, CARD)


def test_accumulation_repeats_the_passes_and_not_the_update(taken: StepTrace) -> None:
    once, four = (predict(taken, CARD, accumulate=count) for count in (1, 4))
    assert four.optimizer == pytest.approx(once.optimizer, rel=0.01)
    assert four.backward == pytest.approx(4 * once.backward, rel=0.01)
    assert four.samples_per_second >= once.samples_per_second
    with pytest.raises(CourseError, match="micro-batch"):
        predict(taken, CARD, accumulate=0)


def test_adam_takes_longer_than_plain_sgd(taken: StepTrace) -> None:
    steps = [predict(taken, CARD, optimizer=name).optimizer for name in ("sgd-plain", "sgd", "adamw")]
    assert steps == sorted(steps)
    assert steps[0] < steps[2]


def test_a_tiny_batch_waits_for_the_processor_and_a_large_one_does_not() -> None:
    tiny = predict(
        trace(named_workload("resnet18", micro_batch=1, precision="fp16")), find_accelerator("H100 80GB")
    )
    assert tiny.bound == "launch"
    large = predict(trace(named_workload("resnet18", micro_batch=256, precision="fp16")), CARD)
    assert large.bound in ("compute", "memory")


@settings(max_examples=25)
@given(
    bandwidth=st.floats(1e11, 1e13),
    peak=st.floats(1e13, 1e15),
    faster=st.floats(1.0, 4.0),
    which=st.booleans(),
)
def test_no_card_gets_slower_by_a_faster_part(
    taken: StepTrace, bandwidth: float, peak: float, faster: float, which: bool
) -> None:
    peaks = {"fp32": peak / 4, "fp16": peak}
    slow = Rates("card", bandwidth, peaks)
    quick = (
        replace(slow, bandwidth=bandwidth * faster)
        if which
        else replace(slow, peaks={name: value * faster for name, value in peaks.items()})
    )
    work = step_work(taken)
    assert predict(work, quick).seconds <= predict(work, slow).seconds * (1 + 1e-9)


def test_every_card_with_known_rates_is_predicted_and_the_others_say_what_is_missing(
    taken: StepTrace,
) -> None:
    work = step_work(taken)
    told = 0
    for card in accelerators():
        if not card.bandwidth_gb_s or not (card.fp16_tflops or card.fp32_tflops):
            with pytest.raises(CourseError, match=r"bandwidth|peak rate"):
                predict(work, card)
            continue
        step = predict(work, card)
        told += 1
        assert math.isfinite(step.seconds)
        assert step.low < step.seconds < step.high
        assert (card.vendor == "NVIDIA") or any("No measurement" in warning for warning in step.warnings)
    assert told >= 80


def test_the_interval_is_wider_where_less_was_measured(taken: StepTrace) -> None:
    def reach(name: str) -> float:
        step = predict(taken, find_accelerator(name))
        return step.high / step.low

    assert reach("RTX 3090") < reach("A100 40GB") < reach("MI300X")


def test_unmet_work_is_estimated_from_its_words_and_said_to_be(taken: StepTrace) -> None:
    table = find_coefficients("timm-2022")
    strange = Work("dense3_s2_odd.weight.nchw.single", "convolution", 1e12, 1e9, (1e5, 64.0, 576.0))
    share, measured = table.of(strange)
    assert not measured
    assert share.compute > 0
    assert share.memory > 0
    without = replace(table, kinds={})
    step = predict(taken, CARD, coefficients=without)
    assert any("was not calibrated" in warning for warning in step.warnings)
    assert step.seconds == pytest.approx(predict(taken, CARD, coefficients=table).seconds, rel=0.5)


def test_words_go_from_wide_to_narrow() -> None:
    found = words("dense3_s2.weight.nchw", "convolution")
    assert found[0] == "convolution"
    assert "convolution dense3" in found
    assert "convolution _s2" in found
    assert "convolution .weight" in found
    assert "convolution dense3.weight" in found


def test_the_law_by_hand() -> None:
    assert together(3.0, 4.0, 1.0) == 6.0
    assert fill((32.0, 0.0, 64.0), (32.0, 99.0, 64.0)) == 4.0
    by_group = Work("grouped_wide.forward", "grouped", 0, 1000, (50.0, 64.0, 576.0), groups=6.0)
    assert seconds(by_group, 0, 500.0, (9.0, 9.0, 9.0), (3.0, 32.0, 0.0)) == (0.0, 2.0 * 1.5 * 1.5)
    assert seconds(replace(by_group, groups=0.0), 0, 500.0, (9.0, 9.0, 9.0), (3.0, 32.0, 0.0)) == (0.0, 2.0)
    with pytest.raises(CourseError, match="bandwidth"):
        rates_of(replace(CARD, bandwidth_gb_s=None))
    with pytest.raises(CourseError, match="peak rate"):
        rates_of(replace(CARD, fp32_tflops=None, tf32_tflops=None, fp16_tflops=None)).peak("fp16")


def test_a_card_without_bf16_units_computes_in_float32() -> None:
    old = rates_of(find_accelerator("V100 16GB"))
    assert old.peak("bf16") == old.peak("fp32") < old.peak("fp16")


def test_layout_is_read_off_the_first_convolution(taken: StepTrace) -> None:
    assert keeps_channels_last(taken)
    assert not keeps_channels_last(trace(named_workload("resnet18", micro_batch=2)))


def test_an_unknown_stack_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CourseError, match="current"):
        find_coefficients("tomorrow")


def test_shares_of_the_shipped_file_are_possible() -> None:
    for stack in ("current", "timm-2022"):
        table = find_coefficients(stack)
        assert len(table.kinds) > 100
        for kind, share in table.kinds.items():
            assert 0 < share.compute < 10, kind
            assert 0 < share.memory < 4, kind
        few, narrow, _ = table.families["grouped"].group_tile
        assert 0.3 < few < 30
        assert 2 < narrow < 200
        assert coefficients_from(stack, {**_row(stack), "kinds": {}}).kinds == {}
        for low, high in table.intervals.values():
            assert 0 < low < 1 < high


def _row(stack: str) -> dict[str, object]:
    import json

    from course_lib.files import data_path

    row: dict[str, object] = json.loads(data_path("speed.json").read_text(encoding="utf-8"))["stacks"][stack]
    return row


def test_it_prints_in_a_terminal_and_in_a_notebook_and_turns_into_json(told: StepTime) -> None:
    assert "samples/s" in str(told)
    assert "RTX 3090" in str(told)
    shown = replace(told, model="<b>", warnings=("<i>",))._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "&lt;i&gt;" in shown
    plain = told.to_json()
    assert plain["step_seconds"] == told.seconds
    assert plain["samples_per_second"] == told.samples_per_second
    assert plain["bound"] in ("compute", "memory", "launch")
