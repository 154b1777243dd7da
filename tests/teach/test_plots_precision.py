"""The pictures of lesson 03: what they say in words, and labels that neither leave the figure nor overlap."""

import pytest
import torch
from laid_out import assert_laid_out

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.teach.plots_gains import Gain, gains_of, plot_gains, plot_seeds
from course_lib.teach.plots_precision import plot_bits, plot_dtypes, plot_exponents, plot_scaler
from course_lib.train.number_formats.dtype_inspector import inspect_dtypes
from course_lib.train.number_formats.exponents import histogram
from course_lib.train.number_formats.float_formats import FLOAT_FORMATS, bits_of
from course_lib.train.number_formats.format_times import FormatTime, FormatTimes
from course_lib.train.number_formats.scaler_life import ScalerLife, ScalerStep


@pytest.mark.parametrize("value", [0.1, -123456.789, 3e-8])
def test_bits_are_drawn_with_the_number_they_stand_for(value: float) -> None:
    picture = plot_bits([bits_of(value, name) for name in FLOAT_FORMATS])
    assert_laid_out(picture)
    assert f"bf16 {bits_of(value, 'bf16').sign} " in picture.alt


@pytest.mark.parametrize(
    ("name", "power"), [("fp16", -8), ("fp16", 0), ("fp16", 40), ("bf16", -8), ("tf32", 40)]
)
def test_sizes_against_a_range(name: str, power: int) -> None:
    torch.manual_seed(0)
    counted = histogram(torch.randn(1000) * 2.0**-16)
    picture = plot_exponents(counted, name, 2.0**power, what="activation gradients")
    assert_laid_out(picture)
    assert f"{counted.becomes_zero(name, 2.0**power):.1%} become zero" in picture.alt


def test_types_of_operations() -> None:
    batch = torch.rand(2, 1, 8, 8), torch.tensor([0, 1])
    picture = plot_dtypes(inspect_dtypes(DigitsCNN(), batch, "bf16"))
    assert_laid_out(picture)
    assert "convolution: 3 in bf16" in picture.alt
    assert "_log_softmax: 1 in fp32" in picture.alt


def test_the_life_of_a_scaler() -> None:
    steps = tuple(ScalerStep(n, 2.0 ** (16 - (n > 5)), 1.0, n == 5) for n in range(1, 21))
    picture = plot_scaler(ScalerLife(steps, 2.0**15))
    assert_laid_out(picture)
    assert "Skipped: 5." in picture.alt


def test_gains_between_very_slow_and_very_fast() -> None:
    gains = {
        "fp16, here": Gain(1 / 300, 1 / 400, 1 / 250),
        "bf16, here": Gain(1.5, 1.2, 1.8),
        "A": Gain(9, how="published"),
    }
    picture = plot_gains(gains, title="What it is worth")
    assert_laid_out(picture)
    assert "fp16, here: 1/300 times (measured); bf16, here: 1.50 times" in picture.alt
    assert "A: 9 times (published)" in picture.alt
    assert_laid_out(plot_gains({"one": Gain(1.0)}, title="Nothing"))
    with pytest.raises(CourseError, match="no gain"):
        plot_gains({}, title="")
    with pytest.raises(CourseError, match="above zero"):
        plot_gains({"x": Gain(0.0)}, title="")


def test_a_format_that_was_not_run_is_drawn_as_an_estimate() -> None:
    plain = FormatTime("fp32", 0.01, 9, 1.0, 1.0, 1.0)
    bf16 = FormatTime("bf16", 0.005, 9, 2.1, 1.9, 2.2)
    fp16 = FormatTime("fp16", 2.0, 0, None, None, None, "not run")
    gains = gains_of(FormatTimes("a step", "cpu", {"fp32": plain, "bf16": bf16, "fp16": fp16}), "mine")
    assert gains == {
        "bf16, mine": Gain(2.1, 1.9, 2.2),
        "fp16, mine": Gain(0.005, how="predicted"),
    }


def test_seeds_and_their_spread() -> None:
    picture = plot_seeds({"fp32": [0.95, 0.97], "bf16 weights too": [0.5, 0.6]}, title="After 3 epochs")
    assert_laid_out(picture)
    assert "fp32: mean 96.0 %, from 95.0 to 97.0 %" in picture.alt
    assert_laid_out(plot_seeds({"fp32": [1.0, 1.0]}, title="All right"))
    with pytest.raises(CourseError, match="no accuracy"):
        plot_seeds({"fp32": []}, title="")
