"""How does a sum of money keep its units, so that hours are never added to days, or a fee to a fee an hour?

A Quantity is a number with its unit, made of currency, hours, kilowatt-hours and grams of CO2e. Quantities of
the same unit add up; a product or quotient of two gets the unit it must have; everything else is refused. So
``price / years`` is money an hour, and adding it to money is an error where it is written, not a wrong sum.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

from course_lib.errors import CourseError
from course_lib.units import Money

HOURS_A_YEAR = 8760  # 365 days


@dataclass(frozen=True)
class Quantity:
    """``value`` in currency^money x h^time x kWh^energy x g^carbon. ``currency`` is "" where money is 0."""

    value: float
    money: int = 0
    time: int = 0
    energy: int = 0
    carbon: int = 0
    currency: str = ""

    @property
    def _powers(self) -> tuple[int, int, int, int, str]:
        return (self.money, self.time, self.energy, self.carbon, self.currency)

    @property
    def unit(self) -> str:
        """The unit as text: ``CNY/h``, ``kW``, ``CNY/kWh``, ``g``; empty for a plain number."""
        named = {"kWh": self.energy, "h": self.time}
        if self.energy and self.time == -self.energy:  # a kWh each hour is a kW
            named = {"kW": self.energy}
        powers = {self.currency or "money": self.money, "g": self.carbon, **named}
        above = " ".join(_power(name, power) for name, power in powers.items() if power > 0)
        below = "".join("/" + _power(name, -power) for name, power in powers.items() if power < 0)
        return f"{above or ('1' if below else '')}{below}"

    def __add__(self, other: Quantity) -> Quantity:
        return self._joined(other, 1, "added to")

    def __sub__(self, other: Quantity) -> Quantity:
        return self._joined(other, -1, "subtracted from")

    def _joined(self, other: Quantity, sign: int, how: str) -> Quantity:
        if not isinstance(other, Quantity) or self._powers != other._powers:
            first, second = (other, self) if sign < 0 else (self, other)
            raise CourseError(f"{_said(second)} cannot be {how} {_said(first)}: the units differ.")
        return Quantity(self.value + sign * other.value, *self._powers)

    def __mul__(self, other: Quantity | float) -> Quantity:
        return self._times(_quantity(other), 1)

    __rmul__ = __mul__

    def __truediv__(self, other: Quantity | float) -> Quantity:
        divisor = _quantity(other)
        if divisor.value == 0:
            raise CourseError(f"{_said(self)} cannot be divided by {_said(divisor)}.")
        return self._times(divisor, -1)

    def __rtruediv__(self, other: float) -> Quantity:
        return _quantity(other) / self

    def _times(self, other: Quantity, sign: int) -> Quantity:
        if self.currency and other.currency and self.currency != other.currency:
            raise CourseError(f"{self} and {other} are in two currencies: convert one of them first.")
        money = self.money + sign * other.money
        return Quantity(
            self.value * other.value**sign,
            money,
            self.time + sign * other.time,
            self.energy + sign * other.energy,
            self.carbon + sign * other.carbon,
            (self.currency or other.currency) if money else "",
        )

    def amount(self) -> Money:
        """The quantity as Money. Raises CourseError for anything but plain money."""
        if (self.money, self.time, self.energy, self.carbon) != (1, 0, 0, 0):
            raise CourseError(f"{self} is not an amount of money: its unit is {self.unit or 'none'}.")
        return Money(self.value, self.currency)

    def __float__(self) -> float:
        if any(self._powers):
            raise CourseError(f"{self} is not a plain number: divide it by what it is counted in.")
        return self.value

    def __str__(self) -> str:
        if (self.money, self.time, self.energy, self.carbon) == (1, 0, 0, 0):
            return str(Money(self.value, self.currency))
        return f"{self.value:,.4g} {self.unit}".rstrip()


def _power(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


def _said(value: object) -> str:
    return str(value) if isinstance(value, Quantity) else f"the plain number {value!r}"


def _quantity(value: Quantity | float) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(_number(value, "a factor"))


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(float(value)):
        raise CourseError(f"{value!r} is not {what}: give a finite number.")
    return float(value)


def money(amount: float | Money, currency: str = "") -> Quantity:
    """An amount of money: ``money(10_000, "CNY")``, or from Money."""
    made = amount if isinstance(amount, Money) else Money(_number(amount, "an amount of money"), currency)
    return Quantity(made.amount, money=1, currency=made.currency)


def hours(value: float) -> Quantity:
    """A time of so many hours."""
    return Quantity(_number(value, "a number of hours"), time=1)


def years(value: float) -> Quantity:
    """A time of so many years of 365 days."""
    return hours(_number(value, "a number of years") * HOURS_A_YEAR)


def watts(value: float) -> Quantity:
    """A power."""
    return Quantity(_number(value, "a power in watts") / 1000, time=-1, energy=1)


def kilowatt_hours(value: float) -> Quantity:
    """An energy."""
    return Quantity(_number(value, "an energy in kWh"), energy=1)


def grams(value: float) -> Quantity:
    """A mass of CO2e."""
    return Quantity(_number(value, "a mass in grams"), carbon=1)
