"""What does an author type to see whether the lessons work? ``course run``."""

from pathlib import Path

import click

from course_lib.cli.output import json_option, print_json
from course_lib.cli.values import Folder


@click.command(epilog="Example: course run 00_start --quick -p batch_size 128")
@click.argument("lessons", nargs=-1, metavar="[LESSON ...]")
@click.option("--quick", is_flag=True, help="The short run of each lesson.")
@click.option(
    "-p",
    "--parameter",
    "parameters",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Set a value of the parameters cell; may be repeated.",
)
@click.option("--solved", is_flag=True, help="Run the edition with the solutions.")
@click.option(
    "--out",
    type=Folder(),
    help="Where the pages and executed notebooks go (default: build/run, or course-run).",
)
@json_option
def run(
    *,
    lessons: tuple[str, ...],
    quick: bool,
    parameters: tuple[tuple[str, str], ...],
    solved: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Run lessons from top to bottom, each in a folder that is thrown away.

    Leaves an executed notebook and an HTML page of each lesson, and prints a table of times, memory,
    exercises and verdicts. LESSON is a number, a word or a name; all lessons by default.

    Exit status: 0, or 1 when a cell or the callback of a widget failed.
    """
    from course_lib.teach.running.report import RunReport
    from course_lib.teach.running.run import default_out, parse_value, run_lessons

    values = {name: parse_value(value) for name, value in parameters}
    runs = run_lessons(lessons, quick=quick, parameters=values, solved=solved, out=out, progress=True)
    report = RunReport(())
    try:
        for lesson in runs:
            report = RunReport((*report.runs, lesson))
            click.echo(f"{lesson.lesson}: {'ok' if lesson.ok else 'failed'}", err=True)
    except KeyboardInterrupt:
        where = default_out() if out is None else out
        click.echo(f"What had run of the lesson that was stopped is in {where}.", err=True)
        raise
    finally:
        # Also after Ctrl-C: the lessons that came to their end are worth a table.
        if report.runs and as_json:
            print_json(report.to_json())
        elif report.runs:
            click.echo(report)
    return 0 if report.ok else 1
