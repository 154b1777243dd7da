"""What did a function give back: is it a number, how is it shown, is it the same as before?"""

from __future__ import annotations

import inspect
import itertools
import math
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

_MOST_ITEMS = 8
_MOST_CHARACTERS = 60
_DEEPEST = 4


def brief(value: object) -> str:
    """A short text for a value: Python's own kinds as they are written, others by the name of their kind.

    Floats have at most 6 digits. The learner's classes are not asked for their ``repr``, which may fail or
    never end.
    """
    return _brief(value, _DEEPEST)


def _brief(value: Any, depth: int) -> str:
    if type(value) in (str, bytes):
        return repr(value[:_MOST_CHARACTERS]) + (" ..." if len(value) > _MOST_CHARACTERS else "")
    if type(value) in (bool, complex, type(None)):
        return repr(value)
    if depth and type(value) is dict:
        return (
            "{" + _items((f"{_brief(key, 0)}: {_brief(one, depth - 1)}" for key, one in value.items())) + "}"
        )
    if depth and type(value) in (list, tuple, set):
        items = _items(_brief(one, depth - 1) for one in value)
        if type(value) is tuple:
            return f"({items},)" if len(value) == 1 else f"({items})"
        return f"[{items}]" if type(value) is list else f"{{{items}}}"
    if type(value) is int and abs(value) < 10**15:
        return str(value)
    try:
        return f"{as_number(value):.6g}"
    except NotANumberError:
        return kind(value)


def _items(texts: Iterable[str]) -> str:
    first = list(itertools.islice(texts, _MOST_ITEMS + 1))
    return ", ".join(first[:_MOST_ITEMS]) + (", ..." if len(first) > _MOST_ITEMS else "")


def kind(value: object) -> str:
    """What a value is, in a beginner's words: "text", "a list", "a function", "an array of shape (3,)"."""
    if value is None:
        return "nothing (None)"
    if inspect.iscoroutine(value) or inspect.isasyncgen(value):
        return "something to await, because it is `async`"
    for types, words in _KINDS:
        if isinstance(value, types):
            return words
    if inspect.isclass(value):
        return f"the class `{value.__name__}`"
    if inspect.isgenerator(value):
        return "a generator, because it uses `yield` in place of `return`"
    if inspect.isroutine(value):
        return "a function"
    shape = _shape(value)
    if shape is not None:
        return f"an array of shape {shape}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} `{name}`"


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "True or False"),
    (str, "text"),
    (bytes, "bytes"),
    ((int, float), "a number"),
    (complex, "a complex number"),
    (list, "a list"),
    (tuple, "several values (a tuple)"),
    (dict, "a dictionary"),
    ((set, frozenset), "a set"),
)


class NotANumberError(Exception):
    """The value is no real number. The text says what it is."""


def as_number(value: object) -> float:
    """The value as a float, where it is one real number.

    Accepted: int, float, Fraction, Decimal, and what NumPy and torch have for one number without a dimension
    (neither package is imported for that). An int too large for a float is inf.

    Raises:
        NotANumberError: it is something else: True or False, text, a complex number, several values, ...
    """
    if _shape(value) == ():
        try:
            value = value.item()  # type: ignore[attr-defined]
        except RuntimeError:  # a tensor on the meta device has a shape and no number
            raise NotANumberError("a tensor without a value") from None
    if isinstance(value, bool):
        raise NotANumberError(f"`{value}`, which is an answer to a yes-or-no question")
    if isinstance(value, int | float | Fraction | Decimal):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except ValueError:  # a Decimal that is a signalling NaN
            return math.nan
    if isinstance(value, str):
        raise NotANumberError(f"text ({_brief(str(value), 0)})")
    raise NotANumberError(kind(value))


def same(one: object, other: object) -> bool:
    """Whether two values are equal all the way down, also where they hold arrays, tensors or NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if _shape(one) is not None:
        return _shape(one) == _shape(other) and same(one.tolist(), other.tolist())  # type: ignore[attr-defined]
    return bool(one == other)


def _shape(value: object) -> tuple[int, ...] | None:
    """The shape of an array or tensor of NumPy or torch, () for their single numbers; None for all else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    kinds = [(numpy, ("ndarray", "generic")), (torch, ("Tensor",))]
    for module, names in kinds:
        if any(isinstance(value, getattr(module, name, ())) for name in names):
            return tuple(value.shape)  # type: ignore[attr-defined]
    return None
