"""What is this computer, and how much of it may this process really use?

A container, a batch system or a shared server often grants less than the machine has. Loader workers and
batch sizes are chosen by what is granted: ``usable_cores`` and ``usable_memory_bytes``, not
``os.cpu_count`` and ``free``.
torch is imported only by the functions that must ask it.
"""

import math
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Literal

import psutil

from course_lib.cgroup import read_grant
from course_lib.gpu_driver import nvidia_status
from course_lib.units import format_bytes

Device = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True)
class Gpu:
    """One card that torch can use; memory in bytes."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """This computer as a training run meets it; sizes in bytes. Printed or shown in a cell it is a table."""

    system: str
    place: str | None  # "Google Colab", "WSL2", "a container"; None on plain metal or an unknown host
    python: str
    cpu: str
    cores: int
    usable_cores: int
    memory_bytes: int
    usable_memory_bytes: int
    available_memory_bytes: int
    shared_memory_bytes: (
        int | None
    )  # what loader workers hand batches over in; None where the system sets no bound
    free_disk_bytes: int
    device: Device
    gpus: tuple[Gpu, ...]
    driver_version: str | None
    torch_version: str
    torch_build: str

    def rows(self) -> list[tuple[str, str]]:
        """The table: a name and a readable value for each line."""
        gpus = ", ".join(f"{gpu.name} ({format_bytes(gpu.memory_bytes)})" for gpu in self.gpus)
        shared = self.shared_memory_bytes
        return [
            ("system", self.system + (f", in {self.place}" if self.place else "")),
            ("Python", self.python),
            ("processor", self.cpu),
            ("cores", f"{self.usable_cores} usable of {self.cores}"),
            (
                "memory",
                f"{format_bytes(self.usable_memory_bytes)} usable of {format_bytes(self.memory_bytes)}, "
                f"{format_bytes(self.available_memory_bytes)} free now",
            ),
            ("shared memory", "no bound of its own" if shared is None else format_bytes(shared)),
            ("free disk", format_bytes(self.free_disk_bytes)),
            ("device", self.device + (f": {gpus}" if gpus else "")),
            ("NVIDIA driver", self.driver_version or "none"),
            ("torch", f"{self.torch_version}, built for {self.torch_build}"),
        ]

    def to_json(self) -> dict[str, object]:
        """All fields as plain data, sizes in bytes."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':<15} {value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        lines = (
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in self.rows()
        )
        return f"<table>{''.join(lines)}</table>"


def this_machine(folder: Path | None = None) -> Machine:
    """Look at this computer now. ``folder`` is where free disk is asked for (default: the current folder)."""
    import torch

    memory = psutil.virtual_memory()
    return Machine(
        system=system_name(),
        place=find_place(),
        python=platform.python_version(),
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        memory_bytes=memory.total,
        usable_memory_bytes=usable_memory_bytes(),
        available_memory_bytes=available_memory_bytes(),
        shared_memory_bytes=shared_memory_bytes(),
        free_disk_bytes=shutil.disk_usage(folder or Path.cwd()).free,
        device=best_device(),
        gpus=_usable_gpus(),
        driver_version=nvidia_status().driver_version,
        torch_version=torch.__version__,
        torch_build=torch_build(),
    )


def short_name() -> str:
    """This computer in a few words, for a caption: the cards torch can use, or the usable cores."""
    names = [gpu.name for gpu in _usable_gpus()]
    if names:
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return f"{usable_cores()} cores of {cpu_name()}, no card"


def best_device() -> Device:
    """The fastest device torch can use here: "cuda" (NVIDIA, and AMD under ROCm), "mps" (Apple) or "cpu"."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def torch_build() -> str:
    """What the installed torch was built for: "CUDA 13.0", "ROCm 6.4", "Apple MPS" or "the CPU only"."""
    import torch

    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return "Apple MPS" if torch.backends.mps.is_built() else "the CPU only"


def usable_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: the affinity mask and the control group's CPU quota, the smaller one.

    A part of a core counts as one: it takes two processes to use 1.5 cores.
    """
    quota = read_grant(root).cpu_quota
    cores = _cores_by_affinity()
    return cores if quota is None else min(cores, math.ceil(quota))


def usable_memory_bytes(root: Path = Path("/")) -> int:
    """Memory this process may use: the machine's, the control group's or ``ulimit``'s, the least of them."""
    return _least(psutil.virtual_memory().total, read_grant(root).memory_limit, *_resource_limits())


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Memory that can still be had now without swapping or being killed, in bytes."""
    return _least(psutil.virtual_memory().available, read_grant(root).memory_left, *_resource_limits())


def shared_memory_bytes(folder: Path = Path("/dev/shm")) -> int | None:
    """The size of ``/dev/shm``, through which loader workers send batches; None where there is none.

    Docker gives a container 64 MiB unless told otherwise, and a larger batch then ends in a bus error.
    """
    return shutil.disk_usage(folder).total if folder.is_dir() else None


def find_place(
    environment: Mapping[str, str] = os.environ, release: str = platform.release(), root: Path = Path("/")
) -> str | None:
    """The kind of host, told by the marks it leaves; None when there are none."""
    for variable, place in (
        ("COLAB_RELEASE_TAG", "Google Colab"),
        ("KAGGLE_KERNEL_RUN_TYPE", "Kaggle"),
        ("BINDER_SERVICE_HOST", "Binder"),
        ("BINDER_REPO_URL", "Binder"),
    ):
        if environment.get(variable):
            return place
    if "microsoft" in release.lower():
        # WSL1 is no Linux kernel but an imitation of one, and reaches no card.
        return "WSL1" if release.endswith("-Microsoft") else "WSL2"
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return "a container"
    return None


def system_name() -> str:
    """The operating system with its release and processor family, for example "Linux 6.8.0 x86_64"."""
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]} {platform.machine()}"
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def cpu_name(root: Path = Path("/")) -> str:
    """The processor's name where the system tells it, else its family."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return next(filter(None, names), "") or platform.processor() or platform.machine()


def _cores_by_affinity() -> int:
    if hasattr(os, "process_cpu_count"):  # Python 3.13; knows PYTHON_CPU_COUNT too
        count: int | None = os.process_cpu_count()
        return count or 1
    process = psutil.Process()
    # macOS has no affinity mask.
    return len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else os.cpu_count() or 1


def _least(*limits: int | None) -> int:
    return min(limit for limit in limits if limit is not None)


def _resource_limits() -> list[int]:
    """The soft limits that ``ulimit -v`` and ``ulimit -d`` set, in bytes; Windows has none."""
    try:
        import resource
    except ImportError:
        return []
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return [limit for limit in limits if limit != resource.RLIM_INFINITY]


def _usable_gpus() -> tuple[Gpu, ...]:
    import torch

    if torch.cuda.is_available():
        found = (torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count()))
        return tuple(Gpu(card.name, card.total_memory) for card in found)
    if torch.backends.mps.is_available():
        return (Gpu(f"{cpu_name()} GPU", torch.mps.recommended_max_memory()),)
    return ()
