"""Is my training step right? ``course prove`` compares it with the large batch, and names what is wrong."""

import sys
from pathlib import Path

import click

from course_lib.cli.output import fitted, json_option
from course_lib.cli.values import Finite
from course_lib.errors import CourseError


@click.command(
    epilog="Example: course prove my_step.py:train --accumulate 8     or: ... --ranks 7,5 --tokens"
)
@click.argument("step", metavar="FILE.py[:FUNCTION]")
@click.option(
    "--accumulate",
    type=click.IntRange(1, 1000),
    help="Micro-batches in one update: what the step is meant to have.",
)
@click.option("--tokens", is_flag=True, help="The loss is the mean over tokens; the data are unequal texts.")
@click.option("--ranks", metavar="N,N", help="Run it on several ranks, with so many micro-batches each.")
@click.option("--max-norm", type=Finite(0, 1e6, min_open=True), help="What gradients are clipped to.")
@click.option(
    "--time-limit", type=Finite(1, 3600), default=60, show_default=True, help="Seconds, then it is ended."
)
@json_option
def prove(  # noqa: PLR0917 - click gives them by name
    step: str,
    accumulate: int | None,
    tokens: bool,
    ranks: str | None,
    max_norm: float | None,
    time_limit: float,
    as_json: bool,
) -> int:
    """Compare a training step with one large batch, in float64, and name its faults.

    The function asks by name for what it needs: model, loader, optimizer, and criterion, scheduler, scaler,
    accumulation_steps, max_norm where it uses them. It is called once an epoch; with `window` in place of
    `loader`, once an update with a list of micro-batches. It runs in a process of its own, on a small
    network and made-up data; a `reference = Reference(...)` in the file says otherwise. No GPU is needed.

    Exit status: 0 when the step is right, 1 when it has faults, 2 when it cannot be run.
    """
    from course_lib.train.equivalence import Reference
    from course_lib.train.equivalence import prove as prove_step

    given: dict[str, object] = {}
    if accumulate is not None:
        given["accumulation_steps"] = accumulate
        given["micro_batches"] = 3 * accumulate - 1 if accumulate > 1 else 6
    if tokens:
        given["weight_by"] = "tokens"
    if ranks is not None:
        given["ranks"] = _numbers(ranks)
    if max_norm is not None:
        given["max_norm"] = max_norm
    sys.path.insert(0, str(Path.cwd()))  # the learner's own module:function
    reference = Reference(**given) if given else None  # type: ignore[arg-type]  # checked there
    proof = prove_step(step, reference, time_limit_s=time_limit)
    click.echo(proof.to_json() if as_json else fitted(str(proof)))
    return 0 if proof.equivalent else 1


def _numbers(text: str) -> tuple[int, ...]:
    """The micro-batches of each rank. What they may be is asked here too, to name the option."""
    from course_lib.train.equivalence.reference import MOST_BATCHES, MOST_RANKS

    parts = [part.strip() for part in text.split(",")]
    if 2 <= len(parts) <= MOST_RANKS and all(part.isdecimal() and part.isascii() for part in parts):
        numbers = tuple(int(part) for part in parts if len(part) < 10)
        if len(numbers) == len(parts) and all(1 <= number <= MOST_BATCHES for number in numbers):
            return numbers
    raise CourseError(
        f"--ranks takes the number of micro-batches of each of 2 to {MOST_RANKS} ranks, each from 1 to "
        f"{MOST_BATCHES:,}, as in 7,5; {text[:40]!r} is not that."
    )
