"""What does a learner type before a run? ``course plan`` says whether a model fits a card, without a GPU."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from course_lib.cli.output import json_option, print_json

if TYPE_CHECKING:
    from course_lib.accelerators import Accelerator
    from course_lib.plan.memory import MemoryPlan


@click.command(epilog="Example: course plan resnet50 --batch 64 --precision fp16 --on 'RTX 3090'")
@click.argument("model")
@click.option(
    "--batch", type=click.IntRange(1), default=32, show_default=True, help="Samples in one micro-batch."
)
@click.option(
    "--image-size", type=click.IntRange(1), help="Height and width of the images, for image models."
)
@click.option("--sequence", type=click.IntRange(1), help="Tokens in one sample, for text models.")
@click.option(
    "--precision",
    default="fp32",
    show_default=True,
    help="fp32, tf32, fp16 or bf16 (the last two: autocast).",
)
@click.option("--optimizer", default="sgd", show_default=True, help="sgd (with momentum), adam, adamw, ...")
@click.option(
    "--accumulate", type=click.IntRange(1), default=1, show_default=True, help="Micro-batches in one step."
)
@click.option(
    "--checkpoint", is_flag=True, help="Recompute activations in the backward pass instead of keeping them."
)
@click.option("--channels-last", is_flag=True, help="Keep images in channels-last layout.")
@click.option(
    "--on",
    "cards",
    multiple=True,
    metavar="CARD",
    help="A card, such as 'RTX 3090'. May be given more than once.",
)
@click.option("--largest-batch", is_flag=True, help="Also find the largest micro-batch that fits each card.")
@json_option
def plan(  # noqa: PLR0917 - click gives them by name
    model: str,
    batch: int,
    image_size: int | None,
    sequence: int | None,
    precision: str,
    optimizer: str,
    accumulate: int,
    checkpoint: bool,
    channels_last: bool,
    cards: tuple[str, ...],
    largest_batch: bool,
    as_json: bool,
) -> None:
    """Say how much memory a training step of MODEL needs, and which cards it fits.

    MODEL is a torchvision model (resnet50), timm:NAME, transformers:TYPE, a config.json, gpt, cnn, or
    your own as module:factory. Nothing is downloaded and nothing is computed: this works without a GPU.
    "Total" is what nvidia-smi would show; "safe" leaves room for what cuDNN may choose. A card fits if
    the safe figure does.
    """
    from course_lib.accelerators import find_accelerator
    from course_lib.plan.batch_size import largest_batch as find_largest
    from course_lib.plan.batch_size import plan_workload, traces_of
    from course_lib.plan.model_names import named_workload

    chosen = [find_accelerator(name) for name in cards]
    sys.path.insert(0, str(Path.cwd()))  # the learner's own module:factory
    workload = named_workload(
        model,
        image_size=image_size,
        sequence=sequence,
        optimizer=optimizer,
        precision=precision,
        micro_batch=batch,
        accumulate=accumulate,
        checkpointing=checkpoint,
        channels_last=channels_last,
    )
    traces = traces_of(workload)
    rows = []
    for card in chosen or _usual_cards():
        made = plan_workload(workload, card, traces=traces)
        rows.append((made, find_largest(workload, card, traces=traces) if largest_batch else None))
    if as_json:
        print_json([{**made.to_json(), "largest_batch": largest} for made, largest in rows])
    else:
        click.echo(_table(rows))


def _usual_cards() -> "list[Accelerator]":
    """The learner's own card first, if there is one, then the common ones."""
    from course_lib.accelerators import common_accelerators

    own = _own_card()
    return ([own] if own else []) + [
        card for card in common_accelerators() if own is None or card.name != own.name
    ]


def _own_card() -> "Accelerator | None":
    import torch

    from course_lib.accelerators import Accelerator, find_accelerator
    from course_lib.errors import CourseError

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    try:
        return find_accelerator(properties.name, properties.total_memory)
    except CourseError:  # a card that the table does not hold tells its memory itself
        total = properties.total_memory
        capability = f"{properties.major}.{properties.minor}"
        return Accelerator(
            properties.name,
            "",
            "",
            capability,
            round(total / 1e9, 1),
            total // 2**20,
            False,
            "read from this machine",
        )


def _table(rows: "Sequence[tuple[MemoryPlan, int | None]]") -> str:
    first = rows[0][0]
    lines = [
        f"{first.model}, batch {first.batch_size}"
        + (f" x {first.accumulate}" if first.accumulate > 1 else "")
        + f", {first.precision}, {first.optimizer}",
        "",
        f"{'card':<16}{'total':>12}{'safe':>12}{'card has':>12}  {'':<14}"
        + ("largest batch" if rows[0][1] is not None else ""),
    ]
    for made, largest in rows:
        verdict = "fits" if made.fits else "tight" if made.tight else "does not fit"
        lines.append(
            f"{made.card:<16}"
            + "".join(f"{size / 2**20:>8,.0f} MiB" for size in (made.total, made.safe, made.capacity))
            + f"  {verdict:<14}"
            + ("" if largest is None else f"{largest:,}")
        )
    lines += ["", f"Where it goes, on {first.card}:"]
    lines += [f"{part.nbytes / 2**20:>8,.0f} MiB  {part.name} ({part.origin})" for part in first.parts]
    alive = ", ".join(f"{name} {nbytes / 2**20:,.0f}" for name, nbytes in first.timeline.alive)
    lines += ["", f"Alive at the peak ({first.timeline.phase} pass), MiB: {alive}"]
    if first.timeline.largest:
        top = first.timeline.largest[0]
        place = f"{top.module or 'the model'} {top.line}".rstrip()
        lines.append(f"Largest: {top.nbytes / 2**20:,.0f} MiB {top.category} {top.shape} in {place}")
    if any(not made.fits for made, _ in rows):
        lines += ["", "Tight means: try it. The typical figure fits, the safe one does not."]
    lines.append("How far such a prediction is off, measured on public data: docs/accuracy.md")
    return "\n".join(lines)
