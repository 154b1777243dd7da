"""Remedies say what a plan of the changed step says, and are ranked by what they cost."""

import json
from dataclasses import replace

import pytest
import torch

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.models.gpt import GPT, GPTConfig
from course_lib.plan.batch_size import plan_workload
from course_lib.plan.memory import plan_memory
from course_lib.plan.model_names import named_workload
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.remedies import remedies
from course_lib.plan.remedy_list import Remedies, Remedy
from course_lib.plan.remedy_words import WORDS
from course_lib.plan.tracer import trace
from course_lib.plan.workload import Batch, Workload, default_loss


def card_of(mib: int) -> Accelerator:
    return replace(find_accelerator("RTX 3090"), name="a small card", usable_mib=mib)


def gpt(micro_batch: int = 64) -> Workload:
    config = GPTConfig(vocabulary=512, context=128, layers=2, heads=4, width=256)

    def batch(size: int) -> Batch:
        tokens = torch.empty(size, config.context, dtype=torch.long)
        return Batch((tokens,), target=torch.empty(size, config.context, dtype=torch.long))

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return default_loss(output.flatten(0, 1), target.flatten())

    return Workload("gpt", lambda: GPT(config), batch, loss, micro_batch, optimizer_rule("adamw"))


@pytest.fixture(scope="module")
def text() -> Remedies:
    return remedies(gpt(), card_of(700))


@pytest.fixture(scope="module")
def images() -> Remedies:
    return remedies(named_workload("cnn", micro_batch=20_000), find_accelerator("T4"))


def found(answer: Remedies, start: str) -> Remedy:
    return next(remedy for remedy in answer.ranked if remedy.name.startswith(start))


def test_a_remedy_says_what_the_plan_of_the_changed_step_says(text: Remedies) -> None:
    card, work = card_of(700), gpt()
    for name, changed in {
        "bf16 + checkpointing": replace(work, precision="bf16", checkpointing=True),
        "bf16": replace(work, precision="bf16"),
    }.items():
        remedy = text.named(name)
        assert remedy is not None, name
        plan = plan_workload(changed, card)
        assert (remedy.total, remedy.safe) == (plan.total, plan.safe), name


def test_the_first_fits_and_is_the_cheapest_that_does(text: Remedies) -> None:
    assert text.needed
    assert text.first == text.ranked[0]
    fitting = [remedy for remedy in text.ranked if remedy.fits]
    assert fitting
    assert list(text.ranked[: len(fitting)]) == fitting
    assert [r.price for r in fitting] == sorted(r.price for r in fitting)
    assert str(text).startswith(f"First: {text.first.name}")


def test_accumulation_keeps_the_global_batch_and_takes_the_largest_part_that_fits(text: Remedies) -> None:
    remedy = next(r for r in text.ranked if r.parts[0].startswith("accumulate") and len(r.parts) == 1)
    times, size = map(int, remedy.name.removeprefix("accumulate ").split(" x "))
    assert times * size == 64
    assert remedy.fits
    twice = plan_workload(replace(gpt(2 * size), accumulate=times // 2), card_of(700))
    assert not twice.fits
    assert remedy.effect == "none"  # a transformer has no BatchNorm


def test_checkpointing_is_paid_with_up_to_a_third_more_work(text: Remedies) -> None:
    checkpointed, half = text.named("checkpointing"), text.named("bf16")
    assert checkpointed is not None
    assert half is not None
    assert 0.2 < checkpointed.extra_work < 0.34
    assert half.extra_work == pytest.approx(0, abs=0.01)


def test_batch_norm_is_named_where_there_is_one(images: Remedies) -> None:
    accumulated = found(images, "accumulate")
    assert accumulated.effect == "statistics"
    assert "BatchNorm" in accumulated.changes
    assert any("checkpointing" in line and "saves nothing" in line for line in images.left_out)
    assert found(images, "fp16").parts == ("fp16",)  # a T4 does not multiply bf16


def test_separable_convolutions_save_work_and_are_another_model(images: Remedies) -> None:
    remedy = found(images, "separable")
    assert remedy.extra_work < -0.5
    assert remedy.effect == "model"


def test_what_saves_nothing_is_left_out_and_said(images: Remedies) -> None:
    assert all(remedy.total < images.now.total for remedy in images.ranked)
    assert any("sgd-plain" in line for line in images.left_out)


def test_a_step_that_fits_needs_no_remedy_and_still_hears_what_would_save() -> None:
    answer = remedies(named_workload("cnn"), find_accelerator("RTX 3090"))
    assert not answer.needed
    assert answer.first is None
    assert "no remedy is needed" in str(answer)
    assert not any(remedy.name.startswith("batch") for remedy in answer.ranked)


def test_where_nothing_fits_none_is_named_first() -> None:
    answer = remedies(gpt(1), card_of(530))
    assert answer.needed
    assert answer.first is None
    assert "Nothing here is enough" in answer.answer
    totals = [remedy.safe for remedy in answer.ranked]
    assert totals == sorted(totals)


def test_reckoned_remedies_say_so(text: Remedies) -> None:
    reckoned = {remedy.name for remedy in text.ranked if remedy.origin == "reckoned"}
    assert reckoned
    assert all(WORDS[name].reckoned for name in reckoned)
    assert str(text).count("(reckoned)") == len(reckoned)


def test_all_of_it_is_plain_data_and_html_is_escaped(text: Remedies) -> None:
    data = json.loads(json.dumps(text.to_json()))
    assert [one["name"] for one in data["remedies"]] == [r.name for r in text.ranked]
    assert data["first"] == text.first.name  # type: ignore[union-attr]
    evil = replace(text, left_out=("<script>",))
    assert "&lt;script&gt;" in evil._repr_html_()


def test_one_parameter_after_the_other_needs_the_temporaries_of_the_largest_only() -> None:
    taken = trace(gpt(1))
    together = optimizer_rule("adagrad")
    one_by_one = replace(together, foreach=False)
    sizes = [block.nbytes for block in taken.gradients]
    assert together.temporary_bytes(sizes) == 2 * sum(sizes)
    assert one_by_one.temporary_bytes(sizes) == 2 * max(sizes)
    card = find_accelerator("T4")
    peaks = [plan_memory(taken, card, optimizer=rule).timeline for rule in (together, one_by_one)]
    assert peaks[0].phase == "optimizer"
    assert peaks[1].peak_bytes < peaks[0].peak_bytes
