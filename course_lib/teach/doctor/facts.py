"""What does ``course doctor`` look at? It gathers facts here, and judges them in ``doctor``.

Facts are plain data, so that every judgement can be tested with the facts of a computer that is not at hand.
Whatever may crash (importing torch, starting a kernel's interpreter) happens in a child process.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from course_lib import machine
from course_lib.gpu_driver import NvidiaStatus, amd_card_count, nvidia_status

DISTRIBUTION = "efficient-training-course"
FRONT_ENDS = ("jupyterlab_widgets", "widgetsnbextension")
VERSIONS = ("torch", "torchvision", "numpy", "jupyterlab", "ipykernel", "ipywidgets", *FRONT_ENDS)
_CHILD_SECONDS = 180  # a first import of torch from a slow disk takes a minute


@dataclass(frozen=True)
class Package:
    """One requirement of the course, such as "torch>=2.9", and the installed version (None: missing)."""

    requirement: str
    installed: str | None


@dataclass(frozen=True)
class TorchFacts:
    """What torch and torchvision say about themselves when they are imported and first used.

    ``error`` and ``vision_error`` are the first lines of what failed. ``card_error`` is what came of a first
    sum on the card, where torch says that it has one.
    """

    version: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    cuda_available: bool = False
    mps_built: bool = False
    mps_available: bool = False
    error: str | None = None
    vision_error: str | None = None
    card_error: str | None = None


@dataclass(frozen=True)
class Kernel:
    """The Jupyter kernel that runs the lessons: the environment it starts in, or why it does not start."""

    prefix: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Facts:
    """All that the doctor looks at; sizes in bytes. ``packages`` is None when the course is not installed."""

    system: str  # as platform.system(): Linux, Darwin, Windows
    system_name: str
    place: str | None
    python: str
    bits: int
    executable: str
    prefix: str
    is_venv: bool
    uv: str | None  # the command that starts uv, if it can be started
    packages: tuple[Package, ...] | None
    versions: Mapping[str, str | None] = field(default_factory=dict)
    front_ends: tuple[Package, ...] = ()  # what draws ipywidgets in JupyterLab and in the classic notebook
    torch: TorchFacts = field(default_factory=TorchFacts)
    vision_needs: str | None = None  # the torch that the installed torchvision was built for
    nvidia: NvidiaStatus = field(default_factory=NvidiaStatus)
    amd_cards: int = 0
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES, which can hide all cards
    cores: int = 1
    usable_cores: int = 1
    memory_bytes: int = 0
    usable_memory_bytes: int = 0
    available_memory_bytes: int = 0
    shared_memory_bytes: int | None = None
    free_disk_bytes: int = 0
    kernel: Kernel = field(default_factory=Kernel)


def gather_facts() -> Facts:
    """Look at this computer and this Python. Takes some seconds: torch is imported in a child process."""
    return Facts(
        system=platform.system(),
        system_name=machine.system_name(),
        place=machine.find_place(),
        python=platform.python_version(),
        bits=64 if sys.maxsize > 2**32 else 32,
        executable=sys.executable,
        prefix=sys.prefix,
        is_venv=sys.prefix != sys.base_prefix,
        uv=_uv_command(),
        packages=course_packages(),
        versions={name: _version(name) for name in VERSIONS},
        front_ends=tuple(_package(need) for need in _requirements("ipywidgets") if need.name in FRONT_ENDS),
        torch=torch_facts(),
        vision_needs=next(
            (str(n.specifier) for n in _requirements("torchvision") if n.name == "torch"), None
        ),
        nvidia=nvidia_status(),
        amd_cards=amd_card_count(),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        cores=os.cpu_count() or 1,
        usable_cores=machine.usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        usable_memory_bytes=machine.usable_memory_bytes(),
        available_memory_bytes=machine.available_memory_bytes(),
        shared_memory_bytes=machine.shared_memory_bytes(),
        free_disk_bytes=shutil.disk_usage(Path.cwd()).free,
        kernel=kernel_facts(),
    )


def course_packages(distribution: str = DISTRIBUTION) -> tuple[Package, ...] | None:
    """The requirements of the installed course, without its extras; None when it is not installed."""
    if _version(distribution) is None:
        return None
    return tuple(_package(need) for need in _requirements(distribution))


def torch_facts(python: str = sys.executable) -> TorchFacts:
    """Import torch and torchvision in a child process, where a crash or a hang is an answer too."""
    program = f"from {__name__} import print_torch_facts; print_torch_facts()"
    try:
        child = subprocess.run(
            [python, "-c", program],
            capture_output=True,
            timeout=_CHILD_SECONDS,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return TorchFacts(error=f"the import did not end within {_CHILD_SECONDS} s")
    answer = child.stdout.splitlines()[-1:]
    try:
        return TorchFacts(**json.loads(answer[0]))
    except (IndexError, ValueError, TypeError):
        said = child.stderr.strip().splitlines()[-1:]
        end = f"the import ended the process with status {child.returncode}"
        return TorchFacts(error=f"{end}: {said[0]}" if said else end)


def print_torch_facts() -> None:
    """Print the facts as one line of JSON; runs in the child."""
    print(f"\n{json.dumps(asdict(_import_torch()))}")


def _import_torch() -> TorchFacts:
    try:
        import torch
    except Exception as error:
        return TorchFacts(error=_first_line(error))
    vision_error = None
    try:
        import torchvision

        # Its compiled part is what goes missing, so use it.
        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except Exception as error:
        vision_error = _first_line(error)
    available, card_error = torch.cuda.is_available(), None
    if available:
        try:
            torch.ones(2, device="cuda").sum().item()
        except Exception as error:
            card_error = _first_line(error)
    return TorchFacts(
        version=torch.__version__,
        cuda=torch.version.cuda,
        rocm=torch.version.hip,
        cuda_available=available,
        mps_built=torch.backends.mps.is_built(),
        mps_available=torch.backends.mps.is_available(),
        vision_error=vision_error,
        card_error=card_error,
    )


def kernel_facts(name: str = "python3") -> Kernel:
    """Start the interpreter of that kernel, and ask where it lives and whether it can run cells."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError as error:
        return Kernel(error=_first_line(error))
    try:
        command = KernelSpecManager().get_kernel_spec(name).argv[0]
    except NoSuchKernel:
        return Kernel(error=f"there is no kernel named {name}")
    if command in ("python", "python3", "python.exe", f"python3.{sys.version_info.minor}"):
        command = sys.executable  # as Jupyter itself does
    try:
        child = subprocess.run(
            [command, "-c", "import sys, ipykernel; print(sys.prefix)"],
            capture_output=True,
            timeout=_CHILD_SECONDS,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Kernel(error=f"{command} cannot be started: {_first_line(error)}")
    if child.returncode:
        return Kernel(error=f"{command}: {(child.stderr.strip().splitlines() or ['no answer'])[-1]}")
    return Kernel(prefix=child.stdout.strip())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements(distribution: str) -> list[Requirement]:
    """What an installed package requires on this system, without its extras; nothing if it is not there."""
    try:
        lines = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    wanted = [Requirement(line) for line in lines]
    return [need for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]


def _package(need: Requirement) -> Package:
    return Package(f"{need.name}{need.specifier}", _version(need.name))


def _uv_command() -> str | None:
    """How to start uv: as a module of this Python where it is one, else from the PATH."""
    if _version("uv") is not None:
        return f'"{sys.executable}" -m uv'
    return "uv" if shutil.which("uv") else None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
