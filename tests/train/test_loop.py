import json
import math
import signal
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.train.data import Digits, ResumableSampler
from course_lib.train.history import Evaluation, History, Progress
from course_lib.train.loop import evaluate, measure_split, train
from course_lib.train.timing import StepTimer


def small(samples: int = 20, batch_size: int = 8) -> tuple[nn.Module, DataLoader[Any]]:
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.rand(samples, 4), torch.arange(samples) % 3), batch_size)
    return nn.Linear(4, 3), loader


def test_the_small_cnn_reads_97_percent_of_the_digits() -> None:
    torch.manual_seed(0)
    model = DigitsCNN()
    history = train(
        model,
        DataLoader(Digits("train"), 64, shuffle=True),
        AdamW(model.parameters(), lr=3e-3),
        epochs=4,
        test_loader=DataLoader(Digits("test"), 128),
        progress=False,
    )
    assert history.test_accuracies[-1] >= 0.97
    assert history.train_losses == sorted(history.train_losses, reverse=True)
    assert history.epochs[-1].test == evaluate(model, DataLoader(Digits("test"), 128))


def test_training_equals_the_loop_written_by_hand() -> None:
    model, loader = small()
    hand, _ = small()
    optimizer = SGD(hand.parameters(), lr=0.5)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    losses = []
    for _ in range(2):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = cross_entropy(hand(inputs), targets)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(targets)
        losses.append(total / 20)
    mine = SGD(model.parameters(), lr=0.5)
    history = train(
        model, loader, mine, epochs=2, scheduler=StepLR(mine, step_size=2, gamma=0.5), progress=False
    )
    assert history.train_losses == pytest.approx(losses, rel=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), hand.parameters(), strict=True))
    assert mine.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@given(st.integers(1, 40), st.integers(1, 17))
def test_evaluation_counts_every_sample_once_in_any_batches(samples: int, batch_size: int) -> None:
    model, loader = small(samples, batch_size)
    inputs, targets = loader.dataset.tensors
    result = evaluate(model, loader)
    assert result.samples == samples
    assert result.loss == pytest.approx(cross_entropy(model(inputs), targets).item(), rel=1e-5)
    assert result.accuracy == pytest.approx(float((model(inputs).argmax(1) == targets).double().mean()))


def test_evaluation_leaves_the_model_as_it_found_it() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    _, loader = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert evaluate(model, loader) == evaluate(model, loader)  # no dropout in a test
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.eval()
    evaluate(model, loader)
    assert not model.training


def test_the_callback_hears_every_second_step_and_the_end_of_each_epoch() -> None:
    model, loader = small()
    heard: list[Progress] = []
    optimizer = SGD(model.parameters(), lr=0.1)
    history = train(
        model, loader, optimizer, epochs=2, test_loader=loader, callback=heard.append, callback_every=2,
        progress=False,
    )  # fmt: skip
    assert [(p.epoch, p.step, len(p.epochs)) for p in heard] == [(1, 2, 0), (1, 3, 1), (2, 2, 1), (2, 3, 2)]
    assert heard[-1].epochs == history.epochs
    assert all(p.steps_per_epoch == 3 and math.isfinite(p.loss) for p in heard)


class Flaky(nn.Linear):
    """At one call, does something."""

    def __init__(self, at: int, act: Any) -> None:
        super().__init__(4, 3)
        self.calls, self.at, self.act = 0, at, act

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        outputs = super().forward(inputs)
        return self.act(outputs) if self.calls == self.at else outputs


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_with_the_place(value: float) -> None:
    model = Flaky(5, lambda outputs: outputs * value)
    with pytest.raises(CourseError, match=r"epoch 2 at step 2: lower the learning rate \(it is 0.25\)"):
        train(model, small()[1], SGD(model.parameters(), lr=0.25), epochs=3, progress=False)


def interrupt(outputs: Tensor) -> Tensor:
    signal.raise_signal(signal.SIGINT)  # what Ctrl-C and a notebook's stop button send
    return outputs


def test_ctrl_c_returns_the_complete_epochs_and_a_usable_model() -> None:
    _, loader = small()
    model = Flaky(8, interrupt)
    model.eval()
    history = train(
        model, loader, SGD(model.parameters(), lr=0.1), epochs=5, test_loader=None, progress=False
    )
    assert len(history.epochs) == 2
    assert history.stopped == "interrupted in epoch 3 after step 1"
    assert "interrupted in epoch 3" in str(history)
    assert not model.training  # as it was before
    assert math.isfinite(evaluate(model, loader).loss)


