import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.train.number_formats.float_formats import FLOAT_FORMATS, bits_of, float_format, rounded

WITH_DTYPE = ("fp32", "bf16", "fp16")


@pytest.mark.parametrize("name", WITH_DTYPE)
def test_what_the_bits_say_is_what_torch_says(name: str) -> None:
    form = float_format(name)
    info = torch.finfo(form.dtype)
    assert form.largest == info.max
    assert form.smallest_normal == info.smallest_normal
    assert form.epsilon == info.eps
    smallest = torch.tensor(form.smallest, dtype=torch.float64)
    assert smallest.to(form.dtype) != 0
    assert (smallest / 2).to(form.dtype) == 0  # a tie, and zero is the even one
    assert (smallest * 0.51).to(form.dtype) != 0
    assert 1 + form.exponent_bits + form.fraction_bits == 8 * form.bytes


def test_tf32_has_the_range_of_float32_and_the_fineness_of_float16() -> None:
    tf32 = float_format("tf32")
    assert tf32.smallest_normal == FLOAT_FORMATS["fp32"].smallest_normal
    assert tf32.epsilon == FLOAT_FORMATS["fp16"].epsilon


@given(st.floats(width=32, allow_nan=False))
def test_tf32_is_the_nearest_of_its_numbers(value: float) -> None:
    held = rounded(torch.tensor(value), "tf32").item()
    if math.isinf(value):
        assert held == value
        return
    pattern = struct.unpack("<I", struct.pack("<f", value))[0]
    down = struct.unpack("<f", struct.pack("<I", pattern & 0xFFFFE000))[0]
    if (pattern & 0x7FFFFFFF) + 0x2000 >= 0x7F800000:  # the next one is infinite
        assert held == down or math.isinf(held)
        return
    up = struct.unpack("<f", struct.pack("<I", (pattern & 0xFFFFE000) + 0x2000))[0]
    assert held in (down, up)
    assert abs(held - value) == min(abs(down - value), abs(up - value))
    assert rounded(torch.tensor(held), "tf32").item() == held


@pytest.mark.parametrize(
    ("value", "held"), [(1 + 2**-11, 1.0), (1 + 3 * 2**-11, 1 + 2**-9), (-1 - 2**-11, -1.0)]
)
def test_tf32_rounds_ties_to_even(value: float, held: float) -> None:
    assert rounded(torch.tensor(value), "tf32").item() == held


@given(st.floats(-1e5, 1e5, width=32), st.sampled_from(list(FLOAT_FORMATS)))
def test_the_bits_stand_for_the_number(value: float, name: str) -> None:
    bits = bits_of(value, name)
    form = bits.format
    assert (len(bits.exponent), len(bits.fraction)) == (form.exponent_bits, form.fraction_bits)
    exponent, fraction = int(bits.exponent, 2), int(bits.fraction, 2)
    if exponent == 2**form.exponent_bits - 1:
        assert math.isinf(bits.held)
        return
    hidden, power = (0, 1 - form.bias) if exponent == 0 else (1, exponent - form.bias)
    told = (-1) ** int(bits.sign) * (hidden + fraction * form.epsilon) * 2.0**power
    assert told == bits.held
    assert bits.held == rounded(torch.tensor(value), name).item()


def test_bits_of_no_number_are_refused() -> None:
    with pytest.raises(CourseError, match="'x' is none"):
        bits_of("x", "fp16")  # type: ignore[arg-type]


def test_an_unknown_format_is_said() -> None:
    with pytest.raises(CourseError, match="fp32, tf32, bf16, fp16"):
        bits_of(1.0, "fp8")
