"""What stands around an error: settings, limits, versions, how far the run had come; else None."""

import pytest

from course_lib.diagnose.faults import surroundings
from course_lib.diagnose.paste import Paste


def test_settings_are_read_from_shells_and_from_python() -> None:
    paste = Paste.of(
        "export NCCL_IB_DISABLE=1\nNCCL_DEBUG=INFO torchrun x.py\nos.environ['MASTER_PORT'] = '29501'\n"
        'os.environ["NCCL_P2P_LEVEL"] = "NVL"; TORCH_NCCL_BLOCKING_WAIT=1'
    )
    assert surroundings.settings(paste) == {
        "NCCL_IB_DISABLE": "1",
        "NCCL_DEBUG": "INFO",
        "MASTER_PORT": "29501",
        "NCCL_P2P_LEVEL": "NVL",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
    }


@pytest.mark.parametrize(
    ("text", "devices", "processes"),
    [
        ("CUDA_VISIBLE_DEVICES=1,2 torchrun --nproc_per_node=4 t.py", [1, 2], 4),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'\naccelerate launch --num_processes 2", [0], 2),
        ("torchrun --nproc-per-node 8", None, 8),
        ("torchrun --nproc_per_node=gpu train.py", None, None),
    ],
)
def test_cards_and_processes(text: str, devices: list[int] | None, processes: int | None) -> None:
    assert surroundings.visible_devices(Paste.of(text)) == devices
    assert surroundings.processes_per_node(Paste.of(text)) == processes


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("#SBATCH --cpus-per-task=4\n#SBATCH --mem-per-cpu=4G", 16.0),
        ("#SBATCH --mem=32G", 32.0),
        ("#SBATCH --mem=512", 0.5),
        ("#SBATCH --mem-per-cpu=4G", None),
        ("memory is full", None),
    ],
)
def test_what_slurm_grants(text: str, gib: float | None) -> None:
    assert surroundings.slurm_memory_gib(Paste.of(text)) == gib


def test_versions_and_progress() -> None:
    paste = Paste.of(
        "- `transformers` version: 4.30.2\n- PyTorch version (GPU?): 2.0.1+cu117 "
        "(True)\naccelerate==0.21.0\nepoch: 3 [120/500] Got batch 4411"
    )
    assert surroundings.versions(paste) == {
        "transformers": "4.30.2",
        "torch": "2.0.1+cu117",
        "accelerate": "0.21.0",
    }
    end = len(paste.text)
    assert surroundings.last_epoch(paste) == 3
    assert surroundings.last_step(paste, end) == 120
    assert surroundings.last_batch(paste, end) == 4411
    nothing = Paste.of("it failed")
    assert surroundings.last_epoch(nothing) is None
    asked_for = Paste.of("Epoch: [7][3/100] loss 0.2\nKilled  python train.py --epochs 400 --epoch 90")
    assert surroundings.last_epoch(asked_for) == 7
    assert surroundings.last_epoch(Paste.of("During the fifth epoch it died")) == 5
    assert surroundings.last_step(nothing, 9) is None


def test_the_system_is_known_by_its_paths() -> None:
    assert surroundings.operating_system(Paste.of(r'File "E:\work\run.py"')) == "windows"
    assert surroundings.operating_system(Paste.of("/Users/me/run.py")) == "macos"
    assert surroundings.operating_system(Paste.of("/home/me/run.py")) is None
