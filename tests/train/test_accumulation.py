"""Windows over anything, weights that add up, and one update a window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from course_lib.errors import CourseError
from course_lib.train.accumulation import AccumulatingStep, tokens_in, windows
from course_lib.train.step import TrainingStep


def batches(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(n, 3), torch.randint(2, (n,))) for n in sizes]


@given(sizes=st.lists(st.integers(1, 9), max_size=12), k=st.integers(1, 6))
def test_windows_hold_all_batches_in_order_and_weights_are_shares(sizes: list[int], k: int) -> None:
    given_batches = [(torch.zeros(n, 1), torch.zeros(n)) for n in sizes]
    found = list(windows(iter(given_batches), k))
    assert [micro.batch for window in found for micro in window] == given_batches
    assert [len(window) for window in found] == [k] * (len(sizes) // k) + [len(sizes) % k] * (
        len(sizes) % k > 0
    )
    for window in found:
        assert sum(micro.weight for micro in window) == pytest.approx(1.0)
        assert [micro.last for micro in window] == [False] * (len(window) - 1) + [True]
        assert window.total == sum(len(micro.inputs) for micro in window)
        for micro in window:
            assert micro.weight * window.total == pytest.approx(len(micro.targets))


def test_a_generator_is_read_one_window_at_a_time() -> None:
    read: list[int] = []

    def endless():
        for number in range(10**9):
            read.append(number)
            yield torch.zeros(2, 1), torch.zeros(2)

    source = windows(endless(), 3)
    next(source)
    assert read == [0, 1, 2]


def test_tokens_that_are_ignored_do_not_count() -> None:
    ignored = torch.full((2, 3), -100)
    some = torch.tensor([[1, 2, -100], [4, -100, -100]])
    inputs = torch.zeros(2, 3)
    assert tokens_in((inputs, some)) == 3
    (window,) = windows([(inputs, some), (inputs, ignored)], 4, count=tokens_in)
    assert [micro.weight for micro in window] == [1.0]
    assert next(iter(window)).last, "the last one that counts sends the gradients"
    assert list(windows([(inputs, ignored)] * 5, 2, count=tokens_in)) == []


def test_one_update_is_that_of_the_large_batch() -> None:
    parts = batches(4, 4, 1)
    small, large = (nn.Linear(3, 2).double() for _ in range(2))
    large.load_state_dict(small.state_dict())
    doubled = [(x.double(), y) for x, y in parts]
    step = AccumulatingStep(TrainingStep(small, SGD(small.parameters(), lr=0.5)), 3)
    (window,) = step.windows(doubled)
    loss = step(window)
    whole = TrainingStep(large, SGD(large.parameters(), lr=0.5))
    expected = whole((torch.cat([x for x, _ in doubled]), torch.cat([y for _, y in doubled])))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(small.weight, large.weight, rtol=1e-12, atol=0)


def test_scheduler_and_scaler_act_once_a_window_and_not_on_an_overflow() -> None:
    model = nn.Linear(3, 2)
    optimizer = SGD(model.parameters(), lr=1.0)
    scheduler = LambdaLR(optimizer, lambda update: 1 / (1 + update))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    step = AccumulatingStep(
        TrainingStep(model, optimizer, grad_scaler=scaler, max_grad_norm=0.1), 2, scheduler=scheduler
    )
    before = model.weight.detach().clone()
    for window in step.windows(batches(4, 4, 4)):
        step(window)
    assert scheduler.last_epoch == 2
    assert (model.weight - before).norm() <= 0.1 + 0.05 + 1e-5, "clipped to 0.1 at rates 1 and 1/2"
    bad = [(torch.full((4, 3), 1e38), torch.tensor([0, 1, 0, 1]))]
    kept = model.weight.detach().clone()
    for window in step.windows(bad):
        step(window)
    assert scheduler.last_epoch == 2
    assert scaler.get_scale() == 2.0**9
    assert torch.equal(model.weight, kept)


def test_clipping_sees_the_whole_gradient() -> None:
    model = nn.Linear(3, 2)
    seen: list[float] = []
    optimizer = SGD(model.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(
        lambda *_: seen.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))
    )
    step = AccumulatingStep(TrainingStep(model, optimizer, max_grad_norm=1e-3), 4)
    for window in step.windows(batches(4, 4, 4, 4, 4)):
        step(window)
    assert seen == pytest.approx([1e-3, 1e-3], rel=1e-3)


def test_no_step_below_one() -> None:
    with pytest.raises(CourseError, match="accumulation_steps must be 1 or more"):
        next(windows([], 0))
