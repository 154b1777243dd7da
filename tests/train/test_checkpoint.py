import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR, MultiStepLR, OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from course_lib.errors import CourseError
from course_lib.train import checkpoint
from course_lib.train.data import ResumableSampler
from course_lib.train.history import History, Progress
from course_lib.train.loop import train

EPOCHS, STEPS = 3, 5  # 18 samples in batches of 4: the last one is short


class StoppedError(Exception):
    pass


class Jitter(nn.Module):
    """Draws from Python's and NumPy's random numbers too, as careless code does."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + 0.1 * random.random() + 0.1 * np.random.rand()


def run(
    path: Path, *, stop_at: int = -1, resume: bool = False, workers: int = 0
) -> tuple[History, list[Tensor]]:
    """A run with all that makes resuming hard; the callback of step `stop_at` ends it."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(7)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), Jitter(), nn.Linear(16, 3))
    optimizer = AdamW(model.parameters(), lr=0.01)
    images = torch.rand(18, 4)
    data = TensorDataset(images, torch.arange(18) % 3)
    loader = DataLoader(data, 4, sampler=ResumableSampler(data, seed=5), num_workers=workers)
    calls = 0

    def end(progress: Progress) -> None:
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise StoppedError

    if resume and path.exists():  # a new process does not stand where the old one stood
        random.random(), np.random.rand(), torch.rand(2)
    history = train(
        model,
        loader,
        optimizer,
        epochs=EPOCHS,
        scheduler=OneCycleLR(optimizer, 0.05, total_steps=EPOCHS * STEPS),
        test_loader=DataLoader(data, 7),
        callback=end,
        callback_every=1,
        checkpoint=path,
        checkpoint_every=2,
        resume=resume,
        progress=False,
    )
    return history, list(model.state_dict().values())


def same(one: tuple[History, list[Tensor]], other: tuple[History, list[Tensor]]) -> bool:
    results = [
        [(epoch.epoch, epoch.train_loss, epoch.test) for epoch in history.epochs]
        for history, _ in (one, other)
    ]
    weights = all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    return weights and results[0] == results[1]


@pytest.mark.parametrize("stop_at", range(1, EPOCHS * (STEPS + 1) + 1))
def test_a_run_stopped_anywhere_goes_on_to_the_same_end(stop_at: int, tmp_path: Path) -> None:
    undisturbed = run(tmp_path / "whole.pt")
    with pytest.raises(StoppedError):
        run(tmp_path / "run.pt", stop_at=stop_at)
    assert same(run(tmp_path / "run.pt", resume=True), undisturbed)


def test_with_workers_too(tmp_path: Path) -> None:
    undisturbed = run(tmp_path / "whole.pt")
    with pytest.raises(StoppedError):
        run(tmp_path / "run.pt", stop_at=9, workers=1)
    assert same(run(tmp_path / "run.pt", resume=True, workers=1), undisturbed)


