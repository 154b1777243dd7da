"""The search for the largest batch on a real card, made small by `small_card`."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from course_lib.models.checkpointing import BlockSaving, block_names, checkpoint_blocks
from course_lib.models.zoo import build
from course_lib.train.limits.small_card import small_card
from course_lib.train.rescue import find_batch_size
from course_lib.train.rescue.batch_size_result import BatchSizeSearch
from course_lib.train.rescue.memory_meter import meter_for
from course_lib.train.step import TrainingStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card"),
]

SMALL_CARD = 2 * 2**30


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    gc.collect()
    with small_card(SMALL_CARD):
        yield


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(size, 3, 96, 96), torch.zeros(size, dtype=torch.int64)


def training() -> tuple[nn.Module, torch.optim.Optimizer, TrainingStep]:
    model = build("resnet18", num_classes=10).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, TrainingStep(model, optimizer)


def train_three_steps(size: int) -> None:
    _, _, step = training()
    for _ in range(3):
        step(batch(size))
    torch.cuda.synchronize()


def search(*, checkpointed: bool = False) -> BatchSizeSearch:
    model, optimizer, step = training()
    if checkpointed:
        checkpoint_blocks(model, [BlockSaving(name, 1, 1.0) for name in block_names(model)])
    return find_batch_size(step, batch, device="cuda", restore=(model, optimizer))


def test_the_meter_knows_the_limit_of_the_process() -> None:
    assert meter_for("cuda").limit() == pytest.approx(SMALL_CARD, rel=0.01)


def test_the_largest_batch_is_found_and_trains() -> None:
    found = search()
    assert len(found.trials) <= 6
    assert found.ooms <= 1
    train_three_steps(found.batch_size)
    with pytest.raises(torch.OutOfMemoryError):
        train_three_steps(round(1.25 * found.batch_size))


def test_a_failed_trial_leaves_nothing_on_the_card() -> None:
    _, _, step = training()
    step(batch(4))
    gc.collect()
    before = torch.cuda.memory_allocated()
    found = find_batch_size(step, batch, device="cuda", start=4096)
    assert found.ooms >= 1
    step(batch(4))
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + 2**20


def test_checkpointing_makes_room() -> None:
    assert search(checkpointed=True).batch_size > 1.2 * search().batch_size
