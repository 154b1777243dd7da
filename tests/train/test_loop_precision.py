"""Whole runs in a format: tested in the same one, resumed with the scaler, explained when they break."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from course_lib.errors import CourseError
from course_lib.train import checkpoint
from course_lib.train.data import ResumableSampler
from course_lib.train.loop import evaluate, measure_split, train


def parts(seed: int = 0) -> tuple[nn.Module, SGD, DataLoader[Any]]:
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(48, 6), torch.randint(0, 3, (48,)))
    loader: DataLoader[Any] = DataLoader(data, batch_size=8, sampler=ResumableSampler(data))
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    return model, SGD(model.parameters(), lr=0.1, momentum=0.9), loader


def test_a_run_in_fp16_goes_on_with_its_scale(tmp_path: Path) -> None:
    """Without the scaler's state the resumed run would begin at 65536, where updates are skipped."""
    path = tmp_path / "run.ckpt"

    def large_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 1e3 * nn.functional.cross_entropy(output.float(), target)

    settings: dict[str, Any] = {
        "loss_fn": large_loss, "precision": "fp16", "max_grad_norm": 1.0, "progress": False,
    }  # fmt: skip

    whole, optimizer, loader = parts()
    train(whole, loader, optimizer, epochs=2, **settings)
    model, optimizer, loader = parts()
    train(model, loader, optimizer, epochs=1, checkpoint=path, **settings)
    saved = torch.load(path, weights_only=True)["grad_scaler"]
    assert saved["scale"] < 65536.0
    again, optimizer, loader = parts(seed=1)
    train(again, loader, optimizer, epochs=2, checkpoint=path, resume=True, **settings)
    assert all(map(torch.equal, whole.parameters(), again.parameters()))
    assert torch.load(path, weights_only=True)["grad_scaler"]["_growth_tracker"] > saved["_growth_tracker"]


def test_a_checkpoint_with_a_scaler_is_not_taken_for_a_run_without(tmp_path: Path) -> None:
    model, optimizer, _ = parts()
    scaler = torch.amp.GradScaler("cpu")
    checkpoint.save(tmp_path / "a", model=model, optimizer=optimizer, grad_scaler=scaler, position={})
    with pytest.raises(CourseError, match="has a gradient scaler"):
        checkpoint.load(tmp_path / "a", model=model, optimizer=optimizer)
    checkpoint.save(tmp_path / "b", model=model, optimizer=optimizer, position={})
    with pytest.raises(CourseError, match="has no gradient scaler"):
        checkpoint.load(tmp_path / "b", model=model, optimizer=optimizer, grad_scaler=scaler)


def test_training_and_test_run_in_the_format() -> None:
    model, optimizer, loader = parts()
    seen: dict[bool, set[torch.dtype]] = {True: set(), False: set()}
    model.register_forward_hook(lambda module, inputs, output: seen[module.training].add(output.dtype))
    train(model, loader, optimizer, epochs=1, test_loader=loader, precision="bf16", progress=False)
    assert seen == {True: {torch.bfloat16}, False: {torch.bfloat16}}
    evaluate(model, loader)
    assert seen[False] == {torch.bfloat16, torch.float32}


def test_a_split_is_measured_in_the_format() -> None:
    model, _, loader = parts()
    dtypes = set()
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: dtypes.add(output.dtype)
    )
    try:
        measure_split(loader, model, steps=2, warmup=0, precision="bf16")
    finally:
        handle.remove()
    assert dtypes == {torch.bfloat16}


def test_an_overflow_in_the_forward_pass_of_fp16_is_explained() -> None:
    model, optimizer, _ = parts()
    batch = torch.full((8, 6), 1e6), torch.zeros(8, dtype=torch.int64)
    with pytest.raises(CourseError, match=r"in fp16 a number above 65,504 is infinite.*bf16"):
        train(model, [batch], optimizer, epochs=1, precision="fp16", progress=False)
