import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.train.number_formats.exponents import histogram


@given(st.lists(st.floats(width=32), max_size=40))
def test_every_number_is_counted_once(values: list[float]) -> None:
    counted = histogram(torch.tensor(values))
    assert counted.total == len(values)
    assert counted.zeros == sum(value == 0 for value in values)
    assert counted.not_finite == sum(not math.isfinite(value) for value in values)
    for exponent, count in counted.by_exponent().items():
        inside = [v for v in values if math.isfinite(v) and 2.0**exponent <= abs(v) < 2.0 ** (exponent + 1)]
        assert len(inside) == count


@given(
    st.lists(
        st.builds(math.ldexp, st.sampled_from([1.0, 1.25, -1.5, 1.99]), st.integers(-40, 20)),
        min_size=1,
        max_size=60,
    ),
    st.integers(-8, 24),
)
def test_what_a_format_loses_is_what_torch_loses(values: list[float], power: int) -> None:
    scale = 2.0**power
    counted = histogram(torch.tensor(values))
    scaled = torch.tensor(values, dtype=torch.float64) * scale
    # Ties and numbers that round up to infinity lie inside a bin: the histogram counts them as kept.
    scaled = scaled[(scaled.abs() != 2.0**-25) & ~((scaled.abs() >= 65520) & (scaled.abs() < 65536))]
    if len(scaled) < len(values):
        return
    held = scaled.half()
    assert counted.becomes_zero("fp16", scale) == pytest.approx((held == 0).double().mean().item())
    assert counted.overflows("fp16", scale) == pytest.approx(held.isinf().double().mean().item())
    small = (held != 0) & (scaled.abs() < 2.0**-14)
    assert counted.loses_bits("fp16", scale) == pytest.approx(small.double().mean().item())


def test_the_best_scale_overflows_nothing_and_twice_two_more_does() -> None:
    counted = histogram(torch.tensor([1e-7, 3e-6, 0.02]))
    scale = counted.best_scale("fp16")
    assert counted.overflows("fp16", scale) == 0
    assert counted.overflows("fp16", 2 * scale) == 0
    assert counted.overflows("fp16", 4 * scale) > 0


def test_histograms_add_up() -> None:
    one, other = torch.tensor([1.0, 0.0, 3.0]), torch.tensor([math.inf, 1e-9])
    assert histogram(one) + histogram(other) == histogram([one, other])


def test_only_zeros_lose_nothing_and_have_no_range() -> None:
    counted = histogram(torch.zeros(3))
    assert counted.becomes_zero("fp16") == counted.overflows("fp16") == counted.loses_bits("bf16") == 0
    with pytest.raises(CourseError, match="no range"):
        counted.best_scale("fp16")


@pytest.mark.parametrize("scale", [3.0, 0.0, -2.0, math.inf, math.nan])
def test_a_scale_is_a_power_of_two(scale: float) -> None:
    with pytest.raises(CourseError, match="power of two"):
        histogram(torch.ones(1)).becomes_zero("fp16", scale)
