"""What does an author type? ``course build`` makes the notebooks from their sources."""

import click


@click.command(epilog="Example: course build 00_start")
@click.argument("lessons", nargs=-1, metavar="[LESSON ...]")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a notebook is not as its source.")
def build(lessons: tuple[str, ...], check: bool) -> int:
    """Make the notebooks from their sources.

    Each notebooks/source/NN_topic.py becomes the learner's notebook, notebooks/NN_topic.ipynb, and the solved
    one, build/solved/NN_topic.ipynb. LESSON is a number, a word or a name; all lessons by default.
    """
    from course_lib.teach.build import build_all

    report = build_all(lessons=lessons, check=check)
    click.echo(report)
    return 1 if check and report.differing else 0
