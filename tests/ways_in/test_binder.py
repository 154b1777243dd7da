"""Does Binder's environment hold what pyproject.toml asks for, and does its set-up copy the lessons?"""

import os
import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base", "nbconvert": "nbconvert-core"}
OTHER = {"python", "pip", "hatchling"}  # what installs the course itself


@pytest.fixture(scope="module")
def packages(root):
    environment = yaml.safe_load((root / "binder" / "environment.yml").read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    requirements = map(Requirement, environment["dependencies"])
    return {requirement.name: requirement.specifier for requirement in requirements}


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_dependency_is_there_with_its_lower_bound_and_no_other(packages, project):
    wanted = {
        Requirement(line).name: Requirement(line).specifier for line in project["project"]["dependencies"]
    }
    assert {CONDA_NAMES.get(name, name): bound for name, bound in wanted.items()} == {
        name: bound for name, bound in packages.items() if name not in OTHER
    }


def test_python_is_one_that_the_course_allows_and_tests(packages, project):
    allowed = SpecifierSet(project["project"]["requires-python"])
    tested = [
        line.rpartition(":: ")[2] for line in project["project"]["classifiers"] if "Python :: 3." in line
    ]
    assert [version for version in tested if Version(version) in packages["python"]] == tested
    for minor in range(30):
        version = Version(f"3.{minor}.99")
        assert version not in packages["python"] or version in allowed
    assert Version("3.99") not in packages["python"]  # conda would take one that nobody tried


def test_the_build_tool_is_the_projects_own(packages, project):
    (line,) = project["build-system"]["requires"]
    assert packages["hatchling"] == Requirement(line).specifier


@pytest.mark.skipif(os.name == "nt", reason="Binder's scripts are for bash")
@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_the_scripts_can_be_executed_and_git_knows_it(root, name):
    path = root / "binder" / name
    assert os.access(path, os.X_OK)
    assert path.read_bytes().startswith(b"#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", str(path)], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--stage", f"binder/{name}"],
        cwd=root,
        capture_output=True,
        check=False,
        text=True,
    ).stdout
    assert not listed or listed.startswith("100755")


@pytest.mark.skipif(os.name == "nt", reason="Binder's scripts are for bash")
def test_the_server_starts_with_its_own_arguments_and_the_quick_lessons(root):
    done = subprocess.run(
        ["bash", str(root / "binder" / "start"), "bash", "-c", 'echo "$COURSE_QUICK|$0|$1"', "a b", "c"],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert done.stdout == "1|a b|c\n"


@pytest.mark.skipif(os.name == "nt", reason="Binder's scripts are for bash")
def test_the_set_up_installs_the_course_and_puts_the_lessons_where_the_badge_looks(clone, environment):
    """Runs postBuild in an environment that has all but the course; offline."""
    place = environment()
    done = subprocess.run(
        ["binder/postBuild"], cwd=clone, env=place.variables(PIP_NO_INDEX="1"),
        capture_output=True, check=False, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    badge = re.search(r"urlpath=lab/tree/(\S+)", badge_address())
    assert (clone / badge[1]).is_file()
    assert place.ask("import course_lib; print(course_lib.__file__)").startswith(str(place.folder / "venv"))


def badge_address():
    from course_lib.teach.links import Repository, binder_address

    return binder_address(Repository("octo-org/course"), "00_start")
