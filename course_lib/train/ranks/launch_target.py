"""Can this be launched, and with these settings? All that can be known before a process is started.

A rank imports the file of its target. Where that file launches again, because its main guard is missing, each
rank would start new ranks, without end: `LAUNCHES` tells each process which launches it is part of.
"""

import json
import os
from collections.abc import Mapping, Sequence
from importlib import invalidate_caches
from importlib.util import find_spec
from typing import Any

from course_lib.errors import CourseError
from course_lib.machine import usable_memory_bytes

CALL_IN_TURN = "course_lib.train.ranks.launch_rank:call_in_turn"
MOST_RANKS = 16
MOST_LAUNCHES = 2
"""How deep: a rank may launch, and what it launches may not."""

LAUNCHES = "COURSE_LIB_LAUNCHES"
"""The variable that holds the launches a process is part of, the outermost first: JSON, a list of
[run id, modules].
"""


def most_ranks() -> int:
    """How many ranks this computer has memory for, at about 1 GiB each: 2 in any case, 4 from 4 GiB on."""
    return min(MOST_RANKS, max(2, usable_memory_bytes() // 2**30))


def check_target(target: object, arguments: object, args: object) -> str:
    """The module of a target that ranks can import, for these arguments. Raises CourseError for another."""
    if not isinstance(target, str) or target.partition(":")[0] == "__main__":
        raise CourseError(
            f"{target!r} cannot be launched: each rank is a process of its own that imports its code, so "
            'write the function into a .py file, and name it as "module:function".'
        )
    file = target.replace("\\", "/").rpartition("/")[2]
    module, _, name = file.partition(":")
    if file != target or module.endswith(".py"):
        as_module = f"{module.removesuffix('.py') or 'train'}:{name or 'main'}"
        raise CourseError(
            f"{target!r} names a file, and a module is needed: its name without folder and .py, as in "
            f"{as_module!r}. Its folder must be the one you work in, or be on sys.path."
        )
    invalidate_caches()  # the file may have been written a moment ago
    try:
        found = module and find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise CourseError(f"The module {module!r} cannot be imported: check its name and its folder.")
    if ":" in target and not name.isidentifier():
        raise CourseError(f'{target!r} is no function to import: write "module:function".')
    if isinstance(args, str) or not isinstance(args, Sequence) or not all(isinstance(a, str) for a in args):
        raise CourseError(f'`args` is a list of texts, as in ["--epochs", "2"], not {args!r}.')
    if arguments is not None and not isinstance(arguments, Mapping):
        raise CourseError(f'`arguments` is a dictionary, as in {{"steps": 20}}, not {arguments!r}.')
    if name and args:
        raise CourseError("A function takes `arguments`; `args` are for a module.")
    if arguments and not name:
        raise CourseError(
            f'A module takes `args`; `arguments` are for a function of it, as in "{module}:main".'
        )
    return module


def check_settings(nproc: object, time_limit_s: object, max_restarts: object) -> None:
    """Raises CourseError for a number of ranks, a limit or a number of restarts that cannot be."""
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (nproc, max_restarts))
    seconds = isinstance(time_limit_s, int | float) and not isinstance(time_limit_s, bool)
    if (
        not (whole and seconds)
        or nproc < 1  # type: ignore[operator]
        or not time_limit_s > 0  # type: ignore[operator]
        or max_restarts < 0  # type: ignore[operator]
    ):
        raise CourseError(
            "Give 1 rank or more, a positive time limit, and 0 restarts or more, as plain numbers, not "
            f"{nproc!r}, {time_limit_s!r} s and {max_restarts!r}."
        )
    if nproc > most_ranks():  # type: ignore[operator]
        raise CourseError(
            f"{nproc} ranks take about 1 GiB of memory each, and there is room for {most_ranks()} here: "
            "start fewer."
        )


def within(run_id: str, modules: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """What LAUNCHES is for the ranks of a launch of these modules, that a process of `environment` starts.

    Raises:
        CourseError: this process is a rank of a launch of one of them already, or of one launch too many.
    """
    outer: list[tuple[str, list[str]]] = json.loads(environment.get(LAUNCHES, "[]"))
    launched = {module for _, its in outer for module in its}
    for module in modules:
        if module in launched:
            raise CourseError(
                f"{module!r} is launched already, and this is one of its ranks, which would launch it again, "
                'without end: put launch(...) under if __name__ == "__main__": in that file, or into '
                "another file."
            )
    if len(outer) >= MOST_LAUNCHES:
        raise CourseError(
            f"This is a launch within {MOST_LAUNCHES} others: a rank may launch, and what it launches may "
            'not. If that is not meant, put launch(...) under if __name__ == "__main__":.'
        )
    return json.dumps([*outer, (run_id, list(modules))])


def modules_of(target: str, arguments: Mapping[str, Any] | None) -> list[str]:
    """The modules that the ranks of a launch import; those of each call in a launch of several in turn."""
    if target == CALL_IN_TURN and arguments:
        return [called.partition(":")[0] for called, _ in arguments.get("calls", ())]
    return [target.partition(":")[0]]
