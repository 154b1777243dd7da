"""How busy are this computer's own cores, and how full is its memory, at this moment?"""

from dataclasses import dataclass

from course_lib.machine import available_memory_bytes, usable_cores, usable_memory_bytes


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Use of each core in percent since the last look, and memory in MiB.

    ``usable_cores`` and the memory are what this process may have, a container's limits counted;
    ``available_mib`` is what a new program could have without swapping.
    """

    core_percent: tuple[float, ...]
    usable_cores: int
    memory_used_mib: float
    memory_total_mib: float
    available_mib: float
    swap_used_mib: float


def host_load(interval: float | None = 0.2) -> HostLoad:
    """Look now. ``interval``: seconds over which the cores are watched; None compares with the last look."""
    import psutil

    cores = psutil.cpu_percent(interval=interval, percpu=True)
    # What this process may use: a container's limit counts, not the computer around it.
    total, available = usable_memory_bytes(), available_memory_bytes()
    return HostLoad(
        core_percent=tuple(float(core) for core in cores),
        usable_cores=usable_cores(),
        memory_used_mib=max(total - available, 0) / 2**20,
        memory_total_mib=total / 2**20,
        available_mib=available / 2**20,
        swap_used_mib=psutil.swap_memory().used / 2**20,
    )
