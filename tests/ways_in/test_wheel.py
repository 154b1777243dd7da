"""Does the wheel carry all that the course needs, and does it serve the lessons with no checkout near it?"""

import tomllib
import zipfile
from email.parser import Parser
from itertools import chain

import pytest
from packaging.requirements import Requirement

from course_lib import __version__

SHIPPED = "course_lib/shipped"


@pytest.fixture(scope="module")
def members(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_of(checkout, *folders):
    """The files of these folders of a checkout, from its root."""
    paths = (path for folder in folders for path in (checkout / folder).rglob("*") if path.is_file())
    return [path.relative_to(checkout).as_posix() for path in paths]


def test_the_wheel_has_every_module_notebook_source_and_data_file_and_nothing_else(snapshot, members):
    expected = {name: name for name in files_of(snapshot, "course_lib")}
    expected |= {f"{SHIPPED}/{name}": name for name in files_of(snapshot, "notebooks", "data")}
    assert {"course_lib/py.typed", f"{SHIPPED}/notebooks/source/00_start.py"} <= expected.keys()
    assert f"{SHIPPED}/data/digits.npz" in expected
    assert expected.keys() == {name for name in members if ".dist-info/" not in name}
    differing = [name for name, file in expected.items() if members[name] != (snapshot / file).read_bytes()]
    assert not differing


def test_what_lies_about_in_a_checkout_is_not_shipped(clone, build_wheel, members):
    for litter in (
        "notebooks/.ipynb_checkpoints/00_start-checkpoint.ipynb",
        "course_lib/__pycache__/files.cpython-311.pyc",
        "notebooks/source/__pycache__/x.pyc",
        "data/.DS_Store",
        "work/00_start.ipynb",
        "build/solved/00_start.ipynb",
    ):
        (clone / litter).parent.mkdir(parents=True, exist_ok=True)
        (clone / litter).write_text("{}", encoding="utf-8")
    with zipfile.ZipFile(build_wheel(clone)) as archive:
        assert set(archive.namelist()) == members.keys()


def test_the_metadata_are_those_of_the_project(root, members):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (name,) = (name for name in members if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(members[name].decode())
    assert (metadata["Name"], metadata["Version"]) == (project["name"], __version__)
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["License-Expression"] == project["license"]
    required = {str(Requirement(line)) for line in metadata.get_all("Requires-Dist")}
    assert required >= {str(Requirement(line)) for line in project["dependencies"]}
    assert metadata.get_payload().startswith("# ")
    (scripts,) = (members[name].decode() for name in members if name.endswith("/entry_points.txt"))
    assert "course = course_lib.cli.main:main" in scripts
    assert any(name.endswith("/licenses/LICENSE") for name in members)


def test_no_requirement_is_pinned(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    assert {part.operator for line in lines for part in Requirement(line).specifier} == {">="}


def test_the_source_distribution_builds_the_same_wheel(wheel_from_sdist, members):
    with zipfile.ZipFile(wheel_from_sdist) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == members


@pytest.mark.slow
def test_lesson_00_is_served_from_the_wheel_outside_any_checkout(environment, wheel, served_lesson, tmp_path):
    python = environment()
    python.run("pip", "install", "--no-deps", "--no-index", wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lesson = served_lesson(python.python, elsewhere, python.variables())
    assert lesson["path"] == "00_start.ipynb"
    title = lesson["content"]["cells"][0]["source"]
    assert title.startswith("# ")
    assert (elsewhere / "efficient-training-course" / "00_start.ipynb").is_file()
    where = python.ask("import course_lib.files as f; print(f.checkout_root(), f.data_path('digits.npz'))")
    root, data = where.split()
    assert root == "None"
    assert data.startswith(str(tmp_path))