@pytest.mark.parametrize("lost", ["python", "numpy", "torch"])
def test_each_random_state_matters(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = run(tmp_path / "whole.pt")
    with pytest.raises(StoppedError):
        run(tmp_path / "run.pt", stop_at=9)
    whole = checkpoint.set_random_state
    monkeypatch.setattr(
        checkpoint, "set_random_state", lambda state: whole(state | {lost: checkpoint.random_state()[lost]})
    )
    assert not same(run(tmp_path / "run.pt", resume=True), undisturbed)


def parts(width: int = 4) -> dict[str, Any]:
    model = nn.Linear(width, 2)
    return {"model": model, "optimizer": SGD(model.parameters(), lr=0.1, momentum=0.9)}


def saved_twice(path: Path) -> tuple[Tensor, Tensor]:
    """Two checkpoints one after the other; returns the older and the newer weight."""
    older, newer = parts(), parts()
    checkpoint.save(path, **older, position={"step": 1})
    checkpoint.save(path, **newer, position={"step": 2})
    return older["model"].weight, newer["model"].weight


def test_the_newest_is_read_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.pt"
    older, newer = saved_twice(path)
    read = parts()
    loaded = checkpoint.load(path, **read)
    assert (loaded.position, loaded.source) == ({"step": 2}, path)
    assert torch.equal(read["model"].weight, newer)
    checkpoint.load(checkpoint.previous(path), **read)
    assert torch.equal(read["model"].weight, older)
    assert sorted(file.name for file in path.parent.iterdir()) == ["run.pt", "run.pt.previous"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_bit_of_the_weights(path: Path) -> None:
    weights = parts()["model"]
    weights.load_state_dict(torch.load(path, weights_only=True)["model"])
    bytes_of_them = weights.weight.detach().numpy().tobytes()
    data = bytearray(path.read_bytes())
    place = data.find(bytes_of_them)
    assert place > 0
    data[place] ^= 1
    path.write_bytes(data)


class Bomb:
    """Unpickling this makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def put_a_pickle_there(path: Path) -> None:
    torch.save({"format": 1, "model": Bomb(path.with_name("went off"))}, path)


def other_data(path: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, path)


DAMAGES = [cut, empty, flip_a_bit_of_the_weights, put_a_pickle_there, other_data]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    older, _ = saved_twice(path)
    damage(path)
    read = parts()
    with pytest.warns(UserWarning, match="the one before it was used"):
        loaded = checkpoint.load(path, **read)
    assert loaded.position == {"step": 1}
    assert torch.equal(read["model"].weight, older)
    damage(checkpoint.previous(path))
    with pytest.raises(CourseError, match="start again without resuming"):
        checkpoint.load(path, **read)
    assert not (tmp_path / "went off").exists()


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    saved_twice(path)
    path.replace(checkpoint.previous(path))  # what stands there at that moment
    assert checkpoint.exists(path)
    with pytest.warns(UserWarning, match="is missing"):
        assert checkpoint.load(path, **parts()).position == {"step": 2}


def test_a_half_written_file_is_never_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.pt"
    _, newer = saved_twice(path)

    def die(state: Any, file: Any) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", die)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(path, **parts(), position={"step": 3})
    monkeypatch.undo()
    read = parts()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint.load(path, **read).position == {"step": 2}
    assert torch.equal(read["model"].weight, newer)
    checkpoint.save(path, **read, position={"step": 3})  # the rest of the dead one is no hindrance
    assert checkpoint.load(path, **read).position == {"step": 3}


def test_what_does_not_fit_together_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    with pytest.raises(CourseError, match="no checkpoint"):
        checkpoint.load(path, **parts())
    checkpoint.save(path, **parts(), position={})
    with pytest.raises(CourseError, match="different model or optimizer"):
        checkpoint.load(path, **parts(width=5))
    other = parts()
    with pytest.raises(CourseError, match="scheduler"):
        checkpoint.load(path, **other, scheduler=OneCycleLR(other["optimizer"], 0.1, total_steps=5))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with pytest.raises(CourseError, match="cannot be written"):
        checkpoint.save(tmp_path / "file" / "run.pt", **parts(), position={})


def test_a_state_that_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    class Halve:
        def __init__(self) -> None:
            self.factor = 0.5

        def __call__(self, epoch: int) -> float:
            return self.factor**epoch

    some = parts()
    some["scheduler"] = LambdaLR(some["optimizer"], Halve())
    checkpoint.save(tmp_path / "plain.pt", **some, position={})
    checkpoint.load(tmp_path / "plain.pt", **some)
    steps = parts()
    steps["scheduler"] = MultiStepLR(steps["optimizer"], milestones=[2, 2, 5])
    checkpoint.save(tmp_path / "plain.pt", **steps, position={"nested": [(1, None, "a")]})
    assert checkpoint.load(tmp_path / "plain.pt", **steps).position == {"nested": [(1, None, "a")]}
    for wrong in (Halve(), np.float64(1), {1, 2}, b"bytes"):
        with pytest.raises(CourseError, match=f"plain data only, and rule holds a {type(wrong).__name__}"):
            checkpoint.save(tmp_path / "run.pt", **parts(), position={"rule": wrong})
    assert not (tmp_path / "run.pt").exists()


def test_resuming_with_other_data_is_refused(tmp_path: Path) -> None:
    data = TensorDataset(torch.rand(30, 4), torch.arange(30) % 3)
    loader = DataLoader(data, 4, sampler=ResumableSampler(data, seed=5))
    model = nn.Linear(4, 3)
    optimizer = SGD(model.parameters(), lr=0.1)
    train(model, loader, optimizer, epochs=1, checkpoint=tmp_path / "a.pt", progress=False)
    shorter = DataLoader(data, 8, sampler=ResumableSampler(data, seed=5))
    with pytest.raises(CourseError, match=r"30 samples in batches of 4, seed 5; .* batches of 8"):
        train(model, shorter, optimizer, epochs=2, checkpoint=tmp_path / "a.pt", resume=True, progress=False)


def test_a_loader_left_in_the_middle_of_an_epoch_starts_afresh() -> None:
    data = TensorDataset(torch.rand(12, 4), torch.arange(12) % 3)
    sampler = ResumableSampler(data)
    sampler.set_epoch(3, start=8)
    heard: list[Progress] = []
    model = nn.Linear(4, 3)
    loader = DataLoader(data, 4, sampler=sampler)
    train(
        model, loader, SGD(model.parameters(), lr=0.1), epochs=1, callback=heard.append, callback_every=1,
        progress=False,
    )  # fmt: skip
    assert [(progress.step, progress.steps_per_epoch) for progress in heard] == [
        (1, 3),
        (2, 3),
        (3, 3),
        (3, 3),
    ]


def test_the_random_state_is_plain_data_and_comes_back(tmp_path: Path) -> None:
    state = checkpoint.random_state()
    expected = (random.random(), np.random.rand(), float(torch.rand(())))
    torch.save(state, tmp_path / "state")
    checkpoint.set_random_state(torch.load(tmp_path / "state", weights_only=True))
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == expected
