"""``course script`` writes what runs elsewhere, says how to start it, and writes over nothing."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.cli.main import main
from course_lib.files import data_path


def course(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["script", *arguments])
    return int(left.value.code or 0)


def test_the_written_script_needs_no_course_and_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "my_training.py"
    assert course("--out", str(out)) == 0
    said = capsys.readouterr().out
    assert f"made the folder {out.parent}\n" in said
    assert f"python {out}" in said
    assert "torchrun --standalone --nproc-per-node 8" in said
    source = out.read_text(encoding="utf-8")
    imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if name and name.startswith("course_lib")]
    assert "my_training.py" in source
    assert "type: ignore" not in source
    ended = subprocess.run(
        [sys.executable, str(out), "--epochs", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    assert "epoch 1: loss" in ended.stdout


def test_several_nodes_and_slurm_get_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert course("--out", str(tmp_path / "train.py"), "--nodes", "4", "--gpus-per-node", "2") == 0
    said = capsys.readouterr().out
    assert "--nnodes 4 --nproc-per-node 2" in said
    assert course("--out", str(tmp_path / "job.py"), "--nodes", "4", "--gpus-per-node", "2", "--slurm") == 0
    job = (tmp_path / "job.sbatch").read_text(encoding="utf-8")
    assert "#SBATCH --nodes=4" in job
    assert "#SBATCH --gpus-per-node=2" in job
    assert "--nproc-per-node=2 --max-restarts=3" in job
    assert "{" not in job.replace("${", "")
    assert 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK"' in job
    said = capsys.readouterr().out
    assert "made the folder" not in said
    assert f"cd {tmp_path} && sbatch job.sbatch" in said
    assert "asks for 1 hour and 8 cores a node: change that in job.sbatch" in said
    assert "\n#SBATCH --cpus-per-task=8\n#SBATCH --time=01:00:00\n" in job
    if sys.platform == "linux":
        subprocess.run(["bash", "-n", str(tmp_path / "job.sbatch")], check=True)


def test_a_name_with_a_space_is_written_so_that_shell_and_sbatch_read_it_whole(tmp_path: Path) -> None:
    assert course("--out", str(tmp_path / "my train.py"), "--slurm") == 0
    job = (tmp_path / "my train.sbatch").read_text(encoding="utf-8")
    assert "--job-name=my_train\n" in job
    assert "'./my train.py' --checkpoint './my train.pt'" in job
    assert "python 'my train.py'" in (tmp_path / "my train.py").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no bash on Windows")
def test_the_batch_job_calls_torchrun_as_it_should(tmp_path: Path) -> None:
    assert (
        course("--out", str(tmp_path / "my job.py"), "--slurm", "--nodes", "2", "--gpus-per-node", "4") == 0
    )
    # What the cluster has and this computer has not, in the place of which the arguments are printed.
    stand_ins = 'scontrol() { printf "node1\\nnode2\\n"; }; srun() { printf "%s\\n" "$@"; }; '
    variables = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "123456"}
    ended = subprocess.run(
        ["bash", "-euc", stand_ins + '. "./my job.sbatch"'],
        cwd=tmp_path,
        env=os.environ | variables | {"SLURM_CPUS_PER_TASK": "16"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert ended.stdout.splitlines() == [
        "--cpus-per-task=16",
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=4",
        "--max-restarts=3",
        "--rdzv-id=123456",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=node1:23456",
        "./my job.py",
        "--checkpoint",
        "./my job.pt",
    ]


@pytest.mark.parametrize("below", ["file/train.py", "file/folder/train.py"])
def test_a_place_below_a_file_is_told(below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert course("--out", str(tmp_path / below)) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'file'} is a file, not a folder" in error
    assert "choose a place in another folder" in error


def test_data_that_cannot_be_written_leave_no_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "digits.npz").mkdir()
    assert course("--out", str(tmp_path / "train.py"), "--force") == 2
    assert "cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "train.py").exists()


def test_data_of_somebody_else_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "digits.npz"
    data.write_bytes(b"mine")
    assert course("--out", str(tmp_path / "train.py")) == 2
    assert f"{data} exists already" in capsys.readouterr().err
    assert data.read_bytes() == b"mine"
    assert not (tmp_path / "train.py").exists()
    assert course("--out", str(tmp_path / "train.py"), "--force") == 0
    assert data.read_bytes() == data_path("digits.npz").read_bytes()
    assert course("--out", str(tmp_path / "second.py")) == 0, "the course's own data are shared"


def test_a_name_like_an_option_is_told_so_that_python_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert course("--out", "-x.py") == 0
    assert f"python .{os.sep}-x.py" in capsys.readouterr().out


def test_nothing_is_written_over_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "train.py"
    out.write_text("mine", encoding="utf-8")
    assert course("--out", str(out)) == 2
    assert "exists already" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "digits.npz").exists()
    assert course("--out", str(out), "--force") == 0
    assert out.read_text(encoding="utf-8") != "mine"
    assert course("--out", str(out)) == 0, "what is there is just what would be written"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing option '--out'"),
        (("--out", "train.txt"), "must be called something.py"),
        (("--out", "torch.py"), "must not be called torch.py"),
        (("--out", "random.py"), "must not be called random.py"),
        (("--out", "train.py", "--nodes", "0"), "nodes"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert course(*arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
