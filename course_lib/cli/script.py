"""How does the training script of lesson 02 go home? ``course script`` writes it, ready for torchrun or
Slurm.
"""

import re
import shlex
import shutil
from pathlib import Path

import click

from course_lib.errors import CourseError
from course_lib.files import data_path

SBATCH = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --time=01:00:00

# One torchrun on each node; it starts one process for each card. The first node is where they meet.
export OMP_NUM_THREADS=1
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # after a restart, ranks must not read old addresses
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={gpus} --max-restarts=3 \\
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$head_node:29500" \\
    {script} --checkpoint {checkpoint}
"""


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
    if out.suffix != ".py":
        raise CourseError(f"The script must be called something.py, not {out.name}.")
    batch = out.with_suffix(".sbatch")
    data = out.with_name("digits.npz")
    written = [out, data, *([batch] if slurm else [])]
    taken = [path for path in written if path.exists() and not (force or path == data)]
    if taken:
        raise CourseError(f"{taken[0]} exists already: choose another name, or add --force.")
    source = Path(__file__).resolve().parents[1] / "train" / "ddp_script.py"
    out.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"  # type: ignore\[[^]]*\]", "", source.read_text(encoding="utf-8"))
    out.write_text(text.replace("train.py", out.name), encoding="utf-8")
    shutil.copyfile(data_path("digits.npz"), data)
    if slurm:
        job = SBATCH.format(
            name=out.stem,
            nodes=nodes,
            gpus=gpus_per_node,
            cpus=4 * gpus_per_node,
            script=shlex.quote(str(out)),
            checkpoint=shlex.quote(str(out.with_suffix(".pt"))),
        )
        batch.write_text(job, encoding="utf-8")
    click.echo("\n".join(f"wrote {path}" for path in written))
    click.echo(
        "\nStart it:\n" + "\n".join(f"  {line}" for line in start_lines(out, nodes, gpus_per_node, slurm))
    )


def start_lines(out: Path, nodes: int, gpus_per_node: int, slurm: bool) -> list[str]:
    """What to type to start the script, the simplest first."""
    name = shlex.quote(str(out))
    if slurm:
        return [f"sbatch {shlex.quote(str(out.with_suffix('.sbatch')))}"]
    lines = [f"python {name}", f"torchrun --standalone --nproc-per-node {gpus_per_node} {name}"]
    if nodes == 1:
        return lines
    return [
        lines[0],
        f"torchrun --nnodes {nodes} --node-rank N --nproc-per-node {gpus_per_node} --rdzv-backend c10d "
        f"--rdzv-endpoint HOST:29500 {name}",
        f"  (on each of the {nodes} computers: N is 0 to {nodes - 1}, HOST the name of number 0)",
    ]