def test_the_weights_do_not_depend_on_the_workers() -> None:
    ends = []
    for settings_of_loader in ({}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        data = TensorDataset(torch.rand(20, 4), torch.arange(20) % 3)
        loader = DataLoader(data, 8, sampler=ResumableSampler(data), **settings_of_loader)
        history = train(model, loader, SGD(model.parameters(), lr=0.1), epochs=3, progress=False)
        ends.append((history.train_losses, model[0].weight.tolist()))
    assert ends[0] == ends[1] == ends[2]


def test_a_timer_goes_through_the_run() -> None:
    model, loader = small(40, 8)
    timer = StepTimer(warmup=2)
    train(model, loader, SGD(model.parameters(), lr=0.1), epochs=2, timer=timer, progress=False)
    split = timer.split()
    assert (split.steps, split.samples) == (8, 64)
    assert all(split.seconds[phase] > 0 for phase in ("data", "transfer", "forward", "backward", "optimizer"))


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Any:
        for label in range(10):
            yield torch.rand(4), torch.tensor(label % 3)


def test_a_stream_without_length_is_trained_on() -> None:
    model, _ = small()
    history = train(
        model, DataLoader(Endless(), 4), SGD(model.parameters(), lr=0.1), epochs=2, progress=False
    )
    assert len(history.epochs) == 2


class Broken(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 6:
            raise CourseError("The picture 6.jpg is damaged: delete it.")
        return torch.rand(4), 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fault_in_a_worker_is_told_in_its_own_sentence(workers: int) -> None:
    model, _ = small()
    loader = DataLoader(Broken(), 4, num_workers=workers)
    with pytest.raises(CourseError) as told:
        train(model, loader, SGD(model.parameters(), lr=0.1), epochs=1, progress=False)
    assert str(told.value) == "The picture 6.jpg is damaged: delete it."


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epochs": 0}, "epochs must be 1"),
        ({"callback_every": 0}, "callback_every must be 1"),
        ({"checkpoint_every": 5}, "needs a checkpoint"),
        ({"resume": True}, "needs a checkpoint"),
        ({"checkpoint": "run.pt"}, "ResumableSampler"),
        ({"checkpoint": "run.pt", "checkpoint_every": 0}, "1 step or more"),
    ],
)
def test_settings_that_cannot_be_used_are_said(wrong: dict[str, Any], said: str) -> None:
    model, loader = small()
    with pytest.raises(CourseError, match=said):
        train(model, loader, SGD(model.parameters(), lr=0.1), **({"epochs": 1} | wrong))


def test_an_empty_loader_is_said() -> None:
    model, _ = small()
    empty: list[Any] = []
    with pytest.raises(CourseError, match="no batch"):
        train(model, empty, SGD(model.parameters(), lr=0.1), epochs=1, progress=False)
    with pytest.raises(CourseError, match="no sample"):
        evaluate(model, empty)
    with pytest.raises(CourseError, match="no batch"):
        measure_split(empty, model)


def test_measuring_leaves_the_model_alone_and_starts_a_short_loader_again() -> None:
    model, loader = small(20, 8)
    before = [parameter.clone() for parameter in model.parameters()]
    told: list[tuple[int, int]] = []
    split = measure_split(loader, model, steps=5, warmup=2, progress=lambda done, of: told.append((done, of)))
    assert (split.steps, split.warmup, split.samples) == (5, 2, 8 + 8 + 4 + 8 + 4 + 0)
    assert told == [(number, 7) for number in range(1, 8)]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_measuring_keeps_to_its_budget_but_measures_one_step() -> None:
    model, loader = small()
    assert measure_split(loader, model, steps=50, warmup=2, budget_s=0).steps == 1
    with pytest.raises(CourseError, match="one step"):
        measure_split(loader, model, steps=0)


def test_the_history_prints_and_turns_into_json() -> None:
    model, loader = small()
    history = train(
        model, loader, SGD(model.parameters(), lr=0.1), epochs=2, test_loader=loader, progress=False
    )
    told = json.loads(history.to_json())
    assert [epoch["epoch"] for epoch in told["epochs"]] == [1, 2]
    assert told["epochs"][1]["test"]["samples"] == 20
    assert str(history).count("\n") == 3
    assert history._repr_html_().count("<tr>") == 3
    assert "&lt;" in History((), "a < b")._repr_html_()
    assert str(Evaluation(0.1234, 0.975, 355)) == "accuracy 97.5 %, loss 0.123, on 355 samples"
    assert history.test_losses[-1] == history.epochs[-1].test.loss


def test_the_bar_is_quiet_when_asked(capfd: pytest.CaptureFixture[str]) -> None:
    model, loader = small()
    train(model, loader, SGD(model.parameters(), lr=0.1), epochs=1, progress=False)
    assert capfd.readouterr() == ("", "")
    train(model, loader, SGD(model.parameters(), lr=0.1), epochs=1)
    assert "training" in capfd.readouterr().err


BATCH = (torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("model", "loader", "sentence"),
    [
        (None, [BATCH], "must be a torch.nn.Module"),
        (torch.nn.Linear, [BATCH], "add parentheses"),
        (torch.nn.Flatten(), [BATCH], "no parameter that can be trained"),
        (torch.nn.Linear(10, 10), [BATCH], r"inputs of shape \(4, 1, 8, 8\)"),
        (DigitsCNN(num_classes=2), [(BATCH[0], BATCH[1] + 7)], "do not fit together"),
        (torch.nn.LSTM(8, 8), [(torch.zeros(4, 3, 8), BATCH[1])], "do not fit together"),
        (DigitsCNN(), None, "must give batches"),
        (DigitsCNN(), [{"pixels": BATCH[0], "label": BATCH[1]}], "a dict with 'pixels', 'label'"),
        (DigitsCNN(), [7], "one thing of type int"),
        (DigitsCNN(), iter([BATCH, BATCH]), "gave 2 batches and cannot be started again"),
        (DigitsCNN(), [], "gave no batch"),
    ],
)
def test_what_cannot_be_measured_is_told_in_one_sentence(model: Any, loader: Any, sentence: str) -> None:
    with pytest.raises(CourseError, match=sentence):
        measure_split(loader, model, steps=4, warmup=0)
