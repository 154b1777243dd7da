"""The course as a wheel, and environments that have this one's packages but not the course."""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
import venv
from pathlib import Path

import pytest

from course_lib.files import checkout_root

COURSE = "efficient-training-course"


@pytest.fixture(scope="session")
def root():
    """The checkout: what is looked at here is not in a wheel."""
    found = checkout_root()
    if found is None:
        pytest.skip("looks at a checkout; this is an installed package")
    return found


def course_files(folder):
    """The files that belong to the course: those that git knows, or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, encoding="utf-8")
    if done.returncode:
        pytest.skip("asks git which files belong to the course; this is no clone")
    return [name for name in done.stdout.splitlines() if (folder / name).is_file()]


@pytest.fixture(scope="session")
def snapshot(root, tmp_path_factory):
    """A copy of the checkout as git would have it, which nobody edits while the tests run."""
    copy = tmp_path_factory.mktemp("snapshot") / "course"
    for name in course_files(root):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy / name)
    return copy


@pytest.fixture
def archive(snapshot, tmp_path):
    """The checkout as GitHub gives a branch to pip: a zip file with one folder in it."""
    return shutil.make_archive(str(tmp_path / "main"), "zip", snapshot.parent, snapshot.name)


@pytest.fixture
def clone(snapshot, tmp_path):
    """A copy of the checkout for one test, which may write in it."""
    return shutil.copytree(snapshot, tmp_path / "clone")


@pytest.fixture(scope="session")
def wheel(snapshot, tmp_path_factory):
    """The wheel of this checkout as it is now, built without the network."""
    return build(snapshot, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def build_wheel(tmp_path):
    """Builds a wheel: ``build_wheel(checkout)``."""
    return lambda checkout: build(checkout, "wheel", tmp_path / "built")


@pytest.fixture(scope="session")
def wheel_from_sdist(snapshot, tmp_path_factory):
    """The wheel that is built from the source distribution of this checkout."""
    archive = build(snapshot, "sdist", tmp_path_factory.mktemp("sdist"))
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as file:
        file.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    return build(source, "wheel", tmp_path_factory.mktemp("again"))


def build(root, target, folder):
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.iterdir()
    return file


class Environment:
    """A virtual environment in which this one's packages can be imported, except the course and some others.

    They are links, so that it is made in seconds and without the network; pip takes them for packages of the
    system, as on Colab, and puts its own before them.
    """

    def __init__(self, folder, without=()):
        self.folder = folder
        has_pip = importlib.util.find_spec("pip") is not None  # linked then, which is faster
        venv.create(folder / "venv", with_pip=not has_pip)
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.python = folder / "venv" / scripts / Path(sys.executable).name
        self.scripts = self.python.parent
        borrowed = folder / "borrowed"
        borrowed.mkdir()
        hidden = {name for dist in (COURSE, *without) for name in top_level(dist)}
        for site in dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib")):
            for entry in Path(site).iterdir():
                if entry.name not in hidden and entry.suffix != ".pth":
                    link(borrowed / entry.name, entry)
        own = self.ask("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        (Path(own) / "borrowed.pth").write_text(str(borrowed), encoding="utf-8")
        for name in ("share", "etc"):  # where JupyterLab's page and its settings are
            if (Path(sys.prefix) / name).is_dir() and not (folder / "venv" / name).exists():
                link(folder / "venv" / name, Path(sys.prefix) / name)

    def variables(self, **more):
        """The environment variables for its programs: nothing of the course's, nor of this process's own."""
        ours = ("COURSE_", "JUPYTER_", "PYTHON", "VIRTUAL_ENV", "PYTEST_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        kept["PATH"] = os.pathsep.join([str(self.scripts), kept.get("PATH", "")])
        private = {f"JUPYTER_{n}_DIR": str(self.folder / n) for n in ("CONFIG", "DATA", "RUNTIME")}
        return {**kept, **private, "PYTHONUTF8": "1", **more}

    def run(self, *command, cwd=None, check=True, **variables):
        """Run a module as a program; returns what subprocess.run does."""
        return subprocess.run(
            [str(self.python), "-m", *map(str, command)],
            cwd=cwd or self.folder,
            env=self.variables(**variables),
            capture_output=True,
            check=check,
            encoding="utf-8",
            errors="replace",
            timeout=900,
        )

    def ask(self, program, **variables):
        """What a program prints."""
        done = subprocess.run(
            [str(self.python), "-c", program],
            cwd=self.folder,
            env=self.variables(**variables),
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def top_level(distribution):
    """The entries of site-packages that belong to a package."""
    try:
        files = importlib.metadata.files(distribution) or ()
    except importlib.metadata.PackageNotFoundError:
        return set()
    return {file.parts[0] for file in files} - {".."}


def link(new, old):
    try:
        new.symlink_to(old, target_is_directory=old.is_dir())
    except OSError as error:
        pytest.skip(f"this system does not let a test make links ({error})")


@pytest.fixture
def environment(tmp_path):
    """Makes an environment: ``environment(without=("jupytext",))``."""
    return lambda without=(): Environment(tmp_path, without)


@contextlib.contextmanager
def serving(python, folder, variables, limit_s=120):
    """``course lab`` run by this Python in this folder; yields the address of its contents, and its token."""
    printed = folder / "printed.txt"
    with printed.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [str(python), "-m", "course_lib", "lab", "--no-browser"],
            cwd=folder,
            env={**variables, "PYTHONUNBUFFERED": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        found, end = None, time.monotonic() + limit_s
        while found is None and process.poll() is None and time.monotonic() < end:
            text = printed.read_text(encoding="utf-8")
            found = re.search(r"(http://127\.0\.0\.1:\d+/)lab/tree/(\w+\.ipynb)\?token=(\w+)", text)
            time.sleep(0.05)
        assert found, printed.read_text(encoding="utf-8")
        yield f"{found[1]}api/contents/{found[2]}", found[3]
    finally:
        process.terminate()
        try:
            process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def get(address, token):
    with urllib.request.urlopen(f"{address}?token={token}", timeout=300) as answer:
        return json.loads(answer.read())


@pytest.fixture
def served_lesson():
    """The first lesson as JupyterLab serves it: ``served_lesson(python, folder, variables)``."""

    def read(python, folder, variables):
        with serving(python, folder, variables) as (address, token):
            return get(address, token)

    return read
