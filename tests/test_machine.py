"""Does the course know what this process may really use of the computer it runs on?"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from course_lib.machine import (
    Gpu,
    Machine,
    available_memory_bytes,
    best_device,
    cpu_name,
    find_place,
    shared_memory_bytes,
    this_machine,
    torch_build,
    usable_cores,
    usable_memory_bytes,
)

LAPTOP = Machine(
    system="Linux 6.8.0 x86_64",
    place="WSL2",
    python="3.12.3",
    cpu="A <fast> processor",
    cores=16,
    usable_cores=8,
    memory_bytes=32 * 2**30,
    usable_memory_bytes=16 * 2**30,
    available_memory_bytes=12 * 2**30,
    shared_memory_bytes=64 * 2**20,
    free_disk_bytes=100 * 2**30,
    device="cuda",
    gpus=(Gpu("NVIDIA GeForce RTX 3090", 24 * 2**30),),
    driver_version="580.65.06",
    torch_version="2.9.0+cu130",
    torch_build="CUDA 13.0",
)


def grant(root: Path, cpu_max: str, memory_max: str) -> Path:
    """A version 2 control group tree with one group."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/\n", encoding="utf-8")
    mount = "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (root / "proc/self/mountinfo").write_text(mount, encoding="utf-8")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text(cpu_max, encoding="utf-8")
    (root / "sys/fs/cgroup/memory.max").write_text(memory_max, encoding="utf-8")
    return root


def test_the_quota_bounds_the_cores(tmp_path: Path) -> None:
    assert (
        usable_cores(grant(tmp_path, "20000 100000", "max")) == 1
    )  # a fifth of a core still runs one process


def test_a_quota_is_rounded_up_and_affinity_stays_the_bound(tmp_path: Path) -> None:
    free = usable_cores(tmp_path / "nothing here")
    assert usable_cores(grant(tmp_path, "150000 100000", "max")) == min(2, free)


def test_a_quota_above_the_machine_changes_nothing(tmp_path: Path) -> None:
    assert usable_cores(grant(tmp_path, "99900000 100000", "max")) == usable_cores(tmp_path / "nothing here")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity mask to set")
def test_affinity_bounds_the_cores() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from course_lib.machine import usable_cores; print(usable_cores())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "1"


def test_the_control_group_bounds_the_memory(tmp_path: Path) -> None:
    root = grant(tmp_path, "max 100000", str(2**28))
    (root / "sys/fs/cgroup/memory.current").write_text(str(2**27), encoding="utf-8")
    assert usable_memory_bytes(root) == 2**28
    assert available_memory_bytes(root) == 2**27


def test_without_limits_the_memory_is_the_machines(tmp_path: Path) -> None:
    assert (
        0 < available_memory_bytes(tmp_path) <= usable_memory_bytes(tmp_path) <= psutil.virtual_memory().total
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps this limit")
@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_ulimit_bounds_the_memory(kind: str) -> None:
    program = (
        "import resource; from course_lib.machine import usable_memory_bytes;"
        f"resource.setrlimit(resource.{kind}, (2**30, resource.RLIM_INFINITY)); print(usable_memory_bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) <= 2**30


def test_shared_memory_is_the_size_of_its_file_system(tmp_path: Path) -> None:
    assert shared_memory_bytes(tmp_path / "none") is None
    assert shared_memory_bytes(tmp_path) == psutil.disk_usage(str(tmp_path)).total


@pytest.mark.parametrize(
    ("environment", "release", "place"),
    [
        ({"COLAB_RELEASE_TAG": "release-colab_20250101"}, "6.1.0", "Google Colab"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, "6.1.0", "Kaggle"),
        ({"BINDER_SERVICE_HOST": "10.0.0.1"}, "6.1.0", "Binder"),
        ({"COLAB_RELEASE_TAG": ""}, "6.1.0", None),
        ({}, "5.15.153.1-microsoft-standard-WSL2", "WSL2"),
        ({}, "4.4.0-19041-Microsoft", "WSL1"),
        ({}, "6.1.0-amd64", None),
    ],
)
def test_the_place_is_told_by_its_marks(
    tmp_path: Path, environment: dict[str, str], release: str, place: str | None
) -> None:
    assert find_place(environment, release, tmp_path) == place


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_is_told_by_its_mark(tmp_path: Path, mark: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / mark).touch()
    assert find_place({}, "6.1.0", tmp_path) == "a container"


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    info = "processor\t: 0\nmodel name\t: Some CPU @ 3.00GHz\nmodel name\t: Some CPU @ 3.00GHz\n"
    (tmp_path / "proc/cpuinfo").write_text(info, encoding="utf-8")
    assert cpu_name(tmp_path) == "Some CPU @ 3.00GHz"
    assert cpu_name(tmp_path / "none") != ""


def test_this_machine_agrees_with_its_parts_and_with_torch() -> None:
    import torch

    machine = this_machine()
    assert machine.device == best_device() == ("cuda" if torch.cuda.is_available() else machine.device)
    assert len(machine.gpus) == (torch.cuda.device_count() if machine.device == "cuda" else len(machine.gpus))
    assert machine.torch_build == torch_build()
    assert 1 <= machine.usable_cores <= machine.cores
    assert machine.available_memory_bytes <= machine.usable_memory_bytes <= machine.memory_bytes
    assert machine.free_disk_bytes > 0


def test_a_machine_prints_as_a_table_with_units() -> None:
    text = str(LAPTOP)
    assert "cores:          8 usable of 16" in text
    assert "16 GiB usable of 32 GiB, 12 GiB free now" in text
    assert "cuda: NVIDIA GeForce RTX 3090 (24 GiB)" in text
    assert "in WSL2" in text
    assert "no bound of its own" in str(replace(LAPTOP, shared_memory_bytes=None))


def test_html_is_escaped() -> None:
    html = LAPTOP._repr_html_()
    assert "A &lt;fast&gt; processor" in html
    assert "<fast>" not in html


def test_a_machine_turns_into_json_and_keeps_every_field() -> None:
    data = json.loads(json.dumps(LAPTOP.to_json()))
    assert data["gpus"] == [{"name": "NVIDIA GeForce RTX 3090", "memory_bytes": 24 * 2**30}]
    assert data["usable_cores"] == 8
