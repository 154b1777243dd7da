"""How does the training script of lesson 02 go home? Written to a file, with its data, and what starts it."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.errors import CourseError
from course_lib.files import data_path

IMPORTED = frozenset({"torch", "numpy", *sys.stdlib_module_names})
"""A script of such a name would be imported by itself, or by torch, in place of the real one."""

CORES_A_CARD = 4
HOURS = 1

SBATCH = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
# {cores_a_card} cores for each card, and {hours} hour: change both to what your training takes and
# your cluster allows.
#SBATCH --cpus-per-task={cpus}
#SBATCH --time={hours:02}:00:00

# One torchrun on each node; it starts one process for each card. The first node is where they meet, at a port
# that another job on it does not have. Script, data and checkpoint must lie where all nodes can read them.
export OMP_NUM_THREADS=1
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # after a restart, ranks must not read old addresses
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))

# srun does not take --cpus-per-task over from above.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" \\
    torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={gpus} --max-restarts=3 \\
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$head_node:$port" \\
    {script} --checkpoint {checkpoint}
"""


@dataclass(frozen=True)
class Taken:
    """What was written, and what was there already and was kept because it differs from the course's."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"wrote {path}" for path in self.written]
            + [f"kept {path}: it is not the course's; delete it to get that one" for path in self.kept]
        )


def write_script(
    out: Path,
    *,
    nodes: int = 1,
    gpus_per_node: int = 8,
    slurm: bool = False,
    existing: Literal["refuse", "keep", "replace"] = "refuse",
) -> Taken:
    """Write the script to `out`, the digits beside it, and with `slurm` an sbatch file.

    The script needs only torch and numpy. A file that is there and is not just what would be written is
    somebody's work: with `existing` "refuse" nothing at all is written, with "keep" it stays.

    Raises CourseError for another name than NAME.py, for the name of a module that Python or the script
    imports, for a file that is there if it is to refuse, and for a place that cannot be written to.
    """
    if out.suffix != ".py":
        raise CourseError(f'The script must be called something.py, such as train.py, not "{out}".')
    if out.stem in IMPORTED:
        raise CourseError(
            f"The script must not be called {out.name}: Python would take it for its module {out.stem}."
        )
    # The data first: a script without them would not run.
    contents = {out.with_name("digits.npz"): data_path("digits.npz").read_bytes(), out: _script(out)}
    if slurm:
        contents[out.with_suffix(".sbatch")] = _batch_job(out, nodes, gpus_per_node)
    try:
        differing = tuple(path for path, content in contents.items() if _differs(path, content))
        if differing and existing == "refuse":
            raise CourseError(
                f"{differing[0]} exists already, and is not what would be written: choose another folder or "
                "name, or allow to write over it (--force)."
            )
        kept = differing if existing == "keep" else ()
        out.parent.mkdir(parents=True, exist_ok=True)
        written = tuple(path for path in contents if path not in kept)
        for path in written:
            path.write_bytes(contents[path])
    except OSError as error:
        file = next((above for above in out.parents if above.is_file()), None)
        reason = f"{file} is a file, not a folder" if file else f"{error.filename}: {error.strerror}"
        raise CourseError(f"{out} cannot be written ({reason}): choose a place in another folder.") from error
    return Taken(written, kept)


def _differs(path: Path, content: bytes) -> bool:
    return path.exists() and not (path.is_file() and path.read_bytes() == content)


def _script(out: Path) -> bytes:
    source = Path(__file__).with_name("ddp_script.py").read_text(encoding="utf-8")
    text = re.sub(r"  # type: ignore\[[^]]*\]", "", source).replace("train.py", _typed(Path(out.name)))
    return text.encode()


def _batch_job(out: Path, nodes: int, gpus_per_node: int) -> bytes:
    text = SBATCH.format(
        name=re.sub(r"\W+", "_", out.stem),  # sbatch would cut it at a space
        nodes=nodes,
        gpus=gpus_per_node,
        cores_a_card=CORES_A_CARD,
        cpus=CORES_A_CARD * gpus_per_node,
        hours=HOURS,
        script=shlex.quote(f"./{out.name}"),
        checkpoint=shlex.quote(f"./{out.with_suffix('.pt').name}"),
    )
    return text.encode()


def start_lines(out: Path, nodes: int, gpus_per_node: int, slurm: bool) -> list[str]:
    """What to type to start the script, the simplest first."""
    if slurm:  # the job runs where sbatch was called, and its script lies beside it
        batch = _typed(Path(out.with_suffix(".sbatch").name))
        folder = "" if out.parent == Path() else f"cd {_typed(out.parent)} && "
        cores = CORES_A_CARD * gpus_per_node
        return [
            f"{folder}sbatch {batch}",
            f"  (it asks for {HOURS} hour and {cores} cores a node: change that in {batch} to what you need)",
        ]
    name = _typed(out)
    lines = [f"python {name}", f"torchrun --standalone --nproc-per-node {gpus_per_node} {name}"]
    if nodes == 1:
        return lines
    return [
        lines[0],
        f"torchrun --nnodes {nodes} --nproc-per-node {gpus_per_node} --rdzv-backend c10d "
        f"--rdzv-endpoint HOST:29500 {name}",
        f"  (this line on each of the {nodes} computers; HOST is the name of one of them)",
    ]


def _typed(path: Path) -> str:
    """A path as this system's shell reads it; a name that begins with "-" would be taken for an option."""
    name = f".{os.sep}{path}" if str(path).startswith("-") else str(path)
    return subprocess.list2cmdline([name]) if sys.platform == "win32" else shlex.quote(name)
