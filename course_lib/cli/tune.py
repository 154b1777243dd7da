"""How many workers should my loader have? ``course tune`` tries a data set on this machine and says."""

import importlib
import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import click

from course_lib.cli.output import json_option, print_json
from course_lib.cli.values import Finite
from course_lib.errors import CourseError

MOST_IN_A_BATCH = 1_000_000
TERMINATED = 128 + signal.SIGTERM  # the exit status, as a shell tells it
_ABSENT = object()


@click.command(epilog="Example: course tune my_data:train_set --batch 64 --step-ms 18")
@click.argument("dataset", metavar="MODULE:DATASET")
@click.option(
    "--batch",
    type=click.IntRange(1, MOST_IN_A_BATCH),
    help="Samples in a batch; by default the loader's, or 32, or all of a smaller data set.",
)
@click.option(
    "--step-ms",
    type=Finite(0, 600_000),
    default=0.0,
    show_default=True,
    help="How long your training step takes, in milliseconds. 0: load as fast as possible.",
)
@click.option(
    "--seconds",
    type=Finite(1, 3600),
    default=60.0,
    show_default=True,
    help="Time for the trials. Most data sets need a few seconds; the start of workers may add some.",
)
@click.option(
    "--most-workers",
    type=click.IntRange(0, 1024),
    help="How many workers may be tried. By default twice the cores, 8 at least; 32 for a slow storage.",
)
@json_option
def tune(
    dataset: str,
    *,
    batch: int | None,
    step_ms: float,
    seconds: float,
    most_workers: int | None,
    as_json: bool,
) -> None:
    """Find the DataLoader settings that are fastest for DATASET on this machine, by a few short trials.

    MODULE is a Python file of yours, or an installed module. DATASET is a data set or a DataLoader in it,
    or a function without arguments that makes one. Your step is emulated: it takes --step-ms and leaves the
    processor free, as a card does. What your file prints goes to the standard error.
    """
    with _ended_by_sigterm(), _answer_only_on_stdout():
        from course_lib.train.emulate import EmulatedStep  # some seconds, in which it may be asked to end
        from course_lib.train.loading import tune as find_settings

        found = load_dataset(dataset)
        try:
            tuned = find_settings(
                found,
                EmulatedStep(step_ms / 1000),
                batch_size=batch,
                budget_seconds=seconds,
                most_workers=most_workers,
                progress=not as_json and sys.stderr.isatty(),
            )
        except CourseError:
            raise
        except (Exception, SystemExit) as error:  # whatever the learner's own data set raises
            raise CourseError(why_not_loaded(error, dataset)) from error
    if as_json:
        print_json(json.loads(tuned.to_json()))
    else:
        click.echo(str(tuned))


def load_dataset(name: str) -> Any:
    """The data set or loader that "module:name" names. Raises CourseError when there is none."""
    module_name, _, attribute = name.rpartition(":")  # a path may begin with a drive, as in C:
    if not module_name or not attribute.isidentifier():
        raise CourseError(f'{name!r} names no data set: write "module:dataset", as in my_data:train_set.')
    folder = Path.cwd()
    if module_name.endswith(".py"):
        file = Path(module_name).absolute()
        if not file.is_file():
            raise CourseError(f"There is no file {module_name}: check its name and its folder.")
        folder, module_name = file.parent, file.stem
    sys.path.insert(0, str(folder))  # workers that start anew get this path too
    try:
        found = getattr(importlib.import_module(module_name), attribute, _ABSENT)
    except (Exception, SystemExit) as error:  # whatever the learner's own module raises
        raise CourseError(
            f"The module {module_name!r} cannot be imported here ({_first_line(error)})."
        ) from error
    if found is _ABSENT:
        raise CourseError(f"There is no {attribute!r} in {module_name}: check its spelling.")
    is_data = hasattr(found, "__getitem__") or hasattr(found, "__iter__")
    if isinstance(found, type) or not is_data:
        found = _made_by(found, name)
    return found


def why_not_loaded(error: BaseException, name: str) -> str:
    """One sentence on what a data set raised, here or in a worker, and where in the learner's own file."""
    from course_lib.train.loading.faults import KINDS
    from course_lib.train.ranks.launch_result import is_own_code

    text = "\n".join(str(one) for one in _chain(error))
    status = re.search(r"exited unexpectedly with exit code (-?\d+)", text)
    if status is not None:
        return (
            f"A worker that loads {name} ended by itself, with exit status {status[1]}: look for a call that "
            "exits, or a library that fails, in the data set."
        )
    if any(re.search(sign, text) for sign in KINDS["killed_worker"].signs):
        return (
            f"A worker that loads {name} was ended without a word, nearly always because memory ran out: "
            "keep less in the data set, or give a smaller batch."
        )
    kind, said = type(error).__name__, _first_line(error)
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    cure = " ".join(getattr(error, "__notes__", ())) or "let one sample load first, as in dataset[0]."
    if "Original Traceback" in text:  # raised in a worker, whose traceback comes as text
        places = [(file, int(line)) for file, line in re.findall(r'File "(.+?)", line (\d+)', text)]
        kind, _, said = text.strip().splitlines()[-1].partition(": ")
        cure = "raised in a worker; num_workers=0 raises it where a debugger sees it."
    own = [(file, line) for file, line in places if is_own_code(file) and not _is_of_the_course(file)]
    where = f" in {Path(own[-1][0]).name}, line {own[-1][1]}" if own else ""
    if any(re.search(sign, text) for sign in KINDS["different_sizes"].signs):
        cure = "its samples must be cut or padded to one size, in the data set or by a collate_fn."
    return f"{name} raised {kind} ({said.rstrip('. ')}){where}: {cure[0].lower()}{cure[1:]}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it came from: PyTorch tells a worker's exit status in an earlier one."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def _answer_only_on_stdout() -> Iterator[None]:
    """What the learner's file prints, here or in a worker, goes to the standard error."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # a standard output that is closed
        yield
        return
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """End as after Ctrl-C when the system asks, so that no worker is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        usual = signal.getsignal(signal.SIGINT)  # it waits while workers are being started or ended
        if callable(usual):
            usual(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if asked:
            click.get_current_context().exit(TERMINATED)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _made_by(factory: Any, name: str) -> Any:
    if not callable(factory):
        raise CourseError(
            f"{name} is of type {type(factory).__name__}: give a data set, a DataLoader, or a function."
        )
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise CourseError(
            f"{name}() made no data set ({_first_line(error)}): it must need no arguments."
        ) from error


def _first_line(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _is_of_the_course(file: str) -> bool:
    return Path(file).is_relative_to(Path(__file__).parents[1])
