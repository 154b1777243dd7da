"""What does a learner type when a model does not fit? ``course remedies`` ranks what would help."""

from typing import Any

import click

from course_lib.cli.output import fitted, json_option, print_json
from course_lib.cli.step_options import step_options, workload_of


@click.command(epilog="Example: course remedies resnet50 --batch 256 --on 'RTX 3060 12GB'")
@click.argument("model")
@click.option("--on", "card", required=True, metavar="CARD", help="The card that it must fit, such as T4.")
@step_options
@json_option
def remedies(model: str, card: str, as_json: bool, **step: Any) -> None:
    """Rank what would make a training step of MODEL fit a card.

    MODEL is named as for course plan. Each remedy comes with the memory that the step then needs, the extra
    work, and what it changes in the training; the first that fits is named. The model is traced some ten
    times, which takes half a minute; what is being traced is told on the way.
    """
    from course_lib.accelerators import find_accelerator
    from course_lib.plan.remedies import remedies as find_remedies

    chosen = find_accelerator(card)
    workload = workload_of(model, **step)
    found = find_remedies(workload, chosen, progress=lambda what: click.echo(f"tracing {what}", err=True))
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(fitted(str(found)))
