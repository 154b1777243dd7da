"""What does a learner type to take the training script of lesson 02 home? ``course script --out
train.py``.
"""

from pathlib import Path

import click

from course_lib.train.take_home import start_lines, write_script


@click.command(epilog="Example: course script --out train.py --nodes 2 --slurm")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Where to write it."
)
@click.option("--nodes", type=click.IntRange(1, 4096), default=1, show_default=True, help="Computers.")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Cards, or ranks, in each.",
)
@click.option("--slurm", is_flag=True, help="Also write an sbatch file beside it.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def script(out: Path, nodes: int, gpus_per_node: int, slurm: bool, force: bool) -> None:
    """Write a training script for one process, torchrun or several nodes, with its data.

    The script needs only torch and numpy. What starts it is printed, and with --slurm written as a batch job.
    """
    had_folder = out.parent.exists()
    taken = write_script(
        out,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        slurm=slurm,
        existing="replace" if force else "refuse",
    )
    if not had_folder:
        click.echo(f"made the folder {out.parent}")
    click.echo(str(taken))
    click.echo(
        "\nStart it:\n" + "\n".join(f"  {line}" for line in start_lines(out, nodes, gpus_per_node, slurm))
    )
