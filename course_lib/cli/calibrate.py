"""How does a learner measure their own machine? ``course calibrate``, two minutes at most, once."""

import click

from course_lib.cli.output import json_option, print_json
from course_lib.cli.values import Finite


@click.command(epilog="Example: course calibrate --device cpu")
@click.option("--device", help="cpu, cuda or mps; the best one of this machine if not given.")
@click.option(
    "--seconds",
    type=Finite(5, 120),
    default=90,
    show_default=True,
    help="Most seconds that it may take.",
)
@json_option
def calibrate(device: str | None, seconds: float, as_json: bool) -> None:
    """Measure this machine, so that step times can be predicted for it.

    Small networks are trained for a few steps. Let nothing else run meanwhile. The result is kept in your
    course folder; `course plan MODEL --on "this machine"` uses it.
    """
    from course_lib.plan.calibrate import calibrate as measure
    from course_lib.teach.workspace import learner_folder

    def show(text: str) -> None:
        click.echo(f"  {text} ...", err=True)

    made = measure(device, seconds=seconds, progress=show)
    path = made.save(learner_folder())
    if as_json:
        print_json({**made.to_json(), "saved": str(path)})
    else:
        click.echo(f"{made}\nSaved in {path}. Now: course plan resnet50 --on 'this machine'")
