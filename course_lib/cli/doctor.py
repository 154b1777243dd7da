"""Is this computer ready? ``course doctor`` says so, line by line, with the cure under each line."""

import sys
from dataclasses import asdict

import click

from course_lib.cli.output import fitted, json_option, print_json


@click.command(epilog="Example: course doctor --json")
@json_option
def doctor(as_json: bool) -> int:
    """Check this computer for the course, and say what to do where something is wrong.

    [OK] is well, [WARN] runs but slower or without the card, [FAIL] will break. The text can be pasted into a
    bug report as it is. The exit status is 1 when something failed.
    """
    from course_lib.teach.doctor.facts import gather_facts
    from course_lib.teach.doctor.report import examine

    if sys.stderr.isatty():
        click.echo("Looking at this computer. Importing torch takes some seconds.", err=True)
    facts = gather_facts()
    report = examine(facts)
    if as_json:
        print_json({**report.to_json(), "facts": asdict(facts)})
    else:
        click.echo(fitted(str(report)))
    return 0 if report.is_ready else 1
