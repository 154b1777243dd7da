"""Do sizes, times, counts and money read back as they were written, and are doubtful ones refused?"""

import contextlib
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.units import (
    Money,
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    parse_bytes,
    parse_count,
    parse_money,
    parse_seconds,
)

PARSERS = [parse_bytes, parse_seconds, parse_count, parse_money]
FORMATTERS = [format_bytes, format_seconds, format_count, format_share]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16 GiB", 16 * 2**30),
        ("24GB", 24 * 10**9),
        ("512 MiB", 512 * 2**20),
        ("512mib", 512 * 2**20),
        ("1.5 kB", 1500),
        ("1 kb", 1000),
        (" 24,576 MiB ", 24 * 2**30),
        ("2e3 MB", 2 * 10**9),
        (".5 TiB", 2**39),
        ("8191 PiB", 8191 * 2**50),
        ("0 B", 0),
        ("7 bytes", 7),
    ],
)
def test_bytes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("24", "unit is missing"),
        ("24G", "GB .10.*9 bytes"),  # decimal or binary? never guessed
        ("24 Gb", "means bits"),
        ("1,5 GB", "decimal point"),
        ("1,00 GB", "decimal point"),
        ("-1 GB", "negative"),
        ("nan GB", "one number"),
        ("inf GB", "one number"),
        ("1e999 GB", "finite"),
        ("9000 PiB", "more than any computer"),
        ("16 GiB 3 MiB", "one number"),
        ("16 parsecs", "parsecs"),
        ("", "Nothing was written"),
        ("  \n", "Nothing was written"),
    ],
)
def test_doubtful_bytes_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(CourseError, match=reason):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1023.7 * 2**20, "1 GiB"),  # 1024 MiB is never printed
        (16 * 2**30, "16 GiB"),
        (24 * 10**9, "22.4 GiB"),
        (-512 * 2**20, "-512 MiB"),
    ],
)
def test_bytes_are_printed_in_binary_units(size: float, text: str) -> None:
    assert format_bytes(size) == text


@given(st.integers(0, 2**62))
def test_bytes_come_back_within_the_printed_digits(size: int) -> None:
    text = format_bytes(size)
    assert parse_bytes(text) == pytest.approx(size, rel=0.005)
    assert format_bytes(parse_bytes(text)) == text


@given(st.integers(0, 1023), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB", "PiB"]))
def test_a_whole_number_of_a_unit_is_printed_as_it_was_written(number: int, unit: str) -> None:
    if number or unit == "B":
        assert format_bytes(parse_bytes(f"{number}{unit}")) == f"{number} {unit}"


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_a_larger_size_never_prints_as_a_smaller_one(one: int, two: int) -> None:
    small, large = sorted((one, two))
    assert parse_bytes(format_bytes(small)) <= parse_bytes(format_bytes(large))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2 h 5 min", 7500),
        ("2h5min", 7500),
        ("12 ms", 0.012),
        ("3 µs", 3e-6),
        ("3 \u03bcs", 3e-6),
        ("3us", 3e-6),
        ("1.5 h", 5400),
        ("3 days", 3 * 86400),
        ("90 s", 90),
    ],
)
def test_seconds_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["5", "2 h 5", "h", "2 h - 5 min", "1:30:00", "2 weeks", "-3 s", "nan s", ""]
)
def test_doubtful_times_are_refused(text: str) -> None:
    with pytest.raises(CourseError):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.012, "12 ms"),
        (1e-6, "1 µs"),
        (9.996e-7, "1 µs"),
        (0.001, "1 ms"),
        (0.0009996, "1 ms"),
        (0.9996, "1 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),  # never "60 s"
        (3599.4, "59 min 59 s"),
        (3599.9, "1 h"),  # never "59 min 60 s"
        (7500, "2 h 5 min"),
        (86399, "1 d"),
        (3 * 86400 + 4 * 3600, "3 d 4 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_seconds_are_printed_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.floats(1e-9, 1e10))
def test_seconds_come_back_within_the_printed_digits(seconds: float) -> None:
    text = format_seconds(seconds)
    assert parse_seconds(text) == pytest.approx(seconds, rel=0.021)  # the coarsest step: 24 h 30 min as "1 d"
    assert format_seconds(parse_seconds(text)) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("950", 950), ("100k", 1e5), ("25.6 M", 25.6e6), ("7B", 7e9), ("7G", 7e9), ("1,281,167", 1281167)],
)
def test_counts_are_read(text: str, count: float) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["7X", "m", "7 m", "-7", "1e400", "1e308 M"])
def test_doubtful_counts_are_refused(text: str) -> None:
    with pytest.raises(CourseError):
        parse_count(text)


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (0, "", "0"),
        (999, "", "999"),
        (999.6, "", "1 k"),
        (25557032, "", "25.6 M"),
        (8.2e9, "FLOP", "8.2 GFLOP"),
        (0.02, "images/s", "0.02 images/s"),
        (-1500, "", "-1.5 k"),
    ],
)
def test_counts_are_printed_with_si_prefixes(count: float, unit: str, text: str) -> None:
    assert format_count(count, unit) == text


