"""Are the limits of containers and batch systems found, in both versions of control groups?"""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from course_lib.cgroup import Grant, read_grant

GIB = 2**30
V2_MOUNT = "35 24 0:30 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 {root} /sys/fs/cgroup/memory rw,relatime shared:10 - cgroup cgroup rw,memory\n"
)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def v2(root: Path, group: str, files: dict[str, str], mounted: str = "/") -> Path:
    """A version 2 tree: the process is in ``group``, and the mount shows what is below ``mounted``."""
    return write(
        root,
        {
            "proc/self/cgroup": f"0::{group}\n",
            "proc/self/mountinfo": V2_MOUNT.format(root=mounted),
            **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
        },
    )


def v1(root: Path, group: str, files: dict[str, str], mounted: str = "/") -> Path:
    """A version 1 tree with its two mounts for CPU and memory."""
    return write(
        root,
        {
            "proc/self/cgroup": f"5:memory:{group}\n4:cpu,cpuacct:{group}\n1:name=systemd:{group}\n",
            "proc/self/mountinfo": V1_MOUNTS.format(root=mounted),
            **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
        },
    )


def test_a_system_without_control_groups_grants_everything(tmp_path: Path) -> None:
    assert read_grant(tmp_path) == Grant(None, None, None)


def test_v2_in_a_container(tmp_path: Path) -> None:
    files = {
        "cpu.max": "150000 100000\n",
        "memory.max": f"{2 * GIB}\n",
        "memory.current": f"{GIB}\n",
        "memory.stat": f"anon 1\nfile 2\ninactive_file {GIB // 4}\n",
    }
    grant = read_grant(v2(tmp_path, "/", files))
    assert grant == Grant(1.5, 2 * GIB, GIB + GIB // 4)  # the cache can be given up, so it is still left


def test_v2_max_is_no_limit(tmp_path: Path) -> None:
    assert read_grant(v2(tmp_path, "/", {"cpu.max": "max 100000\n", "memory.max": "max\n"})) == Grant()


def test_v2_the_tightest_group_on_the_way_up_wins(tmp_path: Path) -> None:
    files = {
        "user.slice/memory.max": f"{3 * GIB}\n",
        "user.slice/memory.current": f"{3 * GIB - 5}\n",
        "user.slice/cpu.max": "400000 100000\n",
        "user.slice/job/memory.max": f"{2 * GIB}\n",
        "user.slice/job/memory.current": "7\n",
        "user.slice/job/cpu.max": "max 100000\n",
        "user.slice/job/step/memory.max": "max\n",
        "other/memory.max": "1\n",
        "other/cpu.max": "1000 100000\n",
    }
    grant = read_grant(v2(tmp_path, "/user.slice/job/step", files))
    assert grant == Grant(4.0, 2 * GIB, 5)  # the outer group is nearly full, though its limit is larger


def test_v2_container_that_sees_the_hosts_path(tmp_path: Path) -> None:
    files = {"memory.max": f"{GIB}\n", "sub/memory.max": f"{GIB // 2}\n"}
    grant = read_grant(v2(tmp_path, "/docker/8f3/sub", files, mounted="/docker/8f3"))
    assert grant.memory_limit == GIB // 2


@pytest.mark.parametrize("group", ["/../../outside", "/docker/8f3"])
def test_a_path_outside_of_what_is_mounted_falls_back_to_the_mount(tmp_path: Path, group: str) -> None:
    grant = read_grant(v2(tmp_path, group, {"memory.max": f"{GIB}\n"}, mounted="/kubepods/pod1"))
    assert grant.memory_limit == GIB


def test_v1_in_a_container(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": f"{4 * GIB}\n",
        "memory/memory.usage_in_bytes": f"{3 * GIB}\n",
        "memory/memory.stat": f"cache 9\ninactive_file 1\ntotal_inactive_file {GIB}\n",
    }
    assert read_grant(v1(tmp_path, "/", files)) == Grant(0.5, 4 * GIB, 2 * GIB)


def test_v1_no_limit_is_a_number_near_2_to_63(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert read_grant(v1(tmp_path, "/", files)) == Grant()


def test_v1_nested_groups(tmp_path: Path) -> None:
    files = {
        "memory/slurm/memory.limit_in_bytes": f"{8 * GIB}\n",
        "memory/slurm/memory.usage_in_bytes": "0\n",
        "memory/slurm/job_7/memory.limit_in_bytes": "9223372036854771712\n",
        "cpu,cpuacct/slurm/cpu.cfs_quota_us": "200000\n",
        "cpu,cpuacct/slurm/cpu.cfs_period_us": "100000\n",
    }
    assert read_grant(v1(tmp_path, "/slurm/job_7", files)) == Grant(2.0, 8 * GIB, 8 * GIB)


def test_hybrid_limits_stand_in_version_1_while_version_2_is_empty(tmp_path: Path) -> None:
    root = v1(
        tmp_path, "/job", {"memory/job/memory.limit_in_bytes": f"{GIB}\n", "unified/cgroup.procs": "1\n"}
    )
    with (root / "proc/self/cgroup").open("a", encoding="utf-8") as file:
        file.write("0::/\n")
    with (root / "proc/self/mountinfo").open("a", encoding="utf-8") as file:
        file.write("38 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
    assert read_grant(root).memory_limit == GIB


def test_a_group_more_than_full_has_nothing_left(tmp_path: Path) -> None:
    grant = read_grant(v2(tmp_path, "/", {"memory.max": "100\n", "memory.current": "130\n"}))
    assert grant.memory_left == 0


def test_real_groups_made_here_are_seen_by_a_process_in_them() -> None:
    """The kernel's own files, one limit in the outer group and the process in the inner one."""
    memory = _memory_mount()
    is_v2 = (memory / "cgroup.controllers").exists()
    outer = memory / f"course-test-{uuid.uuid4().hex}"
    try:
        outer.mkdir()
    except OSError as error:
        pytest.skip(f"this system lets nobody here make control groups ({error.strerror})")
    inner = outer / "inner"
    try:
        (outer / ("memory.max" if is_v2 else "memory.limit_in_bytes")).write_text(
            str(3 * GIB), encoding="utf-8"
        )
        inner.mkdir()
        program = (
            "import os, pathlib, sys; pathlib.Path(sys.argv[1], 'cgroup.procs').write_text(str(os.getpid()));"
            "from course_lib.cgroup import read_grant; g = read_grant(); print(g.memory_limit, g.memory_left)"
        )
        answer = subprocess.run(
            [sys.executable, "-c", program, str(inner)],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        limit, left = map(int, answer.stdout.split())
        assert limit == 3 * GIB
        assert 2 * GIB < left < 3 * GIB
    except OSError as error:
        pytest.skip(f"the memory controller cannot be used here ({error.strerror})")
    finally:
        for group in (inner, outer):
            if group.exists():
                group.rmdir()


def _memory_mount() -> Path:
    for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        if (path / "cgroup.procs").exists() and os.access(path, os.W_OK):
            return path
    pytest.skip("there are no control groups here that may be written to")
