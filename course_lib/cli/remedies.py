"""What does a learner type when a model does not fit? ``course remedies`` ranks what would help."""

import sys
from pathlib import Path

import click

from course_lib.cli.output import fitted, json_option, print_json


@click.command(epilog="Example: course remedies resnet50 --batch 256 --on 'RTX 3060 12GB'")
@click.argument("model")
@click.option("--on", "card", required=True, metavar="CARD", help="The card that it must fit, such as T4.")
@click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    default=32,
    show_default=True,
    help="Samples in one micro-batch.",
)
@click.option(
    "--accumulate",
    type=click.IntRange(1, 4096),
    default=1,
    show_default=True,
    help="Micro-batches in one step.",
)
@click.option("--image-size", type=click.IntRange(1, 16_384), help="Height and width of the images.")
@click.option("--sequence", type=click.IntRange(1, 1_048_576), help="Tokens in one sample, for text models.")
@click.option("--precision", default="fp32", show_default=True, help="fp32, tf32, fp16 or bf16.")
@click.option("--optimizer", default="adamw", show_default=True, help="sgd (with momentum), adam, adamw, ...")
@json_option
def remedies(  # noqa: PLR0917 - click gives them by name
    model: str,
    card: str,
    batch: int,
    accumulate: int,
    image_size: int | None,
    sequence: int | None,
    precision: str,
    optimizer: str,
    as_json: bool,
) -> None:
    """Rank what would make a training step of MODEL fit a card.

    MODEL is named as for course plan. Each remedy comes with the memory that the step then needs, the extra
    work, and what it changes in the training; the first that fits is named. The model is traced some ten
    times, which takes half a minute; what is being traced is told on the way.
    """
    from course_lib.accelerators import find_accelerator
    from course_lib.plan.model_names import named_workload
    from course_lib.plan.remedies import remedies as find_remedies

    chosen = find_accelerator(card)
    sys.path.insert(0, str(Path.cwd()))  # the learner's own module:factory
    workload = named_workload(
        model,
        image_size=image_size,
        sequence=sequence,
        optimizer=optimizer,
        precision=precision,
        micro_batch=batch,
        accumulate=accumulate,
    )
    found = find_remedies(workload, chosen, progress=lambda what: click.echo(f"tracing {what}", err=True))
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(fitted(str(found)))
