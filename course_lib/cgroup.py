"""What share of this machine does the process's control group grant?

Docker, Kubernetes, Slurm and systemd do not hide cores and memory from a process; they put it into a Linux
control group with a quota. ``os.cpu_count()`` and ``free`` still show the whole machine, and a program that
believes them starts too many workers or is killed. Both versions of control groups are read, every group on
the way up counts (the tightest wins), and a system without them grants everything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_NO_LIMIT = 2**60  # version 1 writes "no limit" as a number near 2**63


@dataclass(frozen=True)
class Grant:
    """What the control groups allow; None means that none of them sets a limit.

    ``cpu_quota`` is in cores (1.5 is one and a half), the others in bytes. ``memory_left`` is the limit less
    what the group uses now, where file cache that the kernel would give up does not count as used.
    """

    cpu_quota: float | None = None
    memory_limit: int | None = None
    memory_left: int | None = None


def read_grant(root: Path = Path("/")) -> Grant:
    """The grant of this process's control groups, read below ``root`` (another root is for tests)."""
    quotas = [q for group in _groups("cpu", root) if (q := _cpu_quota(group)) is not None]
    memory = [m for group in _groups("memory", root) if (m := _memory(group)) is not None]
    return Grant(
        cpu_quota=min(quotas, default=None),
        memory_limit=min((limit for limit, _ in memory), default=None),
        memory_left=min((left for _, left in memory), default=None),
    )


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's group for one controller, and of all the groups above it.

    In ``/proc/self/cgroup`` a line is ``id:controllers:path``; version 2 has id 0 and no controllers. The
    path is the host's view, while a container may see its own group as the mount's root: mountinfo tells.
    """
    paths: dict[str, str] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths["cgroup2"] = path
        elif controller in controllers.split(","):
            paths["cgroup"] = path
    for line in _read(root / "proc/self/mountinfo").splitlines():
        # id parent device root-in-the-file-system mount-point options ... - type source super-options
        before, _, after = line.partition(" - ")
        mount_root, mount_point = before.split()[3:5]
        kind = after.split()[0]
        if kind in paths:
            # Version 1 mounts each controller apart; the others hold no file of this one's, and drop out.
            mount, inner = root / mount_point.lstrip("/"), _below(paths[kind], mount_root)
            yield from (mount / part for part in (inner, *inner.parents))


def _below(path: str, mount_root: str) -> PurePosixPath:
    """The part of ``path`` below ``mount_root``; empty when the path lies outside of what is mounted."""
    group = PurePosixPath(path)
    if ".." in group.parts or not group.is_relative_to(mount_root):
        return PurePosixPath()
    return group.relative_to(mount_root)


def _cpu_quota(group: Path) -> float | None:
    """Cores that one group may use: microseconds of computing per period of so many microseconds."""
    words = _read(group / "cpu.max").split() or [
        *_read(group / "cpu.cfs_quota_us").split(),
        *_read(group / "cpu.cfs_period_us").split(),
    ]
    if len(words) != 2 or words[0] in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _memory(group: Path) -> tuple[int, int] | None:
    """The limit of one group, and what is left of it, in bytes."""
    for limit_name, used_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _read(group / limit_name).strip()
        if limit.isdigit() and int(limit) < _NO_LIMIT:
            used = int(_read(group / used_name) or 0)
            stat = dict(line.split() for line in _read(group / "memory.stat").splitlines())
            cache = int(stat.get(cache_name, 0))
            return int(limit), max(0, int(limit) - max(0, used - cache))
    return None


def _read(path: Path) -> str:
    """The text of a kernel file; empty where there is none, or where it may not be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
