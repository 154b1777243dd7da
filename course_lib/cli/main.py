"""What can be typed after ``course``? The table of commands, the help page, and how a command ends.

A new command is one row in COMMANDS. Its module is imported when the command is called, so that the help
page comes at once. In its module a command is a ``click`` command whose ``epilog`` is its example:

    @click.command(epilog="Example: course doctor --json")
    @json_option
    def doctor(as_json: bool) -> int | None:
        \"\"\"Check this computer.\"\"\"

Exit status: 0, or what the command returns (an int) or passes to ``ctx.exit``; 2 for input that cannot be
used (CourseError, a wrong option, a file that cannot be read); 130 after Ctrl-C.
"""

import difflib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import click

from course_lib import __version__
from course_lib.errors import CourseError


class Command(NamedTuple):
    """One row of the table: where the help page lists the command, and where its code is."""

    section: str
    target: str  # "module:attribute"
    help: str


SECTIONS = {
    "Learn": "course lab",
    "Take home": "course doctor",
    "Author": "course run 00_start --quick",
}  # section of the help page -> its example

COMMANDS = {
    "lab": Command("Learn", "course_lib.cli.learn:lab", "Open the lessons in JupyterLab."),
    "progress": Command("Learn", "course_lib.cli.learn:progress", "Show which exercises are done."),
    "doctor": Command(
        "Take home", "course_lib.cli.doctor:doctor", "Check this computer, and say how to cure it."
    ),
    "explain": Command("Take home", "course_lib.cli.explain:explain", "Say what an error or dump means."),
    "watch": Command("Take home", "course_lib.cli.watch:watch", "Show cards, cores and memory, live."),
    "calibrate": Command(
        "Take home", "course_lib.cli.calibrate:calibrate", "Measure this machine, to predict its step times."
    ),
    "plan": Command("Take home", "course_lib.cli.plan:plan", "Say which cards a model fits, without one."),
    "tune": Command("Take home", "course_lib.cli.tune:tune", "Find the fastest DataLoader settings here."),
    "remedies": Command(
        "Take home", "course_lib.cli.remedies:remedies", "Rank what would make a model fit a card."
    ),
    "cost": Command("Take home", "course_lib.cli.cost:cost", "Say what hours of computing cost, all in all."),
    "cards": Command("Take home", "course_lib.cli.cards:cards", "List cards, or tell all about one."),
    "script": Command("Take home", "course_lib.cli.script:script", "Write a script for one card, or many."),
    "prove": Command("Take home", "course_lib.cli.prove:prove", "Say whether a training step is right."),
    "build": Command("Author", "course_lib.cli.author:build", "Make the notebooks from their sources."),
    "links": Command("Author", "course_lib.cli.links:links", "Make it open on Binder, Colab and Kaggle."),
    "run": Command("Author", "course_lib.cli.run:run", "Run lessons from top to bottom, with a report."),
}


class CourseGroup(click.Group):
    """A click group that reads its commands from a table and imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None when the table has no such row."""
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        module, attribute = row.target.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown name is answered with the names that are near it."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name.lower(), COMMANDS, n=3)
            advice = (
                f"Did you mean {' or '.join(near)}?" if near else f"The commands are {', '.join(COMMANDS)}."
            )
            raise click.UsageError(f"There is no command {name!r}. {advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of the help page without importing any command."""
        for section, example in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(n, row.help) for n, row in COMMANDS.items() if row.section == section])
                formatter.write_paragraph()
                formatter.write_text(f"Example: {example}")


@click.group(
    cls=CourseGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="More about one command: course COMMAND --help",
)
@click.version_option(__version__, prog_name="course", message="%(prog)s %(version)s")
@click.pass_context
def course(ctx: click.Context) -> None:
    """Train faster without a bigger card: a hands-on course, and the tools behind it."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the ``course`` command with these arguments (default: the command line's) and exit."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        # A console without UTF-8 (older Windows) prints a question mark instead of failing on a letter.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(_run(arguments))


def _open_what_is_closed() -> None:
    """A service may start a program with its standard streams closed: Python has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - stays open


def _run(arguments: Sequence[str] | None) -> int:
    """The exit status; every end that is not a mistake of the course itself is told in one line."""
    try:
        status = course.main(
            args=list(arguments) if arguments is not None else None, prog_name="course", standalone_mode=False
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except CourseError as error:
        return _say(str(error), 2)
    except click.UsageError as error:
        where = f" (See: {error.ctx.command_path} --help)" if error.ctx else ""
        return _say(error.format_message() + where, 2)
    except click.ClickException as error:
        return _say(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return _say("stopped.", 130)
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        reason = error.strerror or str(error)
        return _say(f"{error.filename}: {reason}." if error.filename else f"{reason}.", 2)


def _say(sentence: str, status: int) -> int:
    click.echo(f"course: {sentence}", err=True)
    return status


def _reader_left() -> int:
    """``course ... | head`` closes the pipe early: say nothing, and end as click does."""
    # The interpreter flushes stdout once more when it ends; give it somewhere to write to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
