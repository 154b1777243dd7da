"""accelerate does parts of accumulation itself: what is wrong in plain PyTorch can be right there."""

import pytest
from torch.nn.functional import cross_entropy

from course_lib.train.equivalence import Reference, prove

accelerate = pytest.importorskip("accelerate", reason="accelerate comes with the extra [bench]")
EVEN = Reference(micro_batches=12)


def prepared(model, loader, optimizer, scheduler):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    return accelerator, *accelerator.prepare(model, loader, optimizer, scheduler)


def as_documented(model, loader, optimizer, scheduler, epochs):
    accelerator, model, loader, optimizer, scheduler = prepared(model, loader, optimizer, scheduler)
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(x), y))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


def clipping_without_a_guard(model, loader, optimizer, scheduler, epochs):
    accelerator, model, loader, optimizer, scheduler = prepared(model, loader, optimizer, scheduler)
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(cross_entropy(model(x), y))
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                scheduler.step()


def zero_grad_first(model, loader, optimizer, scheduler, epochs):
    accelerator, model, loader, optimizer, scheduler = prepared(model, loader, optimizer, scheduler)
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(cross_entropy(model(x), y))
                optimizer.step()
                scheduler.step()


def divided_by_hand_too(model, loader, optimizer, scheduler, epochs):
    accelerator, model, loader, optimizer, scheduler = prepared(model, loader, optimizer, scheduler)
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(x), y) / 4)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


def test_the_documented_loop_is_right_where_windows_come_out_even():
    proof = prove(as_documented, EVEN)
    assert proof.faults == ()
    assert proof.gradient_difference <= 1e-10


def test_it_divides_the_last_window_by_the_full_number():
    assert [fault.id for fault in prove(as_documented).faults] == ["last_window_underweighted"]


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (clipping_without_a_guard, "clip_every_micro_batch"),
        (
            zero_grad_first,
            "zero_grad_misplaced",
        ),  # it acts on the micro-batch that updates, before its backward
        (divided_by_hand_too, "loss_divided_twice"),
    ],
)
def test_false_friends_are_named(step, kind):
    assert [fault.id for fault in prove(step, EVEN).faults] == [kind]
