"""Which cards does the course know, and what does it know of one? ``course cards``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from course_lib.cli.output import fitted, json_option, print_json

if TYPE_CHECKING:
    from course_lib.accelerators import Accelerator
    from course_lib.plan.prices import Offer

KINDS = ("consumer", "laptop", "workstation", "datacenter", "tpu", "shared memory")


@click.command(epilog="Example: course cards 3090")
@click.argument("name", nargs=-1)
@click.option("--kind", type=click.Choice(KINDS), help="List the cards of one kind only.")
@json_option
def cards(name: tuple[str, ...], kind: str | None, as_json: bool) -> None:
    """List the cards of the catalogue, or tell all about the card NAME, with its prices and sources."""
    from course_lib.accelerators import accelerators, find
    from course_lib.plan.card_page import describe
    from course_lib.plan.prices import offers_for

    if name:
        card = find(" ".join(name))
        if as_json:
            print_json(_data(card, offers_for(card)))
        else:
            click.echo(fitted(describe(card)))
        return
    chosen = [card for card in accelerators() if kind in (None, card.kind)]
    if as_json:
        print_json([_data(card, offers_for(card)) for card in chosen])
    else:
        click.echo(fitted(table(chosen)))


def _data(card: Accelerator, offers: tuple[Offer, ...]) -> dict[str, object]:
    return {
        **asdict(card),
        "memory_gib": card.memory_gib,
        "offers": [{**asdict(offer), "per": offer.per, "old": offer.is_old()} for offer in offers],
    }


def table(chosen: list[Accelerator]) -> str:
    """The cards as lines: what decides whether a step fits, and how fast it may be."""
    lines = [f"{'card':<26}{'usable':>10}{'GB/s':>8}{'16 bit':>8}{'FP32':>8}{'W':>6}  {'launch':<9}kind"]
    lines += [
        f"{card.name:<26}{card.usable_bytes / 2**30:>6.1f} GiB"
        + f"{_cell(card.bandwidth_gb_s, 0):>8}{_cell(card.fp16_tflops or card.bf16_tflops):>8}"
        + f"{_cell(card.fp32_tflops):>8}"
        + f"{_cell(card.tdp_w, 0):>6}  {card.launch:<9}{card.kind}"
        for card in chosen
    ]
    lines += [
        "",
        f"{len(chosen)} cards. 16 bit (FP16 or BF16) and FP32: dense peaks in TFLOPS, "
        "with FP32 accumulation. -: not known.",
    ]
    return "\n".join(lines)


def _cell(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
