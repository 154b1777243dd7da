from itertools import cycle, islice
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR

from course_lib.errors import CourseError
from course_lib.train.loop import train
from course_lib.train.number_formats.scaler_life import scaler_life, too_large
from course_lib.train.step import TrainingStep


def batches(many: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    made = [(torch.rand(16, 8), torch.randint(0, 4, (16,))) for _ in range(4)]
    return list(islice(cycle(made), many))


def small_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def fp16_step(model: nn.Module, **settings: Any) -> TrainingStep:
    scaler = GradScaler("cpu", **settings)
    return TrainingStep(model, SGD(model.parameters(), lr=0.1), precision="fp16", grad_scaler=scaler)


def test_real_overflows_are_skipped_and_halve_the_scale() -> None:
    step = fp16_step(small_model(), growth_interval=10)
    life = scaler_life(step, too_large(batches(40), at={15, 30}, factor=3000.0))
    assert {15, 30} <= set(life.skipped)
    assert set(life.skipped) <= {14, 15, 16, 17, 29, 30, 31, 32}
    for before, after in zip(life.steps, life.steps[1:], strict=False):
        if before.skipped:
            assert after.scale == before.scale / 2
        else:
            assert after.scale in (before.scale, 2 * before.scale)
    first = life.steps[: life.skipped[0]]
    assert [s.scale for s in first][:11] == [65536.0] * 10 + [131072.0]  # doubled after ten good updates
    assert life.final_scale == step.grad_scaler.get_scale()  # type: ignore[union-attr]


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_update_leaves_weights_and_optimizer_as_they_were(fused: bool) -> None:
    model = small_model()
    optimizer = AdamW(model.parameters(), lr=0.1, fused=fused)
    step = TrainingStep(model, optimizer, precision="fp16")
    (good,) = batches(1)
    step(good)
    weights = [parameter.clone() for parameter in model.parameters()]
    moments = optimizer.state[model[0].weight]["exp_avg"].clone()  # type: ignore[index]
    step((good[0] * 60_000, good[1]))
    assert step.skipped
    assert all(map(torch.equal, weights, model.parameters()))
    assert torch.equal(moments, optimizer.state[model[0].weight]["exp_avg"])  # type: ignore[index]
    step(good)
    assert not step.skipped
    assert not torch.equal(weights[0], next(model.parameters()))


def test_the_scheduler_counts_only_updates_that_were_made(recwarn: pytest.WarningsRecorder) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    spoiled = list(too_large(batches(6), at={1, 4}, factor=60_000.0))
    train(model, spoiled, optimizer, epochs=1, scheduler=scheduler, precision="fp16", progress=False)
    assert scheduler.last_epoch == 4
    assert not [w for w in recwarn if "lr_scheduler.step" in str(w.message)]


def test_a_step_without_a_scaler_is_said() -> None:
    model = small_model()
    with pytest.raises(CourseError, match="no GradScaler"):
        scaler_life(TrainingStep(model, SGD(model.parameters(), lr=0.1)), batches(2))
    with pytest.raises(CourseError, match="no batch"):
        scaler_life(fp16_step(model), [])
