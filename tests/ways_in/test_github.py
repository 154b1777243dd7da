"""Do GitHub's files mean what they should: valid by GitHub's schemas, and naming only what is there?"""

import re
import shlex
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

SCHEMAS = {
    ".github/workflows/*.yml": "vendor.github-workflows",
    ".github/dependabot.yml": "vendor.dependabot",
    ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config",
    ".github/ISSUE_TEMPLATE/[!c]*.yml": "vendor.github-issue-forms",
}


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def workflows(root):
    paths = (root / ".github" / "workflows").glob("*.yml")
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths}


@pytest.mark.parametrize("pattern", SCHEMAS)
def test_files_are_valid_by_githubs_own_schema(root, pattern):
    files = [str(path) for path in root.glob(pattern)]
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[pattern], *files]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def jobs(workflows):
    return [job for workflow in workflows.values() for job in workflow["jobs"].values()]


def matrix_of(job):
    """The job's matrix, each value of it as a list of texts."""
    return {key: list(map(str, value)) for key, value in job.get("strategy", {}).get("matrix", {}).items()}


def values(job, text):
    """A value of a job, or what the matrix puts in its place."""
    found = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", text)
    return matrix_of(job)[found[1]] if found else [text]


def test_the_tests_run_on_three_systems_with_the_oldest_and_the_newest_python(workflows, project):
    job = workflows["tests"]["jobs"]["everywhere"]
    assert set(values(job, job["runs-on"])) == {"ubuntu-latest", "macos-latest", "windows-latest"}
    tested = [
        line.rpartition(":: ")[2] for line in project["project"]["classifiers"] if "Python :: 3." in line
    ]
    assert matrix_of(job)["python"] == [tested[0], tested[-1]]


def test_every_job_has_a_time_limit_and_reads_only(workflows):
    assert all(1 <= job["timeout-minutes"] <= 360 for job in jobs(workflows))
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in workflows.values())


def test_actions_are_named_with_a_version(workflows):
    used = [step["uses"] for job in jobs(workflows) for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", action) for action in used), used


def test_pythons_are_allowed_by_the_project(workflows, project):
    allowed = SpecifierSet(project["project"]["requires-python"])
    for job in jobs(workflows):
        for step in job["steps"]:
            for version in values(job, step.get("with", {}).get("python-version", "3.x")):
                assert version == "3.x" or f"{version}.0" in allowed


def test_commands_name_what_is_there(root, workflows, project):
    markers = [line.partition(":")[0] for line in project["tool"]["pytest"]["ini_options"]["markers"]]
    for job in jobs(workflows):
        for step in job["steps"]:
            if "run" not in step:
                continue
            python, script, command, *rest = shlex.split(step["run"])
            assert (python, command) == ("python", "test")
            assert (root / script).is_file()
            paths = [word for word in rest if not word.startswith("-") and word not in markers]
            assert all((root / path).exists() for path in paths)
            if "-m" in rest:
                assert rest[rest.index("-m") + 1] in markers


def test_one_job_has_the_oldest_torch_that_the_project_allows(root, workflows, project):
    variables = workflows["tests"]["jobs"]["oldest-torch"]["env"]
    assert set(variables) == {"UV_CONSTRAINT", "PIP_CONSTRAINT"}  # whichever of the two start.py uses
    (file,) = set(variables.values())
    lines = (root / file).read_text(encoding="utf-8").splitlines()
    pinned = {line for line in lines if line and not line.startswith("#")}
    wanted = {
        Requirement(line).name: str(Requirement(line).specifier)
        for line in project["project"]["dependencies"]
    }
    assert pinned == {f"{name}=={wanted[name].removeprefix('>=')}.*" for name in ("torch", "torchvision")}


def test_one_job_forces_forkserver(workflows):
    assert workflows["tests"]["jobs"]["forkserver"]["env"] == {"COURSE_START_METHOD": "forkserver"}
    assert workflows["tests"]["jobs"]["forkserver"]["runs-on"] == "ubuntu-latest"  # Windows has none


def test_a_week_never_passes_without_a_run_on_the_newest_versions(workflows):
    (schedule,) = workflows["weekly"][True]["schedule"]  # YAML 1.1 reads the key "on" as true
    minute, hour, day, month, weekday = schedule["cron"].split()
    assert (day, month) == ("*", "*")
    assert all(field.isdigit() for field in (minute, hour, weekday))


def test_the_form_for_problems_asks_for_lesson_cell_and_doctor(root):
    form = yaml.safe_load((root / ".github/ISSUE_TEMPLATE/problem.yml").read_text(encoding="utf-8"))
    required = {field["id"] for field in form["body"] if field.get("validations", {}).get("required")}
    assert required >= {"lesson", "cell", "doctor"}
    (doctor,) = (field for field in form["body"] if field["id"] == "doctor")
    assert "course doctor" in doctor["attributes"]["label"]


def test_hooks_before_a_commit_can_be_run(root, tmp_path):
    """Each is a module that this environment has, and passes or fails by what it is given."""
    hooks = yaml.safe_load((root / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0][
        "hooks"
    ]
    commands = {hook["id"]: shlex.split(hook["entry"]) for hook in hooks}
    assert all(command[:2] == ["python", "-m"] for command in commands.values())
    bad = tmp_path / "bad.py"
    bad.write_text("import os\nx = ( 1)\n", encoding="utf-8")
    good = tmp_path / "good.py"
    good.write_text('"""Good."""\n', encoding="utf-8")
    for name in ("ruff-check", "ruff-format"):
        results = [
            subprocess.run(
                [sys.executable, *commands[name][1:], str(file)], capture_output=True, check=False, cwd=root
            ).returncode
            for file in (good, bad)
        ]
        assert results == [0, 1]
    (notebooks,) = (hook for hook in hooks if hook["id"] == "notebooks")
    assert notebooks["entry"] == "python -m course_lib build --check"  # tests/cli/test_author.py runs it
    watched = re.compile(notebooks["files"])
    for file in ("notebooks/00_start.ipynb", "notebooks/source/00_start.py", "notebooks/links.json"):
        assert watched.search(file)
    modules = re.findall(r"\w+", watched.pattern.partition("(build")[0]) and re.search(
        r"\((build[^)]*)\)", watched.pattern
    )
    assert all((root / "course_lib" / "teach" / f"{name}.py").is_file() for name in modules[1].split("|"))
