"""Where are the course's own files: lessons, their sources, and the small data files?

In a checkout they stand beside ``course_lib``. In an installed wheel they were copied to
``course_lib/shipped``. Everything else asks here, so that no other module needs to know the difference.
"""

from pathlib import Path

from course_lib.errors import CourseError

_PACKAGE = Path(__file__).resolve().parent


def checkout_root(package: Path = _PACKAGE) -> Path | None:
    """The folder of the checkout this package runs from, or None when it was installed from a wheel.

    A checkout is told by the two things a wheel never has beside the package: ``pyproject.toml`` and
    ``notebooks/``.
    """
    root = package.parent
    is_checkout = (root / "pyproject.toml").is_file() and (root / "notebooks").is_dir()
    return root if is_checkout else None


def notebooks_dir(package: Path = _PACKAGE) -> Path:
    """The folder of the lessons as a learner opens them. Raises CourseError when it is missing."""
    return _folder("notebooks", package)


def source_dir(package: Path = _PACKAGE) -> Path:
    """The folder of the lessons' py:percent sources. Raises CourseError when it is missing."""
    return _folder("notebooks/source", package)


def data_path(name: str, package: Path = _PACKAGE) -> Path:
    """The path of one data file, for example ``data_path("digits.npz")``.

    ``name`` is relative to ``data/`` and may name a folder in it. Raises CourseError when there is no such
    file, or when the name leaves the data folder.
    """
    folder = _folder("data", package)
    path = folder / name
    if not name or not path.resolve().is_relative_to(folder.resolve()):
        raise CourseError(f"{name!r} is not the name of a file in the course's data folder.")
    if not path.exists():
        known = ", ".join(sorted(p.name for p in folder.iterdir())) or "nothing"
        raise CourseError(f"The course has no data file {name!r}; its data folder {folder} holds {known}.")
    return path


def _folder(name: str, package: Path) -> Path:
    root = checkout_root(package)
    folder = (root if root is not None else package / "shipped") / name
    if not folder.is_dir():
        raise CourseError(
            f"The course's folder {name}/ is missing: it should be at {folder}; "
            "install the course again, or clone it again."
        )
    return folder
