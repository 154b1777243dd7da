"""What does the course still need on Colab or Kaggle, and how does it come without replacing anything?

Both places come with PyTorch, built for the card that they lend, and a notebook that is running in the
packages that are there. So only what is missing is installed, and every version that is there is a
constraint for pip: it adds, or it fails; it never replaces.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from course_lib import __version__
from course_lib.errors import CourseError
from course_lib.teach.doctor.facts import DISTRIBUTION, Package, course_packages

HOSTED_PLACES = frozenset({"Google Colab", "Kaggle"})
"""Where this is needed, in the words of ``machine.find_place``."""

GIVEN = frozenset({"torch", "torchvision", "numpy"})
"""What such a place brings: a build of it that somebody else's installer picks would not fit the card."""

LOCAL_ONLY = frozenset({"jupyterlab", "papermill", "nbclient", "nbconvert"})
"""What serves ``course lab`` and ``course run``, which belong to a computer of one's own."""


@dataclass(frozen=True)
class Completed:
    """The course in a place that lends a computer: what was added to it, and what is older than asked."""

    torch: str
    added: tuple[str, ...]  # "jupytext 1.19.1"
    older: tuple[Package, ...]

    def __str__(self) -> str:
        added = f" Added: {', '.join(self.added)}." if self.added else ""
        older = ", ".join(f"{Requirement(p.requirement).name} {p.installed}" for p in self.older)
        known = f" Older than the course is tested with, and left so: {older}." if older else ""
        return f"The course {__version__} is ready, with PyTorch {self.torch}.{added}{known}"


def complete(distribution: str = DISTRIBUTION) -> Completed:
    """Install the packages that the lessons need and that are not there yet; replace none.

    Raises:
        CourseError: there is no PyTorch here, or pip cannot add what is missing to what is there.
    """
    packages = course_packages(distribution)
    if packages is None:
        raise CourseError("The course is imported, but not installed here; install it with pip.")
    missing = missing_here(packages)
    if missing:
        _install(missing, versions_here())
        importlib.invalidate_caches()
    after = {p.requirement: p.installed for p in course_packages(distribution) or ()}
    return Completed(
        torch=importlib.metadata.version("torch"),
        added=tuple(f"{Requirement(line).name} {after[line]}" for line in missing),
        older=tuple(package for package in packages if _is_older(package)),
    )


def missing_here(packages: Sequence[Package]) -> tuple[str, ...]:
    """The requirements that nothing here meets and that a lesson in a lent place needs.

    Raises:
        CourseError: one of them is PyTorch or NumPy, which such a place brings itself.
    """
    missing = {Requirement(p.requirement).name: p.requirement for p in packages if p.installed is None}
    not_given = sorted(GIVEN & missing.keys())
    if not_given:
        raise CourseError(
            f"There is no {' and no '.join(not_given)} in this Python. This edition of the lesson is for "
            "Colab and Kaggle, which bring it; on a computer of your own, clone the course and run start.py."
        )
    return tuple(requirement for name, requirement in missing.items() if name not in LOCAL_ONLY)


def versions_here(
    distributions: Iterable[importlib.metadata.Distribution] | None = None,
) -> dict[str, str]:
    """The version of each package that this Python would import, by its normal name."""
    versions: dict[str, str] = {}
    for found in importlib.metadata.distributions() if distributions is None else distributions:
        name = found.metadata["Name"]
        try:
            version = str(Version(found.version))
        except (InvalidVersion, TypeError):
            continue  # pip could not read such a constraint
        if name:
            versions.setdefault(canonicalize_name(name), version)  # the first on the path is imported
    return versions


def _install(requirements: Sequence[str], versions: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "installed.txt"
        pins.write_text("".join(f"{n}=={v}\n" for n, v in versions.items()), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(pins), *requirements],
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise CourseError(
            f"{' and '.join(requirements)} could not be added to what is installed here "
            f"({errors[0] if errors else 'pip gave no reason'}); see that the internet is switched on, "
            "then run this cell again."
        )


def _is_older(package: Package) -> bool:
    if package.installed is None:
        return False
    return not Requirement(package.requirement).specifier.contains(package.installed, prereleases=True)
