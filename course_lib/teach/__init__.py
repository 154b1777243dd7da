"""The course itself: exercises, verdicts, lessons, labs, and the learner's own folder.

A lesson imports what its cells use from here: ``from course_lib.teach import check, hint, judge, solution``.
Each name is fetched from its module when it is first asked for, so importing this package costs nothing.
In a notebook, importing it also makes a CourseError show as its sentence (``short_errors``).
"""

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.teach.exercises.checking import check, hint, solution
    from course_lib.teach.verdicts import judge

__all__ = ["check", "hint", "judge", "solution"]

_HOME = {
    "check": "course_lib.teach.exercises.checking",
    "hint": "course_lib.teach.exercises.checking",
    "solution": "course_lib.teach.exercises.checking",
    "judge": "course_lib.teach.verdicts",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    from course_lib.teach.short_errors import show_short_errors

    show_short_errors(_shell)
