"""How many workers should my loader have? ``course tune`` tries a data set on this machine and says."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from course_lib.cli.output import json_option, print_json
from course_lib.errors import CourseError


@click.command(epilog="Example: course tune my_data:train_set --batch 64 --step-ms 18")
@click.argument("dataset", metavar="MODULE:DATASET")
@click.option("--batch", type=click.IntRange(1), help="Samples in a batch; by default the loader's, or 32.")
@click.option(
    "--step-ms",
    type=click.FloatRange(0, 600_000),
    default=0.0,
    show_default=True,
    help="How long your training step takes, in milliseconds. 0: load as fast as possible.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Time for the trials. Most data sets need a few seconds.",
)
@json_option
def tune(dataset: str, batch: int | None, step_ms: float, seconds: float, as_json: bool) -> None:
    """Find the DataLoader settings that are fastest for DATASET on this machine, by a few short trials.

    MODULE is a Python file of yours in this folder, without its ending, or an installed module. DATASET is a
    data set or a DataLoader in it, or a function without arguments that makes one. Your step is emulated: it
    takes --step-ms and leaves the processor free, as a card does.
    """
    from course_lib.train.emulate import EmulatedStep
    from course_lib.train.loading import tune as find_settings

    tuned = find_settings(
        load_dataset(dataset),
        EmulatedStep(step_ms / 1000),
        batch_size=batch,
        budget_seconds=seconds,
        progress=not as_json and sys.stderr.isatty(),
    )
    if as_json:
        print_json(json.loads(tuned.to_json()))
    else:
        click.echo(str(tuned))


def load_dataset(name: str) -> Any:
    """The data set or loader that "module:name" names. Raises CourseError when there is none."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute.isidentifier():
        raise CourseError(f'{name!r} names no data set: write "module:dataset", as in my_data:train_set.')
    sys.path.insert(0, str(Path.cwd()))  # workers that start anew get this path too
    try:
        found = getattr(importlib.import_module(module_name), attribute, None)
    except Exception as error:  # whatever the learner's own module raises
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CourseError(f"The module {module_name!r} cannot be imported here ({told}).") from error
    if found is None:
        raise CourseError(f"There is no {attribute!r} in {module_name}: check its spelling.")
    is_data = hasattr(found, "__getitem__") or hasattr(found, "__iter__")
    if isinstance(found, type) or not is_data:
        found = _made_by(found, name)
    return found


def _made_by(factory: Any, name: str) -> Any:
    if not callable(factory):
        raise CourseError(
            f"{name} is a {type(factory).__name__}: give a data set, a DataLoader, or a function."
        )
    try:
        return factory()
    except Exception as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CourseError(f"{name}() made no data set ({told}): it must need no arguments.") from error
