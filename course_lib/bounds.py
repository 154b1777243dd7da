"""Is this a number that can be used here? Asked in one place, and answered in one sentence with the limits.

Every limit is generous: beyond it a number is a slip of the hand, and what follows from it fills a page with
digits, or the memory of the computer.
"""

import math
import numbers

from course_lib.errors import CourseError


def number_in(value: object, what: str, low: float, high: float) -> float:
    """The value as a float from ``low`` to ``high``; NumPy's numbers are numbers too.

    Raises CourseError, "``what`` cannot be ...", for everything else: text, nan, a bool, a number outside.
    """
    number = _as_float(value)
    if low <= number <= high:
        return number
    raise CourseError(f"{what} cannot be {_said(value)}: give a number from {_plain(low)} to {_plain(high)}.")


def whole_in(value: object, what: str, low: int, high: int) -> int:
    """The value as an int from ``low`` to ``high``; a float such as 3.0 is none.

    Raises CourseError, "``what`` cannot be ...", for everything else.
    """
    if isinstance(value, numbers.Integral) and low <= _as_float(value) <= high:
        return int(value)
    raise CourseError(
        f"{what} cannot be {_said(value)}: give a whole number from {_plain(low)} to {_plain(high)}."
    )


def _as_float(value: object) -> float:
    """The number; nan for what is none, or a bool, and infinity for a whole number beyond 1.8e308."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _said(value: object) -> str:
    """What was given, short enough for a sentence: some numbers have hundreds of digits."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        told = repr(value)
        return told if len(told) <= 60 else f"{told[:57]}..."
    return f"{_as_float(value):g}"


def _plain(number: float) -> str:
    """1e12 as 1,000,000,000,000: a limit is read by people."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:g}"
