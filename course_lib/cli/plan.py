"""What does a learner type before a run? ``course plan`` says which cards a model fits, and how long a step
takes there, without a GPU.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from course_lib.cli.output import fitted, json_option, print_json
from course_lib.cli.step_options import step_options, workload_of
from course_lib.cli.values import Finite
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.accelerators import Accelerator
    from course_lib.plan.memory import MemoryPlan
    from course_lib.plan.scaling import ScaledStep
    from course_lib.plan.step_time import StepTime
    from course_lib.plan.step_work import StepWork

THIS_MACHINE = "this machine"


@click.command(epilog="Example: course plan resnet50 --batch 64 --precision fp16 --on 'RTX 3090'")
@click.argument("model")
@step_options
@click.option(
    "--checkpoint",
    "checkpointing",
    is_flag=True,
    help="Recompute activations in the backward pass instead of keeping them.",
)
@click.option("--channels-last", is_flag=True, help="Keep images in channels-last layout.")
@click.option(
    "--on",
    "cards",
    multiple=True,
    metavar="CARD",
    help="A card, such as 'RTX 3090', or 'this machine' (after course calibrate). May be given more than "
    "once.",
)
@click.option("--largest-batch", is_flag=True, help="Also find the largest micro-batch that fits each card.")
@click.option(
    "--gpus", type=click.IntRange(1, 65_536), default=1, show_default=True, help="Cards that train together."
)
@click.option("--interconnect", metavar="LINK", help="What joins them, such as 'NVLink 3' or 'PCIe 4.0'.")
@click.option(
    "--nodes", type=click.IntRange(1, 8192), default=1, show_default=True, help="Computers they stand in."
)
@click.option("--network", metavar="LINK", help="What joins the computers, such as 'Ethernet 10G'.")
@click.option(
    "--samples",
    type=click.IntRange(1, 10**13),
    help="Samples in one epoch: also tell hours and cost, on all cards.",
)
@click.option("--epochs", type=Finite(0, 1e6, min_open=True), help="Epochs of the training (with --samples).")
@json_option
def plan(  # noqa: PLR0917 - click gives them by name
    model: str,
    cards: tuple[str, ...],
    largest_batch: bool,
    gpus: int,
    interconnect: str | None,
    nodes: int,
    network: str | None,
    samples: int | None,
    epochs: float | None,
    as_json: bool,
    **step: Any,
) -> None:
    """Say how much memory and time a training step of MODEL needs, and which cards it fits.

    MODEL is a torchvision model (resnet50), timm:NAME, transformers:TYPE, a config.json, gpt, cnn, or
    your own as module:factory. Nothing is downloaded and nothing is computed: this works without a GPU.
    "Total" is what nvidia-smi would show; "safe" leaves room for what cuDNN may choose. A card fits if
    the safe figure does. The time has an interval in which nine of ten measurements lay. With --samples and
    --epochs it looks at every card it knows, unless --on names some.
    """
    from course_lib.accelerators import find_accelerator
    from course_lib.cli.plan_table import Row, table, whole_job_table
    from course_lib.plan.batch_size import largest_batch as find_largest
    from course_lib.plan.batch_size import plan_workload, traces_of
    from course_lib.plan.job import job_on
    from course_lib.plan.step_work import step_work

    whole = _whole_job(samples, epochs)
    if gpus == 1 and (interconnect is not None or nodes > 1 or network is not None):
        raise CourseError(
            "--interconnect, --nodes and --network are about several cards: say how many with --gpus."
        )
    chosen = [None if _means_this_machine(name) else find_accelerator(name) for name in cards]
    workload = workload_of(model, **step)
    traces = traces_of(workload)
    work = step_work(traces.exact(step["micro_batch"]))
    rows = []
    plans: dict[int, MemoryPlan] = {}  # cards with as much memory share their plan
    for card in chosen or (_every_card() if whole else _usual_cards()):
        made = None
        if card:
            size = card.usable_bytes
            plans[size] = plans[size] if size in plans else plan_workload(workload, card, traces=traces)
            made = replace(plans[size], card=card.name)
        largest = find_largest(workload, card, traces=traces) if card and largest_batch else None
        time, untimed = _time(work, card, step["optimizer"], step["accumulate"])
        scaled = _scale(time, card, gpus, interconnect, nodes, network) if time and gpus > 1 else None
        job = job_on(card, time, *whole) if whole and card and time and made and made.fits else None
        name = card.name if card else time.card if time else ""
        rows.append(Row(name, made, largest, time, scaled, untimed, job))
    if as_json:
        print_json([row.to_json() for row in rows])
    else:
        click.echo(fitted(whole_job_table(rows) if whole else table(rows)))


def _whole_job(samples: int | None, epochs: float | None) -> tuple[int, float] | None:
    if samples is None and epochs is None:
        return None
    if samples is None or epochs is None:
        raise CourseError("A whole training is --samples and --epochs: give both, or neither.")
    return samples, epochs


def _every_card() -> "list[Accelerator]":
    from course_lib.accelerators import accelerators

    return list(accelerators())


def _means_this_machine(name: str) -> bool:
    return name.strip().lower().replace("-", " ") == THIS_MACHINE


def _time(
    work: "StepWork", card: "Accelerator | None", optimizer: str, accumulate: int
) -> "tuple[StepTime | None, str]":
    """The predicted time on a card, or on this machine by its calibration; or why there is none."""
    from course_lib.plan.speed import predict

    if card is None:
        return _time_here(work, optimizer, accumulate), ""
    try:
        return predict(work, card, optimizer=optimizer, accumulate=accumulate), ""
    except CourseError as error:  # the table does not hold what the card's speed depends on
        return None, str(error)


def _time_here(work: "StepWork", optimizer: str, accumulate: int) -> "StepTime":
    from course_lib.plan.calibrate import load_calibration
    from course_lib.plan.speed import predict
    from course_lib.teach.workspace import learner_folder

    found = load_calibration(learner_folder())
    if found is None:
        raise CourseError(
            "This machine has not been measured yet; run `course calibrate` first (two minutes)."
        )
    return predict(
        work, found.rates, optimizer=optimizer, accumulate=accumulate, coefficients=found.coefficients
    )


def _scale(  # noqa: PLR0917 - the options as they come
    time: "StepTime",
    card: "Accelerator | None",
    gpus: int,
    interconnect: str | None,
    nodes: int,
    network: str | None,
) -> "ScaledStep":
    from course_lib.plan.interconnects import interconnect_of
    from course_lib.plan.scaling import scale

    if interconnect is None and card is None:
        raise CourseError("Say what joins the cards of this machine: --interconnect 'PCIe 4.0', for example.")
    link = interconnect if interconnect is not None or card is None else interconnect_of(card)
    assert link is not None
    return scale(time, gpus, link, nodes=nodes, network=network)


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
