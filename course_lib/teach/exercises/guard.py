"""What does the learner's function do with these inputs, whatever it does, without harm to the kernel?

Exceptions, ``exit()``, endless loops, endless recursion, floods of output and a call of ``input()`` come back
as a ``Fault`` with a sentence for the learner. What it prints is kept, and a change of its inputs is noticed.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import inspect
import io
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Literal, NoReturn

from course_lib.teach.exercises.panel import notebook_shell
from course_lib.teach.exercises.time_limit import TimeUp, call_within
from course_lib.teach.exercises.values import same

LIMIT_S = 2.0
"""Seconds one call may take: the functions of the exercises need microseconds."""

_KEPT_CHARACTERS = 2_000  # of what is printed
_TEXT_CHARACTERS = 200  # of an exception's text


@dataclass(frozen=True)
class Fault:
    """Why a call gave no value. ``text`` completes "your function ..."."""

    kind: Literal["raised", "dots", "endless", "exit", "input", "interrupted"]
    text: str


@dataclass(frozen=True)
class GuardedRun:
    """What one call did."""

    value: object = None  # what it returned; None where there is a fault
    fault: Fault | None = None
    printed: str = ""  # the beginning of what it wrote to stdout and stderr
    changed: tuple[str, ...] = ()  # the parameters whose values it changed in place


def run_guarded(
    function: Callable[..., object], arguments: Mapping[str, object], *, limit_s: float = LIMIT_S
) -> GuardedRun:
    """Call ``function`` with copies of ``arguments`` and come back, whatever happens inside.

    Args:
        function: the learner's; ``why_not_callable`` has said that it takes these arguments.
        arguments: values by parameter name.
        limit_s: seconds after which it is stopped. See ``time_limit`` for what cannot be stopped.
    """
    given = copy.deepcopy(dict(arguments))
    positional, named = _bind(function, given)
    output = _Output()
    value, fault = None, None

    def call() -> tuple[object, Fault | None]:
        try:
            return function(*positional, **named), None
        except (TimeUp, KeyboardInterrupt):
            raise
        except BaseException as error:  # SystemExit too
            return None, _fault_of(error, function)

    try:
        with _captured(output):
            value, fault = call_within(limit_s, call)
    except TimeUp as up:
        fault = Fault("endless", _endless(limit_s, up.stuck))
    except KeyboardInterrupt:
        fault = Fault("interrupted", "was interrupted before it returned")
    changed = tuple(name for name in given if not same(given[name], arguments[name]))
    return GuardedRun(value, fault, output.text(), changed)


def why_not_callable(answer: object, name: str, parameters: tuple[str, ...]) -> str:
    """Why this answer cannot be called as ``name(*parameters)``, as a sentence; empty where it can.

    One more parameter is fine where it has a default; where the names are as expected, their order is free.
    """
    if inspect.isclass(answer):
        return f"You handed in the class `{answer.__name__}`: hand in the function `{name}`."
    if isinstance(answer, str):
        return f"You handed in text: hand in the function itself, `{name}` without quotes."
    if not callable(answer):
        return (
            f"A function is wanted here, and this is none: hand in `{name}` itself, "
            "without parentheses after it."
        )
    if inspect.iscoroutinefunction(answer):
        return f"`{name}` is `async`: begin it with a plain `def`."
    if inspect.isgeneratorfunction(answer) or inspect.isasyncgenfunction(answer):
        return f"`{name}` uses `yield`: give the result back with `return`."
    try:
        _bind(answer, dict.fromkeys(parameters))
    except TypeError:
        wanted = ", ".join(parameters)
        has = ", ".join(inspect.signature(answer).parameters) or "nothing"
        return f"Your function takes {has}: it must take {wanted}, as in `def {name}({wanted})`."
    return ""


def _bind(function: Callable[..., object], arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """How to pass the arguments: by name where the function knows all the names, else in their order."""
    in_order = list(arguments.values())
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C tell nothing about their parameters
        return in_order, {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if all(name in signature.parameters and signature.parameters[name].kind in by_name for name in arguments):
        signature.bind(**arguments)
        return [], arguments
    signature.bind(*in_order)
    return in_order, {}


class _AskedForInputError(Exception):
    pass


class _Output(io.StringIO):
    """Keeps the beginning of what is written, however much it is."""

    def __init__(self) -> None:
        super().__init__()
        self._room = _KEPT_CHARACTERS
        self._left_out = False

    def write(self, text: str) -> int:
        kept = text[: self._room]
        self._room -= len(kept)
        self._left_out |= len(kept) < len(text)
        super().write(kept)
        return len(text)

    def close(self) -> None:
        """Stay open: the learner's function may close ``sys.stdout``, and what it wrote is still wanted."""

    def text(self) -> str:
        return self.getvalue() + (" ..." if self._left_out else "")


@contextlib.contextmanager
def _captured(output: _Output) -> Iterator[None]:
    """What is written goes to ``output``, nothing can be read, and ``exit`` leaves a kernel alive."""
    shell: Any = notebook_shell()
    real_input, real_stdin = builtins.input, sys.stdin

    def no_input(*_: object) -> NoReturn:
        raise _AskedForInputError

    def exit_asked(*_: object) -> NoReturn:
        raise SystemExit

    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        builtins.input = no_input
        sys.stdin = io.StringIO()
        if shell is not None:
            shell.ask_exit = exit_asked  # on this one object, in front of the method of its class
        try:
            yield
        finally:
            builtins.input, sys.stdin = real_input, real_stdin
            if shell is not None:
                del shell.ask_exit


def _fault_of(error: BaseException, function: Callable[..., object]) -> Fault:
    if isinstance(error, SystemExit):
        return Fault("exit", "asked Python to exit: let it return its result instead")
    if isinstance(error, _AskedForInputError):
        return Fault("input", "calls `input()`: all it needs comes in through its parameters")
    where = _where(error, function)
    if isinstance(error, RecursionError):
        return Fault("raised", f"calls itself without end (RecursionError){where}")
    try:
        text = str(error)
    except Exception:  # an exception of the learner's own
        text = ""
    if isinstance(error, TypeError | AttributeError) and "ellipsis" in text:
        return Fault("dots", f"still holds the dots{where}")
    text = text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + " ..."
    return Fault("raised", f"raised {type(error).__name__}" + (f" ({text})" if text else "") + where)


def _where(error: BaseException, function: Callable[..., object]) -> str:
    """The last line of the learner's own code through which the exception came, as " in line 2, `...`"."""
    own: CodeType | None = getattr(inspect.unwrap(function), "__code__", None)
    where = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if _is_learners(code.co_filename):
            line = linecache.getline(code.co_filename, number, frame.f_globals).strip()
            count = number - code.co_firstlineno + 1
            place = f"its line {count}" if code is own else f"line {count} of `{code.co_name}`"
            where = f" in {place}" + (f": `{line}`" if line else "")
    return where


def _is_learners(filename: str) -> bool:
    """Whether the code is in a cell or a file of the learner, rather than in a library or in this package."""
    if filename.startswith("<"):
        return filename.startswith(("<stdin", "<string", "<ipython-input", "<python-input"))
    return not any(Path(filename).is_relative_to(home) for home in _LIBRARIES)


_LIBRARIES = [
    Path(__file__).parents[2],
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
]


def _endless(limit_s: float, stuck: bool) -> str:
    text = f"did not return within {limit_s:g} seconds and was stopped: does it hold a loop that never ends?"
    if stuck:
        text = (
            f"did not return within {limit_s:g} seconds, and it could not be stopped. It still runs in the "
            "background: restart the kernel (menu Kernel, Restart Kernel)"
        )
    return text
