"""What does a learner type? ``course lab`` opens the lessons, ``course progress`` shows what is done."""

from pathlib import Path

import click

from course_lib.cli.output import json_option, print_json
from course_lib.cli.values import Folder
from course_lib.errors import CourseError
from course_lib.teach.server import FIRST_PORT, run_lab
from course_lib.teach.workspace import default_folder, prepare

folder_option = click.option(
    "--dir",
    "folder",
    type=Folder(),
    metavar="DIR",
    help="Your folder. By default the one you stand in, else work/ in a checkout, else "
    "./efficient-training-course.",
)


@click.command(epilog="Example: course lab --port 9000 --no-browser")
@folder_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=FIRST_PORT,
    show_default=True,
    help="Where to listen; when it is in use, the next free one.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--fresh",
    multiple=True,
    metavar="LESSON",
    help="Make a new copy of this lesson and rename yours. May be given more than once.",
)
def lab(folder: Path | None, port: int, no_browser: bool, fresh: tuple[str, ...]) -> None:
    """Open the lessons in JupyterLab.

    They are copied to a folder of your own, in which you can write as you like. What you changed is never
    overwritten. JupyterLab listens on this computer only, and asks for the token in the address.
    """
    workspace = prepare(default_folder() if folder is None else folder, fresh=fresh)
    click.echo(workspace)
    run_lab(
        workspace.folder,
        first=f"{workspace.copies[0].name}.ipynb",
        port=port,
        browser=not no_browser,
        announce=click.echo,
    )
    click.echo(f"JupyterLab has stopped. Your work is in {workspace.folder}")


@click.command(epilog="Example: course progress --json")
@folder_option
@json_option
def progress(folder: Path | None, as_json: bool) -> None:
    """Show which exercises are solved, and which one comes next."""
    from course_lib.teach.overview import overview

    if folder is not None and not folder.is_dir():
        raise CourseError(f"{folder} is not a folder; give with --dir the one that holds your lessons.")
    found = overview(default_folder() if folder is None else folder)
    if as_json:
        print_json(found.to_json())
    else:
        click.echo(found)
