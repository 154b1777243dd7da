"""Are the course's files found both in a checkout and in an installed wheel, and missed with a sentence?"""

from pathlib import Path

import pytest

from course_lib.errors import CourseError
from course_lib.files import checkout_root, data_path, notebooks_dir, source_dir


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package folder in a checkout with one lesson and one data file."""
    return _lay_out(tmp_path / "clone", tmp_path / "clone" / "course_lib", is_checkout=True)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A package folder as a wheel installs it, with another project's pyproject.toml far above it."""
    package = tmp_path / "site-packages" / "course_lib"
    (tmp_path / "pyproject.toml").touch()
    return _lay_out(package / "shipped", package, is_checkout=False)


def _lay_out(root: Path, package: Path, is_checkout: bool) -> Path:
    package.mkdir(parents=True)
    (root / "notebooks" / "source").mkdir(parents=True)
    (root / "data" / "logs").mkdir(parents=True)
    (root / "data" / "cards.csv").touch()
    (root / "data" / "logs" / "run.txt").touch()
    if is_checkout:
        (root / "pyproject.toml").touch()
    return package


def test_a_checkout_is_used_as_it_is(checkout: Path) -> None:
    root = checkout.parent
    assert checkout_root(checkout) == root
    assert notebooks_dir(checkout) == root / "notebooks"
    assert source_dir(checkout) == root / "notebooks" / "source"
    assert data_path("cards.csv", checkout) == root / "data" / "cards.csv"


def test_a_wheel_carries_its_own_copy(wheel: Path) -> None:
    assert checkout_root(wheel) is None
    assert notebooks_dir(wheel) == wheel / "shipped" / "notebooks"
    assert source_dir(wheel) == wheel / "shipped" / "notebooks" / "source"
    assert data_path("logs/run.txt", wheel) == wheel / "shipped" / "data" / "logs" / "run.txt"


def test_notebooks_of_somebody_else_beside_an_installed_package_are_not_ours(wheel: Path) -> None:
    (wheel.parent / "notebooks").mkdir()
    assert checkout_root(wheel) is None


def test_this_checkout_is_found() -> None:
    root = checkout_root()
    assert root == Path(__file__).resolve().parents[1]
    assert notebooks_dir() == root / "notebooks"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="notebooks/ is missing"):
        notebooks_dir(tmp_path / "course_lib")


def test_a_missing_data_file_is_answered_with_what_there_is(checkout: Path) -> None:
    with pytest.raises(CourseError, match=r"card\.csv.*cards\.csv"):
        data_path("card.csv", checkout)


@pytest.mark.parametrize("name", ["", "../pyproject.toml", "/etc/hosts", "logs/../../pyproject.toml"])
def test_a_name_never_leaves_the_data_folder(checkout: Path, name: str) -> None:
    with pytest.raises(CourseError, match="data folder"):
        data_path(name, checkout)
