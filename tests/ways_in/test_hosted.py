"""Does a lesson run on Colab or Kaggle: with PyTorch there, without the course, without its repository?

The place is simulated: a fresh environment that has this one's packages, PyTorch among them, but neither the
course nor what Colab does not have. What the set-up cell calls is the real pip, and the course comes from the
wheel of this checkout, or from an archive of it as GitHub gives it, named by COURSE_SOURCE.
"""

import hashlib
import json
import re
import zipfile

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from course_lib.teach.build import derive
from course_lib.teach.hosted import hosted_edition, setup_code
from course_lib.teach.links import Repository
from course_lib.teach.source import read_source

REPOSITORY = Repository("octo-org/course")
NOT_ON_COLAB = ("jupytext", "mdit_py_plugins", "mdit-py-plugins", "papermill", "jupyterlab", "hypothesis")
# As Colab has them; they are older than what the course asks for, and must stay as they are.
COLAB_VERSIONS = ("ipython==7.34.0", "ipykernel==6.17.1", "ipywidgets==7.7.1")
INSTALLED = """
import importlib.metadata, json
found = {}
for dist in importlib.metadata.distributions():
    found.setdefault(dist.metadata["Name"], dist.version)
print(json.dumps(found))
"""
TORCH = "import torch; print(torch.__version__, torch.__file__)"
ANSWERED = """\
from course_lib.teach import check

def samples_per_second(batch_size: int, step_seconds: float) -> float:
    return batch_size / step_seconds

check("start.throughput", samples_per_second)
"""


def state_of_torch(environment):
    """Version and place as imported, and the list of its files with their hashes."""
    version, file = environment.ask(TORCH).split()
    record = environment.ask(
        "import importlib.metadata as m; print(m.distribution('torch').read_text('RECORD'))"
    )
    return version, file, hashlib.sha256(record.encode()).hexdigest()


def test_the_set_up_cell_brings_the_course_and_replaces_nothing(environment, wheel, tmp_path):
    """Offline: all but the course is there, so pip has nothing to ask the network for."""
    place = environment()
    before, torch = json.loads(place.ask(INSTALLED)), state_of_torch(place)
    assert "efficient-training-course" not in before
    printed = place.ask(setup_code(REPOSITORY), COURSE_SOURCE=str(wheel), PIP_NO_INDEX="1")
    assert re.fullmatch(r"The course \S+ is ready, with PyTorch \S+\.\n", printed), printed
    after = json.loads(place.ask(INSTALLED))
    assert {name: after.pop(name) for name in after.keys() - before.keys()}.keys() == {
        "efficient-training-course"
    }
    assert after == before
    assert state_of_torch(place) == torch
    assert place.ask("import course_lib; print(course_lib.__file__)").startswith(str(tmp_path / "venv"))
    again = place.ask(setup_code(REPOSITORY), COURSE_SOURCE=str(tmp_path / "gone.whl"), PIP_NO_INDEX="1")
    assert again == printed


def tiny_wheel(folder, name, version, requires=()):
    """A package without any code."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in requires)]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(["Metadata-Version: 2.1", *metadata, ""]))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def test_what_is_there_is_kept_even_where_a_missing_package_wants_a_newer_one(environment, wheel, tmp_path):
    """The real pip, with a newer version within its reach: it adds what goes with what is there, or fails."""
    place = environment()
    for version in ("1.0", "2.0"):
        tiny_wheel(tmp_path, "given", version)
    tiny_wheel(tmp_path, "modest", "1.0", requires=["given>=1"])
    tiny_wheel(tmp_path, "greedy", "1.0", requires=["given>=2"])
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    place.run("pip", "install", "--quiet", "given==1.0", "--no-deps", wheel, **offline)
    add = """
from course_lib.errors import CourseError
from course_lib.teach.hosted_install import _install, versions_here
try:
    _install([{name!r}], versions_here())
except CourseError as error:
    print(error)
print(versions_here()["given"], versions_here().get({name!r}))
"""
    assert place.ask(add.format(name="modest"), **offline).split() == ["1.0", "1.0"]
    *said, versions = place.ask(add.format(name="greedy"), **offline).splitlines()
    assert versions.split() == ["1.0", "None"]
    assert len(said) == 1
    assert said[0].startswith("greedy could not be added to what is installed here (ERROR: ")


def run_all(place, notebook, folder, **variables):
    """Run a notebook in that environment, as the place would: its own kernel, in a folder of its own."""
    kernel = place.folder / "kernels" / "hosted"
    kernel.mkdir(parents=True)
    argv = [str(place.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "hosted", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    specs = KernelSpecManager(kernel_dirs=[str(kernel.parent)])
    manager = AsyncKernelManager(kernel_name="hosted", kernel_spec_manager=specs)
    client = NotebookClient(
        notebook, km=manager, timeout=900, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=place.variables(COURSE_QUICK="1", **variables))
    return notebook


def printed(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("versions", [(), COLAB_VERSIONS], ids=["newest", "as-colab-has-them"])
def test_a_whole_lesson_runs_where_only_pytorch_was(snapshot, environment, archive, tmp_path, versions):
    """May use the network: to build the course, for what Colab does not have, for its older packages."""
    place = environment(without=NOT_ON_COLAB)
    if versions:
        place.run("pip", "install", "--quiet", *versions)
    before, torch = json.loads(place.ask(INSTALLED)), state_of_torch(place)
    assert "jupytext" not in before

    lesson = read_source(snapshot / "notebooks" / "source" / "00_start.py")
    notebook = hosted_edition(derive(lesson), REPOSITORY)
    notebook.cells += [
        new_code_cell(ANSWERED),
        new_code_cell("!course progress"),
        new_code_cell("!course doctor"),
    ]
    content = tmp_path / "content"
    content.mkdir()
    nbformat.write(notebook, content / "00_start.ipynb")
    run_all(place, notebook, content, COURSE_SOURCE=archive, COLAB_RELEASE_TAG="release-colab_simulated")
    nbformat.write(notebook, tmp_path / "run.ipynb")

    failed = {
        cell.source: output.evalue
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "error"
    }
    assert not failed
    (setup,) = (cell for cell in notebook.cells if "setup" in cell.metadata.get("tags", ()))
    assert re.fullmatch(r"The course \S+ is ready, .* Added: jupytext \S+\..*\n", printed(setup)), printed(
        setup
    )

    after = json.loads(place.ask(INSTALLED))
    assert {name: after.get(name) for name in before} == before
    assert after.keys() - before.keys() <= {"efficient-training-course", "jupytext", "mdit-py-plugins"}
    assert state_of_torch(place) == torch
    *_, progress, doctor = notebook.cells
    assert re.search(r"1 of \d+|throughput", printed(progress)), printed(progress)
    assert (content / ".course").is_dir()  # the learner's progress, in the folder of the notebook
    assert "is ready for the course" in printed(doctor), printed(doctor)
