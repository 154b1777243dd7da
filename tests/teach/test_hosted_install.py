import importlib.metadata

import pytest
from packaging.version import Version

from course_lib.errors import CourseError
from course_lib.teach import hosted_install
from course_lib.teach.doctor.facts import DISTRIBUTION, Package
from course_lib.teach.hosted_install import (
    GIVEN,
    LOCAL_ONLY,
    Completed,
    complete,
    missing_here,
    versions_here,
)

HERE = (
    Package("torch>=2.9", "2.9.0+cu126"),
    Package("torchvision>=0.24", "0.24.0"),
    Package("numpy>=1.26", "2.0.2"),
)


def test_only_what_lessons_need_and_nobody_brought_is_missing():
    packages = (
        *HERE,
        Package("ipywidgets>=8.1", "7.7.1"),  # older, and left so
        Package("jupytext>=1.16", None),
        Package("jupyterlab>=4.2", None),  # serves `course lab`, which does not run there
        Package("psutil>=5.9", None),
    )
    assert missing_here(packages) == ("jupytext>=1.16", "psutil>=5.9")


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_what_the_place_brings_is_never_installed(name):
    packages = tuple(
        Package(p.requirement, None if p.requirement.startswith(f"{name}>") else p.installed) for p in HERE
    )
    with pytest.raises(CourseError, match=f"There is no {name} in this Python"):
        missing_here(packages)


def test_the_names_are_those_of_the_courses_requirements():
    required = {line.partition(">")[0] for line in importlib.metadata.requires(DISTRIBUTION) or ()}
    assert required >= GIVEN | LOCAL_ONLY


def test_versions_here_are_the_imported_ones_and_pip_can_read_them():
    versions = versions_here()
    assert versions["torch"] == importlib.metadata.version("torch")
    assert all(Version(version) for version in versions.values())


class Found:
    def __init__(self, name, version):
        self.metadata, self.version = {"Name": name}, version


def test_the_first_on_the_path_counts_and_unreadable_versions_do_not():
    found = [
        Found("My.Package", "2.0"),
        Found("my-package", "1.0"),
        Found("odd", "unknown"),
        Found(None, "1"),
    ]
    assert versions_here(found) == {"my-package": "2.0"}


def test_where_all_is_there_nothing_is_installed(monkeypatch):
    monkeypatch.setattr(hosted_install.subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))
    done = complete()
    assert done.added == ()
    assert "\n" not in str(done)
    assert f"with PyTorch {importlib.metadata.version('torch')}." in str(done)


def test_what_was_added_and_what_is_older_is_told():
    done = Completed("2.6.0", ("jupytext 1.19.1",), (Package("torch>=2.9", "2.6.0"),))
    assert "Added: jupytext 1.19.1." in str(done)
    assert str(done).endswith("left so: torch 2.6.0.")


def test_a_package_that_cannot_be_added_is_one_sentence(monkeypatch):
    """The real pip, asked for a package that cannot exist under the constraint of what is here."""
    packages = (*HERE, Package("click>=99999", None))
    monkeypatch.setattr(hosted_install, "course_packages", lambda _: packages)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        CourseError, match=r"click>=99999 could not be added .*\(ERROR: .*run this cell again"
    ) as told:
        complete()
    assert "\n" not in str(told.value)


def test_not_installed_is_one_sentence():
    with pytest.raises(CourseError, match="not installed here"):
        complete("no-such-distribution-of-anybody")
