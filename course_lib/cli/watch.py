"""How are cards and cores doing right now? ``course watch`` shows a table that renews itself."""

import json
import shutil
import sys
import time
from dataclasses import asdict

import click

from course_lib.cli.output import fitted, json_option, print_json, text_width
from course_lib.cli.values import Finite
from course_lib.diagnose.gpu_status import GpuStatus, live_status
from course_lib.diagnose.host_load import HostLoad, host_load
from course_lib.errors import CourseError

_HOME_AND_CLEAR = "\x1b[H\x1b[J"


@click.command(epilog="Example: course watch --interval 5")
@click.option(
    "--interval",
    type=Finite(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Look once and end.")
@json_option
def watch(interval: float, once: bool, as_json: bool) -> None:
    """Show NVIDIA cards, cores and memory, renewed until Ctrl-C.

    Without an NVIDIA card it shows the computer's cores and memory. With --json, one object for each look, a
    line each.
    """
    live = not once and not as_json and sys.stdout.isatty()
    first = True
    while True:
        host = host_load(0.3 if first else None)
        cards, reason = _cards()
        answer = {
            "host": asdict(host),
            "cards": None if cards is None else cards.to_json(),
            "no_cards": reason,
        }
        if as_json and once:
            print_json(answer)
        elif as_json:
            click.echo(json.dumps(answer, allow_nan=False))
        else:
            text = fitted(table(host, cards, reason))
            click.echo(_HOME_AND_CLEAR + _on_the_screen(text) if live else text)
        if once:
            return
        first = False
        sys.stdout.flush()
        time.sleep(interval)


def _cards() -> tuple[GpuStatus | None, str | None]:
    try:
        return live_status(), None
    except CourseError as error:
        return None, str(error)


def table(host: HostLoad, cards: GpuStatus | None, reason: str | None) -> str:
    """The table as text: a line a card, then cores and memory; without cards, why there are none."""
    busy = sum(host.core_percent) / max(len(host.core_percent), 1)
    each = " ".join(f"{core:.0f}" for core in host.core_percent)
    lines = [
        f"{len(host.core_percent)} cores, {host.usable_cores} usable, {busy:.0f} % busy ({each})",
        f"memory {host.memory_used_mib:.0f} of {host.memory_total_mib:.0f} MiB in use, "
        f"{host.available_mib:.0f} available; swap {host.swap_used_mib:.0f} MiB",
    ]
    if cards is None:
        return "\n".join([*lines, f"No NVIDIA card to read. {reason}"])
    return "\n".join([cards.in_lines(text_width()), *lines])


def _on_the_screen(text: str) -> str:
    """The lines that fit, so that the next look can be written over them."""
    height = shutil.get_terminal_size().lines - 1
    lines = text.split("\n")
    if len(lines) <= height:
        return text
    return "\n".join([*lines[: height - 1], f"... {len(lines) - height + 1} more lines"])