@given(st.floats(1e-6, 1e21))
def test_counts_come_back_within_the_printed_digits(count: float) -> None:
    text = format_count(count)
    assert parse_count(text) == pytest.approx(count, rel=0.005)
    assert format_count(parse_count(text)) == text


def test_shares_are_percentages() -> None:
    assert format_share(0.215) == "21.5 %"
    assert format_share(1) == "100 %"


@pytest.mark.parametrize(
    ("text", "money"),
    [
        ("30.13 CNY", Money(30.13, "CNY")),
        ("USD 2.5", Money(2.5, "USD")),
        ("$1,999", Money(1999, "USD")),
        ("20 €", Money(20, "EUR")),
        ("3 usd", Money(3, "USD")),
    ],
)
def test_money_is_read(text: str, money: Money) -> None:
    assert parse_money(text) == money


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("¥5", "CNY or JPY"),
        ("\uffe55", "CNY or JPY"),
        ("5", "one currency"),
        ("$5 USD", "one currency"),
        ("5 dollars", "three letters"),
        ("-5 USD", "negative"),
        ("USD", "number"),
    ],
)
def test_doubtful_money_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(CourseError, match=reason):
        parse_money(text)


def test_money_adds_up_in_one_currency_only() -> None:
    assert str(Money(9.13, "CNY") + 100 * Money(0.21, "CNY")) == "30.13 CNY"
    with pytest.raises(CourseError, match="convert"):
        Money(1, "CNY") + Money(1, "USD")


@given(st.floats(0, 1e12))
def test_money_reads_back_what_it_prints(amount: float) -> None:
    # Two decimals, or three digits below ten cents: the price of one picture must not print as nothing.
    assert parse_money(str(Money(amount, "USD"))).amount == pytest.approx(amount, rel=0.05, abs=1e-300)


@pytest.mark.parametrize("function", FORMATTERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "3", None, True])
def test_what_is_no_finite_number_is_not_printed(function: Callable[[object], str], value: object) -> None:
    with pytest.raises(CourseError):
        function(value)


@pytest.mark.parametrize("function", PARSERS)
@pytest.mark.parametrize("value", [3, None, 2.5, b"3 s"])
def test_what_is_no_text_is_not_read(function: Callable[[object], object], value: object) -> None:
    with pytest.raises(CourseError, match="type"):
        function(value)


def test_numpy_numbers_are_numbers() -> None:
    assert format_bytes(np.int64(2048)) == "2 KiB"
    assert format_seconds(np.float32(0.5)) == "500 ms"


@given(st.text(max_size=20))
def test_any_text_gives_a_value_or_is_refused(text: str) -> None:
    for parse in PARSERS:
        with contextlib.suppress(CourseError):
            parse(text)
