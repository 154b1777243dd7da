"""Is this computer ready for the course, and if not, what is the cure?

``[FAIL]`` means that lessons will break, ``[WARN]`` that they run, but slower, smaller or without the card
that is there. Every check takes the facts as data and answers in one line, with a cure that can be typed.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from course_lib import __version__
from course_lib.teach.doctor.check import Check, Status, installer
from course_lib.teach.doctor.facts import DISTRIBUTION, Facts, Package
from course_lib.teach.doctor.torch_build import check_device, check_torch, check_torchvision
from course_lib.teach.hosted_install import HOSTED_PLACES, LOCAL_ONLY
from course_lib.units import format_bytes

GIB, MIB = 2**30, 2**20
_LEAST_PYTHON = Version("3.11")
_LEAST_MEMORY = 2 * GIB  # a lesson with its server and children
_LEAST_SHARED = 256 * MIB  # two workers with two batches each of 64 pictures of 224 pixels: 147 MiB
_LITTLE_DISK, _LEAST_DISK = 2 * GIB, 200 * MIB


@dataclass(frozen=True)
class Report:
    """All checks of one computer, with the versions that a bug report needs."""

    headline: str
    checks: tuple[Check, ...]

    @property
    def is_ready(self) -> bool:
        """Whether no check failed."""
        return all(check.status is not Status.FAIL for check in self.checks)

    @property
    def answer(self) -> str:
        """The whole report in one sentence."""
        counts = {status: [c.name for c in self.checks if c.status is status] for status in Status}
        if counts[Status.FAIL]:
            return f"This computer is not ready for the course: see {', '.join(counts[Status.FAIL])}."
        if counts[Status.WARN]:
            known = ", ".join(counts[Status.WARN])
            return f"This computer is ready for the course, with something to know about {known}."
        return "This computer is ready for the course."

    def to_json(self) -> dict[str, object]:
        """Everything as plain data."""
        checks = [{**asdict(check), "status": str(check.status)} for check in self.checks]
        return {"ready": self.is_ready, "answer": self.answer, "headline": self.headline, "checks": checks}

    def __str__(self) -> str:
        lines = [self.answer, self.headline, ""]
        for check in self.checks:
            mark = f"[{check.status}]"
            lines.append(f"{mark:<6} {check.name + ':':<15} {check.found}")
            lines.extend(f"{'':<6} {'':<15} -> {line}" for line in check.cure.splitlines())
        return "\n".join(lines)


def examine(facts: Facts) -> Report:
    """The report on these facts."""
    found = (check(facts) for check in CHECKS)
    return Report(_headline(facts), tuple(check for check in found if check is not None))


def check_python(facts: Facts) -> Check:
    """Python 3.11 or newer with 64 bits; torch has no build for 32."""
    fits = Version(facts.python) >= _LEAST_PYTHON and facts.bits == 64
    cure = "" if fits else "Install Python 3.11 or newer with 64 bits, and set the course up again with it."
    found = f"{facts.python}, {facts.bits} bits, {_tidy(facts.executable)}"
    return Check("Python", Status.OK if fits else Status.FAIL, found, cure)


def check_packages(facts: Facts) -> Check:
    """Everything the course requires is installed and recent enough."""
    if facts.packages is None:
        cure = f"In the folder of the course: {installer(facts)} -e ."
        return Check("packages", Status.FAIL, f"{DISTRIBUTION} is not installed in this Python", cure)
    if facts.place in HOSTED_PLACES:
        return _check_hosted_packages(facts.packages)
    bad = _unfit(facts.packages)
    if not bad:
        return Check("packages", Status.OK, f"all {len(facts.packages)} there and recent enough")
    wanted = " ".join(f'"{package.requirement}"' for package in bad)
    return Check("packages", Status.FAIL, _named(bad), f"{installer(facts)} --upgrade {wanted}")


def _check_hosted_packages(packages: tuple[Package, ...]) -> Check:
    """A place that lends its packages: what only ``course lab`` needs may be missing, older ones stay."""
    needed = [p for p in packages if p.installed or Requirement(p.requirement).name not in LOCAL_ONLY]
    missing = tuple(package for package in needed if package.installed is None)
    if missing:
        return Check(
            "packages", Status.FAIL, _named(missing), "Run the lesson's set-up cell, its first, again."
        )
    older = _unfit(tuple(needed))
    if older:
        cure = "Leave them as they are: this place needs its own. A cell that fails may fail for that reason."
        return Check("packages", Status.WARN, f"older than tested: {_named(older)}", cure)
    return Check("packages", Status.OK, f"all {len(needed)} that a lesson needs here")


def check_cores(facts: Facts) -> Check:
    """The cores that loader workers can share."""
    found = f"{facts.usable_cores} usable of {facts.cores}"
    if facts.usable_cores < facts.cores:
        found += " (an affinity mask or a container's quota sets the bound)"
    if facts.usable_cores > 1:
        return Check("cores", Status.OK, found)
    cure = "With one core loader workers gain little; the lessons say so where it matters."
    return Check("cores", Status.WARN, found, cure)


def check_memory(facts: Facts) -> Check:
    """The memory that a lesson with its children can have."""
    usable, free = facts.usable_memory_bytes, facts.available_memory_bytes
    found = (
        f"{format_bytes(usable)} usable of {format_bytes(facts.memory_bytes)}, {format_bytes(free)} free now"
    )
    if usable < _LEAST_MEMORY:
        cure = f"A lesson can need {format_bytes(_LEAST_MEMORY)}: take a larger computer."
        if facts.place == "WSL2":
            cure = (
                "Raise memory= under [wsl2] in the file .wslconfig of your Windows user folder, "
                "then run in Windows: wsl --shutdown"
            )
        elif usable < facts.memory_bytes:
            need = format_bytes(_LEAST_MEMORY)
            cure = f"Grant at least {need}: docker run --memory 4g ..., or ulimit -v unlimited."
        return Check("memory", Status.WARN, found, cure)
    if free < _LEAST_MEMORY:
        return Check("memory", Status.WARN, found, "Close other programs: a lesson can need 2 GiB.")
    return Check("memory", Status.OK, found)


def check_shared_memory(facts: Facts) -> Check:
    """The memory through which loader workers hand over batches."""
    size = facts.shared_memory_bytes
    if size is None:
        return Check("shared memory", Status.OK, f"no bound of its own on {facts.system}")
    if size >= _LEAST_SHARED:
        return Check("shared memory", Status.OK, format_bytes(size))
    cure = "Loader workers can end with a bus error: start the container with docker run --shm-size=1g ..."
    return Check("shared memory", Status.WARN, format_bytes(size), cure)


def check_disk(facts: Facts) -> Check:
    """Room for checkpoints, runs and pages."""
    found = f"{format_bytes(facts.free_disk_bytes)} free in this folder"
    if facts.free_disk_bytes >= _LITTLE_DISK:
        return Check("disk", Status.OK, found)
    status = Status.FAIL if facts.free_disk_bytes < _LEAST_DISK else Status.WARN
    return Check("disk", status, found, f"Free some space: {format_bytes(_LITTLE_DISK)} are enough.")


def check_kernel(facts: Facts) -> Check:
    """The kernel that Jupyter starts for a lesson is this Python."""
    # Jupyter looks into a virtual environment before the user's folder, but not into a system Python.
    scope = "--sys-prefix" if facts.is_venv else "--user"
    kernel, cure = facts.kernel, f'"{facts.executable}" -m ipykernel install {scope} --name python3'
    if kernel.prefix is None:
        return Check("kernel", Status.FAIL, f"python3 does not start: {kernel.error}", cure)
    if Path(kernel.prefix).resolve() != Path(facts.prefix).resolve():
        found = f"python3 starts another Python, in {_tidy(kernel.prefix)}"
        return Check("kernel", Status.FAIL, found, cure)
    return Check("kernel", Status.OK, "python3 starts this Python")


def check_widgets(facts: Facts) -> Check | None:
    """Sliders show: ipywidgets finds the front ends that it requires. None where ipywidgets is missing."""
    version = facts.versions.get("ipywidgets")
    if version is None:
        return None
    found = f"ipywidgets {version}, {_named(facts.front_ends)}"
    bad = _unfit(facts.front_ends)
    if not bad:
        return Check("widgets", Status.OK, found)
    wanted = " ".join(f'"{package.requirement}"' for package in bad)
    cure = f'{installer(facts)} --upgrade "ipywidgets>=8.1" {wanted}'
    return Check("widgets", Status.FAIL, f"{found}: sliders will not show", cure)


CHECKS: tuple[Callable[[Facts], Check | None], ...] = (
    check_python,
    check_packages,
    check_torch,
    check_torchvision,
    check_device,
    check_cores,
    check_memory,
    check_shared_memory,
    check_disk,
    check_kernel,
    check_widgets,
)


def _unfit(packages: tuple[Package, ...]) -> tuple[Package, ...]:
    return tuple(
        package
        for package in packages
        if package.installed is None
        or not Requirement(package.requirement).specifier.contains(package.installed, prereleases=True)
    )


def _named(packages: tuple[Package, ...]) -> str:
    return ", ".join(f"{Requirement(p.requirement).name} {p.installed or 'missing'}" for p in packages)


def _headline(facts: Facts) -> str:
    place = f" in {facts.place}" if facts.place else ""
    versions = (f"{name} {version}" for name, version in facts.versions.items() if version)
    return ", ".join(
        (f"course {__version__}", facts.system_name + place, f"Python {facts.python}", *versions)
    )


def _tidy(path: str) -> str:
    """The path with the home folder as ~: people paste this in public."""
    home = str(Path.home())
    return path.replace(home, "~", 1) if path.startswith(home + os.sep) else path
