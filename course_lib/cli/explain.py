"""What does this error, dump or log mean? ``course explain`` reads a file or what is piped into it."""

import sys
from pathlib import Path

import click

from course_lib.cli.output import fitted, json_option, print_json, text_width
from course_lib.errors import CourseError

_MOST_BYTES = 40_000_000


@click.command(epilog="Example: course explain error.txt     or: nvidia-smi | course explain -")
@click.argument("file", metavar="FILE|-")
@json_option
def explain(file: str, as_json: bool) -> int:
    """Say what a pasted error, dump or log means, and what to do first.

    FILE is a text file; - reads what is piped in, or what you paste before Ctrl-D. Several things in one
    paste are told apart: out-of-memory messages, errors of DDP, NCCL, torchrun, AMP, loaders, checkpoints and
    CUDA, memory summaries, nvidia-smi in all its forms. Of any other traceback: what was raised, and where in
    your own file. The text is only read, never run. Text that is not known is said to be unknown, with what
    can be read.

    Exit status: 0 when something in the text is known, 1 when nothing is, 2 when it cannot be read.
    """
    from course_lib.diagnose.recognise import explain as explain_text

    explanation = explain_text(_text(file))
    if as_json:
        print_json(explanation.to_json())
    else:
        click.echo(fitted(explanation.in_lines(text_width())))
    return 0 if explanation.known else 1


def _text(file: str) -> str:
    """The text of the file, or of standard input for "-"."""
    if file == "-":
        if sys.stdin.isatty():
            click.echo("Paste the text, then press Ctrl-D (Ctrl-Z and Enter on Windows).", err=True)
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        name = "What was piped in"
    else:
        if not file:
            raise CourseError(
                "The name of the file is empty; give one text file, or - to read what is piped in."
            )
        path = Path(file)
        if path.is_dir():
            raise CourseError(f"{file} is a folder; give one text file, or - to read what is piped in.")
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        name = file
    if len(data) > _MOST_BYTES:
        raise CourseError(
            f"{name} has more than {_MOST_BYTES // 1_000_000} MB; cut it down to the part around the error, "
            "for example with tail -n 2000."
        )
    if not data.strip():
        raise CourseError(f"{name} is empty: paste the whole message, from its first line to its last.")
    return _decoded(data, name)


def _decoded(data: bytes, name: str) -> str:
    # PowerShell's ">" writes UTF-16 with a mark; a Western Windows console writes its code page.
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if b"\x00" in data[:4096]:
        raise CourseError(
            f"{name} is not a text file; give the printed message, not a checkpoint or an image."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")
