import math
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.train import precision as precision_module
from course_lib.train.number_formats.float32_products import float32_products
from course_lib.train.number_formats.format_speed import matmul_speedups
from course_lib.train.precision import Precision, choose, peak_speedups, precision_for


@pytest.mark.parametrize(
    ("speedups", "chosen"),
    [
        ({"bf16": 4.3, "fp16": 0.02}, "bf16"),  # a processor with circuits for bf16
        ({"bf16": 0.6, "fp16": 0.02}, "fp32"),  # one without
        ({"bf16": 0.3, "fp16": 5.0}, "fp16"),  # a T4, which emulates bf16
        ({"tf32": 4.0, "bf16": 8.0, "fp16": 8.2}, "bf16"),  # nearly as fast as fp16, and no scaling
        ({"tf32": 4.0, "bf16": 5.0, "fp16": 9.0}, "fp16"),
        ({"tf32": 4.0, "bf16": 1.0, "fp16": 1.0}, "tf32"),
        ({"bf16": 1.1, "fp16": 1.1}, "fp32"),  # not worthwhile
        ({}, "fp32"),
    ],
)
def test_the_choice_goes_by_speed(speedups: Any, chosen: str) -> None:
    choice = choose("cuda", speedups)
    assert choice.format == chosen
    assert dict(choice.speedups) == speedups


def test_what_can_be_held_but_is_slow_is_said_with_its_ratio() -> None:
    told = str(choose("cuda", {"bf16": 0.25, "fp16": 5.0}))
    assert "bf16 can be held here but is 4 times as slow as fp32" in told
    assert "a matrix product in fp16 is 5 times as fast as fp32 (as given)" in told
    assert "GradScaler" in told


@pytest.mark.parametrize(("card", "chosen"), [("T4", "fp16"), ("V100 16GB", "fp16"), ("RTX 3090", "bf16")])
def test_cards_of_the_catalogue(card: str, chosen: str) -> None:
    choice = choose("cuda", peak_speedups(find_accelerator(card)))
    assert choice.format == chosen
    assert ("no fast circuits for bf16 are known" in choice.reason) == (chosen == "fp16")


def test_this_device_is_measured_and_the_choice_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = matmul_speedups("cpu")
    assert set(measured) == {"bf16", "fp16"}
    assert all(0 < speedup < math.inf for speedup in measured.values())
    assert choose("cpu") == choose("cpu", measured)
    monkeypatch.setattr(precision_module, "matmul_speedups", lambda device: {"bf16": 0.5, "fp16": 0.1})
    assert choose("cpu").format == "fp32"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA card here, so it is measured")
def test_a_device_that_is_not_here_is_said() -> None:
    with pytest.raises(CourseError, match=r"no cuda device here.*choose\("):
        choose("cuda")


@pytest.mark.parametrize(
    "speedups", [{"fp8": 2.0}, {"bf16": 0.0}, {"bf16": -1.0}, {"fp16": math.nan}, {"fp16": "4"}]
)
def test_a_speedup_that_is_none_is_said(speedups: Any) -> None:
    with pytest.raises(CourseError, match="positive number"):
        choose("cpu", speedups)


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_a_layer_runs_in_the_format(name: Any) -> None:
    precision = Precision(name, "cpu")
    layer, inputs = nn.Linear(4, 4), torch.rand(2, 4)
    for _ in range(2):  # the context can be entered again
        with precision.autocast():
            out = layer(inputs)
        assert out.dtype == (precision.dtype or torch.float32)
    assert layer.weight.dtype == torch.float32
    assert (precision.grad_scaler() is not None) == (name == "fp16")


def test_settings_of_the_scaler_are_passed_on() -> None:
    scaler = Precision("fp16").grad_scaler(init_scale=4.0)
    assert scaler is not None
    assert scaler.get_scale() == 4.0


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(CourseError, match="fp32, tf32, bf16, fp16"):
        Precision("half")  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="only NVIDIA cards"):
        Precision("tf32", "cpu")
    with pytest.raises(CourseError, match="is for cuda and the model is on cpu"):
        precision_for(Precision("bf16", "cuda"), "cpu")
    for make in (choose, lambda name: Precision("bf16", name)):
        with pytest.raises(CourseError, match="no device of torch"):
            make("gpu")
    assert precision_for(None, "cpu") is None
    assert precision_for("bf16", torch.device("cuda:1")) == Precision("bf16", "cuda")


def test_float32_products_are_set_for_a_while_and_put_back() -> None:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, conv.fp32_precision
    with float32_products("ieee"):
        assert (matmul.fp32_precision, conv.fp32_precision) == ("ieee", "ieee")
    with pytest.raises(CourseError), float32_products("ieee"):
        choose("cpu", {"fp16": 0.0})
    assert (matmul.fp32_precision, conv.fp32_precision) == before
    with Precision("tf32", "cuda").float32_products():
        assert (matmul.fp32_precision, conv.fp32_precision) == ("tf32", "tf32")
    with Precision("bf16", "cuda").float32_products():
        assert (matmul.fp32_precision, conv.fp32_precision) == before
