"""How are bytes, seconds, counts and money written, and read back?

Bytes come in two families, and the letter ``i`` is the whole difference: ``GiB`` is 2**30 bytes (what
``nvidia-smi``, PyTorch and this course print), ``GB`` is 10**9 bytes (what a disk or a data set is sold in).
24 GB are only 22.4 GiB. A bare ``24`` or ``24G`` could mean either, so it is refused and never guessed.

``parse_*`` reads text and refuses negative numbers. ``format_*`` prints three significant digits, and all the
digits before the point; it takes a negative number, since a difference may be one. Both raise CourseError
for anything that is not a finite number.
"""

import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass

from course_lib.errors import CourseError

_BINARY = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BYTE_UNITS = {name.lower(): size for name, size in (_BINARY | _DECIMAL).items()} | {"byte": 1, "bytes": 1}
_MOST_BYTES = 2**63 - 1  # the largest size a file system or an allocator can name

_SHORT_TIMES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME_UNITS = _SHORT_TIMES | {
    **dict.fromkeys(("us", "\u03bcs"), 1e-6),  # the Greek letter is a second way to write micro
    **dict.fromkeys(("sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}

_SI_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_COUNT_UNITS = _SI_PREFIXES | {"K": 1e3, "B": 1e9}  # a "7B" model has 7 billion parameters

_CURRENCY_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP"}

_NUMBER = r"(?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
_QUANTITY = re.compile(rf"\s*{_NUMBER}\s*(?P<unit>[^\W\d]*)\s*")
_MONEY = re.compile(rf"\s*(?P<before>[^\d\s.,+-]*)\s*{_NUMBER}\s*(?P<after>[^\d\s.,+-]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes in a text such as "16 GiB" (binary), "24GB" (decimal) or "512 MiB".

    Upper and lower case are the same, with one exception: "Gb" is refused, because it means gigabits.
    """
    number, unit = _quantity(text, 'a size such as "16 GiB"')
    if len(unit) == 2 and unit[0].isupper() and unit[1] == "b":
        raise CourseError(f'{text!r}: "{unit}" means bits; write "{unit[0]}B" or "{unit[0]}iB" for bytes.')
    size = _BYTE_UNITS.get(unit.lower())
    if size is None:
        raise CourseError(
            f"{text!r} is no size: {_unit_fault(unit)}; write GiB (2**30 bytes) or GB (10**9 bytes), "
            "and likewise MiB or MB, KiB or kB, TiB or TB, PiB or PB, B."
        )
    if number * size > _MOST_BYTES:
        raise CourseError(f"{text!r} is more than any computer holds; the most is 8191 PiB.")
    return round(number * size)


def format_bytes(size: float) -> str:
    """A size in bytes as text, in binary units: 17179869184 gives "16 GiB"."""
    return _scaled(round(_finite(size, "a size in bytes")), _BINARY)


def parse_seconds(text: str) -> float:
    """Seconds in a text such as "2 h 5 min", "12 ms", "1.5 h" or "3 days"."""
    what = 'a time such as "2 h 5 min" or "12 ms"'
    _require_amount(text, what)
    total, rest = 0.0, text
    while rest:
        part = _QUANTITY.match(rest)
        if part is None or part["unit"].lower() not in _TIME_UNITS:
            fault = _unit_fault(part["unit"]) if part else f"{rest!r} does not begin with a number"
            raise CourseError(
                f"{text!r} is no time: {fault}; write ns, us, ms, s, min, h or d after each number."
            )
        total += _to_float(part["number"]) * _TIME_UNITS[part["unit"].lower()]
        rest = rest[part.end() :]
    return _finite(total, "a time in seconds")


def format_seconds(seconds: float) -> str:
    """A time in seconds as text: 0.012 gives "12 ms", 7500 gives "2 h 5 min", 0 gives "0 s"."""
    value = _finite(seconds, "a time in seconds")
    length = abs(value)
    if length == 0:
        return "0 s"
    if float(_digits(length)) < 60:
        return _scaled(value, _SHORT_TIMES)
    # Two units are enough to plan with. The smaller one is rounded first, so that 3599.9 s is an hour.
    if round(length) < 3600:
        parts = _two_units(round(length), "min", 60, "s")
    elif round(length / 60) < 24 * 60:
        parts = _two_units(round(length / 60), "h", 60, "min")
    else:
        parts = _two_units(round(length / 3600), "d", 24, "h")
    return f"-{parts}" if value < 0 else parts


def parse_count(text: str) -> float:
    """A count in a text such as "950", "100k", "25.6 M", or "7B" (B and G are both 10**9)."""
    number, unit = _quantity(text, 'a count such as "25.6 M"')
    if unit not in _COUNT_UNITS:
        raise CourseError(
            f"{text!r} is no count: {_unit_fault(unit)}; write k, M, G, T, P or E, or the plain number."
        )
    return _finite(number * _COUNT_UNITS[unit], "a count")


def format_count(count: float, unit: str = "") -> str:
    """A count with an SI prefix: 25557032 gives "25.6 M"; 8.2e9 with unit "FLOP" gives "8.2 GFLOP"."""
    value = _finite(count, "a count")
    return _scaled(value, {prefix + unit: size for prefix, size in _SI_PREFIXES.items()})


def format_share(share: float) -> str:
    """A share of one as a percentage with three significant digits: 0.215 gives "21.5 %"."""
    return f"{_digits(100 * _finite(share, 'a share'))} %"


@dataclass(frozen=True, order=False)
class Money:
    """An amount in one currency, named by its three-letter ISO 4217 code: ``Money(30.13, "CNY")``.

    Amounts of one currency add up, and an amount times a number is an amount. Two currencies never mix:
    exchange rates change, so the course does not hold any. Raises CourseError for what is not money.
    """

    amount: float
    currency: str

    def __post_init__(self) -> None:
        _finite(self.amount, "an amount of money")
        if not isinstance(self.currency, str) or not re.fullmatch(r"[A-Z]{3}", self.currency):
            raise CourseError(
                f"{self.currency!r} is no currency: write its three letters, for example USD or CNY."
            )

    def __add__(self, other: "Money") -> "Money":
        if self.currency != other.currency:
            raise CourseError(
                f"{self} and {other} cannot be added: convert one into the other's currency first."
            )
        return Money(self.amount + other.amount, self.currency)

    def __mul__(self, factor: float) -> "Money":
        return Money(self.amount * factor, self.currency)

    __rmul__ = __mul__

    def __str__(self) -> str:
        # A price per picture is a small fraction of a cent; two decimals would print it as nothing.
        if self.amount == 0 or abs(self.amount) >= 0.1:
            return f"{self.amount:,.2f} {self.currency}"
        return f"{self.amount:.3g} {self.currency}"


def parse_money(text: str) -> Money:
    """Money in a text such as "30.13 CNY", "USD 2.50" or "$2.50".

    "$" is read as US dollars. "¥" is refused: it stands for both the yuan (CNY) and the yen (JPY).
    """
    what = 'an amount of money such as "30.13 CNY"'
    _require_amount(text, what)
    match = _MONEY.fullmatch(text)
    if match is None or bool(match["before"]) == bool(match["after"]):
        raise CourseError(
            f"{text!r} is no amount of money: write a number and one currency, such as 30.13 CNY."
        )
    currency = match["before"] or match["after"]
    if currency in ("¥", "\uffe5"):
        raise CourseError(f"{text!r}: the sign stands for two currencies; write CNY or JPY.")
    return Money(_to_float(match["number"]), _CURRENCY_SIGNS.get(currency, currency.upper()))


def _quantity(text: str, what: str) -> tuple[float, str]:
    _require_amount(text, what)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise CourseError(f"{text!r} is not {what}: write one number and one unit, with a decimal point.")
    return _to_float(match["number"]), match["unit"]


def _require_amount(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise CourseError(f"{text!r} has the type {type(text).__name__}: write {what}, as text.")
    if not text.strip():
        raise CourseError(f"Nothing was written where {what} is expected.")
    if re.match(r"\s*[-\u2212]", text):
        raise CourseError(f"{text!r} is negative: write {what}.")


def _unit_fault(unit: str) -> str:
    return f'the unit "{unit}" is not known' if unit else "the unit is missing"


def _to_float(number: str) -> float:
    return _finite(float(number.replace(",", "")), f"the number {number}")


def _finite(value: object, what: str) -> float:
    # numbers.Real takes NumPy's numbers too: a measurement often is one.
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise CourseError(f"{value!r} is not {what}: give a number.")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond 1.8e308
        number = math.inf
    if not math.isfinite(number):
        raise CourseError(f"{number} is not {what}: give a finite number.")
    return number


def _digits(value: float) -> str:
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def _scaled(value: float, units: Mapping[str, float]) -> str:
    """The value with the unit that leaves a number of 1 or more; ``units`` go from small to large."""
    names = list(units)
    chosen = names[0]
    for name in names[1:]:
        # Compare what would be printed: 1023.7 MiB prints as 1024 MiB, which is 1 GiB.
        if abs(float(_digits(value / units[chosen]))) * units[chosen] < units[name]:
            break
        chosen = name
    return f"{_digits(value / units[chosen])} {chosen}".rstrip()


def _two_units(small_units: int, large: str, small_per_large: int, small: str) -> str:
    many, rest = divmod(small_units, small_per_large)
    return f"{many} {large} {rest} {small}" if rest else f"{many} {large}"
