import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.train.number_formats import format_times as module
from course_lib.train.number_formats.format_times import formats_of, time_formats, time_steps
from course_lib.train.precision import Precision
from course_lib.train.saved_memory import saved_bytes

SLEEPS = {"fp32": 4, "bf16": 1, "fp16": 12}
"""How often a step of this format sleeps for a millisecond: one that is woken late is so in proportion."""


def sleeper(precision: Precision) -> Callable[[], object]:
    def step() -> None:
        for _ in range(SLEEPS[precision.format]):
            time.sleep(0.001)

    return step


def test_the_ratios_are_those_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "matmul_speedups", lambda device: {"bf16": 4.0, "fp16": 0.5})
    found = time_formats("sleeping", sleeper, rounds=8)
    assert list(found.times) == ["fp32", "bf16", "fp16"]
    assert found.times["fp32"].speedup == 1
    bf16, fp16 = found.times["bf16"], found.times["fp16"]
    assert bf16.speedup > 1.5  # type: ignore[operator]
    assert fp16.speedup < 0.7  # type: ignore[operator]
    assert bf16.low <= bf16.speedup <= bf16.high  # type: ignore[operator]


def test_what_would_take_too_long_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "matmul_speedups", lambda device: {"bf16": 4.0, "fp16": 0.001})
    run: list[str] = []

    def make(precision: Precision) -> Callable[[], object]:
        return lambda: run.append(precision.format) or time.sleep(0.002)  # type: ignore[func-returns-value]

    found = time_formats("work", make, budget_s=0.1)
    assert "fp16" not in run
    slow = found.times["fp16"]
    assert slow.speedup is None
    assert slow.seconds > 1
    assert "not run" in slow.note
    assert "not run" in str(found)
    assert found.to_json()["times"]["fp16"]["rounds"] == 0


def test_a_real_step_is_timed_and_the_model_left_alone() -> None:
    model = nn.Linear(64, 10)
    before = model.weight.clone()
    batch = torch.rand(4, 64), torch.randint(0, 10, (4,))
    found = time_steps(model, batch, rounds=3, budget_s=1.0)
    assert {name for name, one in found.times.items() if one.rounds} >= {"fp32", "bf16"}
    assert torch.equal(model.weight, before)


def test_formats_and_nonsense() -> None:
    assert formats_of("cpu") == ("fp32", "bf16", "fp16")
    assert formats_of("cuda") == ("fp32", "tf32", "bf16", "fp16")
    with pytest.raises(CourseError, match="nothing to measure"):
        time_formats("nothing", sleeper, budget_s=0)


def test_saved_bytes_are_those_of_a_layer_counted_by_hand() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid())
    batch = torch.rand(4, 8), torch.rand(4, 16)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).sum()

    assert saved_bytes(model, batch, "fp32", loss) == 4 * 16 * 4  # the sigmoid's output; the rest is there
    # bf16: the sigmoid's output and a short copy of the inputs; nobody asks for the gradient of the inputs
    assert saved_bytes(model, batch, "bf16", loss) == 2 * (4 * 16 + 4 * 8)
    assert saved_bytes(nn.Sequential(nn.Linear(8, 8), model), batch, "fp32", loss) == 4 * (4 * 16 + 4 * 8)
    two = nn.Sequential(nn.Linear(8, 8), model)  # here the second layer's weights are needed, in a copy
    assert saved_bytes(two, batch, "bf16", loss) == 2 * (4 * 16 + 4 * 8 + 4 * 8 + 8 * 16)


def test_bf16_keeps_about_half_for_the_course_network() -> None:
    batch = torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,))
    assert 0.45 < saved_bytes(DigitsCNN(), batch, "bf16") / saved_bytes(DigitsCNN(), batch) < 0.7
