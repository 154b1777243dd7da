"""How does the training script of lesson 02 go home? Written to a file, with its data, and what starts it."""

import re
import shlex
import shutil
import sys
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import data_path

IMPORTED = frozenset({"torch", "numpy", *sys.stdlib_module_names})
"""A script of such a name would be imported by itself, or by torch, in place of the real one."""

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


def write_script(
    out: Path, *, nodes: int = 1, gpus_per_node: int = 8, slurm: bool = False, force: bool = False
) -> list[Path]:
    """Write the script to `out`, the digits beside it, and with `slurm` an sbatch file; all that was written.

    The script needs only torch and numpy. Raises CourseError for another name than NAME.py, for the name of a
    module that Python or the script imports, and for a file that is there already unless `force`; the digits
    are written over.
    """
    if out.suffix != ".py":
        raise CourseError(f"The script must be called something.py, not {out.name}.")
    if out.stem in IMPORTED:
        raise CourseError(
            f"The script must not be called {out.name}: Python would take it for its module {out.stem}."
        )
    batch = out.with_suffix(".sbatch")
    data = out.with_name("digits.npz")
    written = [out, data, *([batch] if slurm else [])]
    taken = [path for path in written if path.exists() and not (force or path == data)]
    if taken:
        raise CourseError(
            f"{taken[0]} exists already: choose another name, or allow to write over it (--force)."
        )
    source = Path(__file__).with_name("ddp_script.py").read_text(encoding="utf-8")
    out.parent.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"  # type: ignore\[[^]]*\]", "", source).replace("train.py", shlex.quote(out.name))
    out.write_text(text, encoding="utf-8")
    shutil.copyfile(data_path("digits.npz"), data)
    if slurm:
        job = SBATCH.format(
            name=re.sub(r"\W+", "_", out.stem),  # sbatch would cut it at a space
            nodes=nodes,
            gpus=gpus_per_node,
            cpus=4 * gpus_per_node,
            script=shlex.quote(str(out)),
            checkpoint=shlex.quote(str(out.with_suffix(".pt"))),
        )
        batch.write_text(job, encoding="utf-8")
    return written


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
