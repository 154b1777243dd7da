"""Does start.py bring a fresh machine to a running course, and survive what happens on the way?

The faults are real: interpreters without ensurepip, indexes out of reach, full disks, killed installers. What
is small is the project that gets installed: a copy of start.py beside a tiny package, which builds itself
without a network. So each set-up takes seconds, and no test needs an index.
"""

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

START = Path(__file__).resolve().parents[1] / "start.py"
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals and links as on Linux and macOS")
LINUX_ROOT = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux, to make a disk"
)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("start", START)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


start = load()

NO_WHEELS = {"PIP_FIND_LINKS": ""}
LIMIT_S = 300  # against waiting for ever; not a speed that is asked for

PYPROJECT = """\
[build-system]
requires = []
build-backend = "build_here"
backend-path = ["."]

[project]
name = "tiny-course"
version = "1.0"
dependencies = []

[project.optional-dependencies]
test = ["tiny-tool"]

[project.scripts]
course = "tiny_course:main"
"""

# A build backend in the checkout needs nothing from an index. It waits while there is a file named `hold`.
BACKEND = """\
import pathlib, time, tomllib, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    here = pathlib.Path(__file__).parent
    (here / "building").touch()
    while (here / "hold").exists():
        time.sleep(0.05)
    project = tomllib.loads((here / "pyproject.toml").read_text())["project"]
    needs = [f"Requires-Dist: {line}" for line in project["dependencies"]]
    for extra, lines in project["optional-dependencies"].items():
        needs += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {x}; extra == '{extra}'" for x in lines)]
    info = "tiny_course-1.dist-info"
    files = {
        "tiny_course.pth": str(here),
        f"{info}/METADATA": "\\n".join(["Metadata-Version: 2.1", "Name: tiny-course", "Version: 1", *needs]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/entry_points.txt": "[console_scripts]\\ncourse = tiny_course:main\\n",
    }
    record = f"{info}/RECORD"
    name = "tiny_course-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(record, "".join(f"{path},,\\n" for path in [*files, record]))
    return name
"""

# What the commands start tells what it was given: as `course` in the checkout, as `pytest` in a wheel.
TELL = """\
import json, os, shutil, sys, time

def main():
    print(json.dumps({"arguments": sys.argv[1:], "folder": os.getcwd(), "pid": os.getpid(),
                      "course": shutil.which("course"), "python": shutil.which("python")}), flush=True)
    if "wait" in sys.argv:
        time.sleep(60)
    return 7 if "fail" in sys.argv else 0
"""


def write_wheel(folder: Path, name: str, files: dict[str, str | bytes]) -> None:
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))


class Checkout:
    """A clone of the tiny project, and the machine around it."""

    def __init__(self, root: Path, wheels: Path) -> None:
        self.root, self.venv = root, root / ".venv"
        without_uv = [p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "uv").exists()]
        own = ("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(own)} | {
            "PATH": os.pathsep.join(without_uv),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(wheels / "uv-cache"),
            "TMPDIR": str(wheels / "tmp"),  # where killed installers leave what they had unpacked
        }
        root.mkdir(parents=True, exist_ok=True)
        shutil.copy(START, root / "start.py")
        (root / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
        (root / "build_here.py").write_text(BACKEND, encoding="utf-8")
        (root / "tiny_course.py").write_text(TELL, encoding="utf-8")

    def command(self, *arguments: str, python: str | Path = sys.executable) -> list[str]:
        return [str(python), str(self.root / "start.py"), *arguments]

    def start(
        self,
        *arguments: str,
        python: str | Path = sys.executable,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments, python=python),
            cwd=cwd,
            env={**self.environ, **(environ or {})},
            capture_output=True,
            encoding="utf-8",
            timeout=LIMIT_S,
            check=False,
        )

    def begin_and_hold(self) -> subprocess.Popen[str]:
        """Begin a set-up in its own process group, which waits in the middle of its work."""
        (self.root / "hold").touch()
        (self.root / "building").unlink(missing_ok=True)
        process = subprocess.Popen(
            self.command("lab"),
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        wait_for(lambda: (self.root / "building").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    def release(self) -> None:
        (self.root / "hold").unlink()


def wait_for(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def told(result: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """Read what the started command printed, after a set-up that did not fail."""
    assert result.stdout, result.stderr
    answer = json.loads(result.stdout)
    assert isinstance(answer, dict)
    return answer


def sentence(result: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """Return the last line of a set-up that failed as it should: no traceback, nothing started."""
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return result.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    (folder / "tmp").mkdir()
    write_wheel(folder, "tiny_tool", {"pytest.py": TELL + "\nsys.exit(main())\n"})
    write_wheel(folder, "big_tool", {"big.bin": bytes(80_000_000)})
    return folder


@pytest.fixture
def checkout(tmp_path: Path, wheels: Path) -> Checkout:
    return Checkout(tmp_path / "my cöurse (new)", wheels)


# --- The whole way ------------------------------------------------------------------------------------------


def test_first_start_installs_and_later_starts_do_not(checkout: Checkout, tmp_path: Path) -> None:
    misplacing = {"PIP_USER": "1", "PIP_TARGET": str(tmp_path / "target"), "PYTHONPATH": str(tmp_path)}
    first = checkout.start("lab", "--port", "9 000", "fail", cwd=tmp_path, environ=misplacing)
    assert not (tmp_path / "target").exists()
    assert first.returncode == 7, "the exit status is the command's own"
    answer = told(first)
    assert answer["arguments"] == ["lab", "--port", "9 000", "fail"]
    assert answer["folder"] == str(tmp_path), "paths on the command line stay relative to where it was typed"
    assert answer["course"] == str(start.program(checkout.venv, "course"))
    assert answer["python"] == str(start.program(checkout.venv, "python"))
    assert "\x1b" not in first.stderr
    assert "\r" not in first.stderr

    written = (checkout.venv / "start.json").stat().st_mtime_ns
    again = checkout.start("lab", environ=NO_WHEELS)
    assert (told(again)["arguments"], again.stderr) == (["lab"], "")
    assert (checkout.venv / "start.json").stat().st_mtime_ns == written

    more = checkout.start("test", "-k", "a b", cwd=tmp_path)
    assert "Installing" in more.stderr
    assert "Making" not in more.stderr
    assert told(more)["arguments"] == ["-k", "a b"]
    assert told(more)["folder"] == str(checkout.root)
    fewer = checkout.start("lab", environ=NO_WHEELS)
    assert fewer.stderr == "", "packages of a further extra do no harm"


def test_a_new_dependency_is_installed_and_a_failure_leaves_what_worked(checkout: Checkout) -> None:
    checkout.start("lab")
    text = PYPROJECT.replace("dependencies = []", 'dependencies = ["tiny-tool>=1"]')
    (checkout.root / "pyproject.toml").write_text(text, encoding="utf-8")
    failed = checkout.start("lab", environ=NO_WHEELS)
    assert "no build of tiny-tool>=1 for Python" in sentence(failed)
    (checkout.root / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    assert checkout.start("lab", environ=NO_WHEELS).stderr == "", "nothing had been changed"
    (checkout.root / "pyproject.toml").write_text(text, encoding="utf-8")
    installed = checkout.start("lab")
    assert "Making" not in installed.stderr
    assert (
        subprocess.run(
            [start.program(checkout.venv, "python"), "-c", "import pytest"], check=False
        ).returncode
        == 0
    )


@POSIX
def test_a_moved_checkout_and_a_removed_interpreter_are_made_again(
    checkout: Checkout, tmp_path: Path
) -> None:
    checkout.start("lab")
    moved = Checkout(checkout.root.rename(tmp_path / "elsewhere"), Path(checkout.environ["PIP_FIND_LINKS"]))
    assert told(moved.start("lab"))["course"] == str(moved.venv / "bin" / "course")

    python = moved.venv / "bin" / "python"
    python.unlink()
    python.symlink_to(tmp_path / "no python any more")
    result = moved.start("lab")
    assert "making it again" in result.stderr
    assert told(result)["arguments"] == ["lab"]

    (moved.venv / "start.json").write_text('{"ours": tr', encoding="utf-8")
    # The environment's own Python can make it again, though it is deleted meanwhile.
    assert told(moved.start("lab", python=python))["arguments"] == ["lab"]


@POSIX
def test_signals_reach_the_command(checkout: Checkout) -> None:
    checkout.start("lab")
    with subprocess.Popen(
        checkout.command("lab", "wait"), env=checkout.environ, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline())
        assert answer["pid"] == process.pid, "start.py became the command"
        process.terminate()
        assert process.wait(timeout=LIMIT_S) == -signal.SIGTERM


# --- Interruptions ------------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize(
    ("send", "number", "status", "said"),
    [("killpg", signal.SIGINT, 130, "Stopped by Ctrl-C."), ("kill", signal.SIGTERM, 143, "Installing")],
    ids=["Ctrl-C in a terminal", "SIGTERM to start.py alone"],
)
def test_a_signal_ends_the_installers_and_the_next_run_works(
    checkout: Checkout, send: str, number: int, status: int, said: str
) -> None:
    process = checkout.begin_and_hold()
    getattr(os, send)(process.pid, number)
    output, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, output) == (status, "")
    assert said in errors
    assert "Traceback" not in errors
    checkout.release()
    result = checkout.start("lab")
    assert "making it again" in result.stderr, "the lock is free: no installer is left"
    assert told(result)["arguments"] == ["lab"]


@POSIX
def test_a_killed_set_up_is_made_again_where_it_was(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "roomy").mkdir()
    checkout.venv.symlink_to(tmp_path / "roomy")  # as one does where the home folder is small
    process = checkout.begin_and_hold()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    checkout.release()
    result = checkout.start("lab")
    assert "making it again" in result.stderr
    assert told(result)["arguments"] == ["lab"]
    assert (tmp_path / "roomy" / "bin" / "course").exists()


@POSIX
def test_two_set_ups_do_not_meet(checkout: Checkout) -> None:
    process = checkout.begin_and_hold()
    assert sentence(checkout.start("lab")).startswith("Another start.py is still installing in this folder")
    process.kill()
    process.communicate(timeout=LIMIT_S)
    assert "still installing" in sentence(checkout.start("lab")), "the installer that it left goes on"
    checkout.release()
    wait_for(lambda: checkout.start("lab").returncode == 0)


# --- What a machine may lack --------------------------------------------------------------------------------


def test_an_index_out_of_reach_is_told_and_the_next_run_works(checkout: Checkout) -> None:
    del checkout.environ["PIP_NO_INDEX"]
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", **NO_WHEELS}
    result = checkout.start("test", environ=unreachable)
    assert sentence(result).startswith("The package index cannot be reached: check the network")
    log = re.search(r"\(log: (.+)\)\.$", result.stderr)
    assert log is not None
    assert "tiny-tool" in Path(log[1]).read_text(encoding="utf-8")
    assert told(checkout.start("test", environ={"PIP_NO_INDEX": "1"}))["arguments"] == list(start.TOGETHER)


@POSIX
def test_a_python_without_ensurepip_is_told(checkout: Checkout, tmp_path: Path) -> None:
    version = f"python3.{sys.version_info[1]}"
    library = Path(os.__file__).parent
    (tmp_path / "bin").mkdir()
    copy = shutil.copy(Path(sys.base_prefix) / "bin" / version, tmp_path / "bin")
    (tmp_path / "lib" / version).mkdir(parents=True)
    for entry in library.iterdir():
        if entry.name != "ensurepip":
            (tmp_path / "lib" / version / entry.name).symlink_to(entry)
    prefix = subprocess.run(
        [copy, "-c", "import sys; print(sys.prefix)"], capture_output=True, check=False
    ).stdout
    if prefix.decode().strip() != str(tmp_path):
        pytest.skip("this Python cannot be copied")
    assert sentence(checkout.start("lab", python=copy)).startswith(
        "This Python lacks its module ensurepip: install"
    )
    assert not checkout.venv.exists()


@contextlib.contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[None]:
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no disk can be made here: {made.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@LINUX_ROOT
@pytest.mark.parametrize(
    ("megabytes", "dependency"), [(8, ""), (70, '"big-tool"')], ids=["in venv", "in pip"]
)
def test_a_full_disk_is_told_and_given_back(
    tmp_path: Path, wheels: Path, megabytes: int, dependency: str
) -> None:
    root = tmp_path / "small"
    with disk(root, megabytes):
        checkout = Checkout(root, wheels)
        text = PYPROJECT.replace("dependencies = []", f"dependencies = [{dependency}]")
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
        text = sentence(checkout.start("lab"))
        assert text.startswith("The disk is full (0.0 GB left in ")
        assert str(root) in text
        assert list(checkout.venv.iterdir()) == [], "the space is free again"
        if dependency:
            subprocess.run(["mount", "-o", "remount,size=400m", str(root)], check=True)
            assert told(checkout.start("lab"))["arguments"] == ["lab"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no file that is always full")
def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    with start.only_one(tmp_path / "lock") as lock:
        installer = start.Installer(tmp_path, Path("/dev/full"), lock, start.Screen(io.StringIO()))
        status, output = installer.run(
            sys.executable, "-c", "print('more than a pipe holds\\n' * 9999)", doing=""
        )
    assert status == 0
    assert output.count("more than") == 9999


@POSIX
def test_a_folder_of_somebody_else_is_told(wheels: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not under pytest's, which others cannot enter
        Path(folder).chmod(0o755)
        checkout = Checkout(Path(folder) / "course", wheels)
        user = 65534 if os.geteuid() == 0 else None
        checkout.root.chmod(0o555)
        readers = [
            sys.executable,
            *(path for path in map(shutil.which, ("python3", "/usr/bin/python3")) if path),
        ]
        for python in readers:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                found = subprocess.check_output(
                    [python, "-c", start.PROBE], user=user, stderr=subprocess.DEVNULL
                )
                if start.is_usable(*map(int, found.split())):
                    break
        else:
            pytest.skip("no Python that another user may start")
        result = subprocess.run(
            checkout.command("lab", python=python),
            env=checkout.environ,
            user=user,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        checkout.root.chmod(0o755)
        assert sentence(result).startswith(
            f"No permission to write {checkout.root / '.start'}: copy the course"
        )


def make_venv(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)


def test_an_environment_of_ones_own_is_added_to_and_never_deleted(checkout: Checkout) -> None:
    make_venv(checkout.venv)
    (checkout.venv / "mine.txt").touch()
    assert told(checkout.start("lab"))["arguments"] == ["lab"]
    assert checkout.start("lab", environ=NO_WHEELS).stderr == ""

    start.program(checkout.venv, "python").unlink()
    (checkout.venv / "start.json").unlink()
    assert "is not from start.py" in sentence(checkout.start("lab"))
    assert (checkout.venv / "mine.txt").exists()


def test_a_damaged_project_file_is_told(checkout: Checkout) -> None:
    (checkout.root / "pyproject.toml").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    assert "pyproject.toml is damaged" in sentence(checkout.start("lab"))


# --- uv -----------------------------------------------------------------------------------------------------


@pytest.fixture
def with_uv(checkout: Checkout, tmp_path: Path) -> Checkout:
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if uv is None:
        pytest.skip("uv is not installed here")
    (tmp_path / "uv-bin").mkdir()
    shutil.copy(uv, tmp_path / "uv-bin")
    checkout.environ["PATH"] = os.pathsep.join([str(tmp_path / "uv-bin"), checkout.environ["PATH"]])
    return checkout


def test_uv_installs_where_it_can(with_uv: Checkout) -> None:
    result = with_uv.start("lab")
    assert told(result)["arguments"] == ["lab"]
    assert "pip takes over" not in result.stderr
    log = (with_uv.root / ".start" / "log.txt").read_text(encoding="utf-8")
    assert "--torch-backend auto" in log
    assert "+ tiny-course==1" in log


def test_pip_takes_over_where_uv_reaches_no_index(with_uv: Checkout) -> None:
    result = with_uv.start("test")  # the wheel of the extra is named by a setting that only pip knows
    assert told(result)["arguments"] == list(start.TOGETHER)
    assert "   uv cannot do it (" in result.stderr
    assert "): pip takes over, with the usual build of torch.\n" in result.stderr


@pytest.mark.parametrize("backend", ["cpu", "auto"])
def test_uv_takes_no_torch_from_elsewhere(with_uv: Checkout, wheels: Path, backend: str) -> None:
    # Where torch's own index is out of reach, no other build may come instead, as PyPI's with CUDA.
    write_wheel(wheels, "torch", {"torch.py": ""})
    environ = {**with_uv.environ, "UV_FIND_LINKS": str(wheels), "HTTPS_PROXY": "http://127.0.0.1:9"}
    del environ["UV_OFFLINE"]
    uv = shutil.which("uv", path=environ["PATH"])
    assert uv is not None
    options = ["--python", sys.executable, "--torch-backend", backend, "--reinstall", "--dry-run"]
    result = subprocess.run(
        [uv, "pip", "install", *options, "torch"],
        env={**environ, "UV_HTTP_RETRIES": "0"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode != 0
    assert "https://download.pytorch.org/whl/" in result.stderr


# --- Which Python -------------------------------------------------------------------------------------------


def old_pythons() -> list[str]:
    names = [f"python3.{minor}" for minor in range(6, 11)]
    folders = [Path(p) for p in os.environ["PATH"].split(os.pathsep)]
    folders += Path.home().glob(".pyenv/versions/*/bin")
    found = {}
    for file in (folder / name for folder in folders for name in names):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            found[subprocess.check_output([file, "-c", start.PROBE], stderr=subprocess.DEVNULL)] = str(file)
    return list(found.values())


OLD = old_pythons()


def test_it_parses_on_python_3_6() -> None:
    tree = ast.parse(START.read_text(encoding="utf-8"), feature_version=(3, 6))
    # ast takes a dataclass for granted, but 3.6 has none: nothing newer may be imported at the top.
    names = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert not names & {"dataclasses", "tomllib", "graphlib", "zoneinfo", "contextvars"}


@pytest.mark.skipif(not OLD, reason="no Python older than 3.11 here")
@pytest.mark.parametrize("python", OLD)
def test_an_old_python_says_what_is_missing_or_hands_over(
    python: str, checkout: Checkout, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    shim = tools / "python3.13"  # as pyenv leaves them: a name with no Python behind it
    shim.write_text("#!/bin/sh\necho 'python3.13: command not found' >&2\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    (tools / "python3.12").symlink_to(python)
    text = sentence(checkout.start("lab", python=python, environ={"PATH": str(tools)}))
    assert re.fullmatch(
        r"This is Python 3\.\d+\.\d+ \(64 bits\), and no Python 3\.11 or newer .* run this again\.", text
    )

    (tools / "python3").symlink_to(sys.executable)
    result = checkout.start("no-such", "command", python=python, environ={"PATH": str(tools)})
    assert sentence(result, 2) == "start.py needs a command, lab or test, not 'no-such': see start.py --help."


def test_which_python_is_usable() -> None:
    assert start.is_usable(3, 11, 64)
    assert start.is_usable(4, 0, 64)
    assert not start.is_usable(3, 10, 64)
    assert not start.is_usable(2, 7, 64)
    assert not start.is_usable(3, 12, 32)
    assert start.find_python([["/no/such/python"], [sys.executable, "-c", "print('3 12 32')"]]) is None
    assert start.find_python([["/no/such/python"], [sys.executable]]) == [sys.executable]


def test_where_a_newer_python_is_looked_for(tmp_path: Path) -> None:
    assert start.python_commands("ignored", windows=True)[0] == ["py", "-3.13"]
    for name in ("a/python3.11", "b/python3.13", "b/python3.11", "b/python3.12"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode=0o644 if name.endswith("12") else 0o755)
    path = os.pathsep.join([str(tmp_path / "a"), "", str(tmp_path / "b")])
    names = [
        Path(file).relative_to(tmp_path).as_posix() for (file,) in start.python_commands(path, windows=False)
    ]
    if os.name != "nt":
        assert names == ["b/python3.13", "a/python3.11", "b/python3.11"]


def test_help_and_wrong_commands(checkout: Checkout) -> None:
    assert "python3 start.py lab" in checkout.start("--help").stdout
    assert sentence(checkout.start(), 2).startswith("start.py needs a command, lab or test, not ''")
    assert not checkout.venv.exists()


# --- Parts --------------------------------------------------------------------------------------------------


def test_what_a_command_wants() -> None:
    table = {
        "dependencies": ["b>=2", "a>=1"],
        "optional-dependencies": {"test": ["c"]},
        "scripts": {"x": "m:f"},
    }
    assert start.wanted_requirements({"project": table}, ()) == ("a>=1", "b>=2", "script x = m:f")
    assert start.wanted_requirements({"project": table}, ("test",)) == ("a>=1", "b>=2", "c", "script x = m:f")
    with pytest.raises(KeyError):
        start.wanted_requirements({"project": table}, ("no such extra",))


@given(st.sets(st.text()), st.sets(st.text()))
def test_it_is_ready_exactly_when_all_that_is_wanted_was_installed(
    wanted: set[str], installed: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder)
        start.program(venv, "course").parent.mkdir()
        start.program(venv, "course").touch()
        stamp = start.Stamp(True, True, "/here", "3.12", tuple(installed))
        start.write_stamp(venv, stamp)
        assert start.read_stamp(venv) == stamp

        def ready(stamp: object, python: str = "3.12", root: str = "/here") -> bool:
            return bool(start.is_ready(venv, stamp, python, Path(root), tuple(wanted)))

        assert ready(stamp) == (wanted <= installed)
        assert not ready(None)
        assert not ready(stamp._replace(ready=False))
        assert not ready(stamp, python="3.13")
        assert not ready(stamp, root="/there")
        start.program(venv, "course").unlink()
        assert not ready(stamp)


@given(st.binary(max_size=60))
def test_a_damaged_stamp_counts_as_an_interrupted_set_up(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert start.read_stamp(Path(folder)) is None
        (Path(folder) / "start.json").write_bytes(content)
        stamp = start.read_stamp(Path(folder))
        assert stamp.ours
        assert not stamp.ready


PIP_NETWORK = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.\
connection.HTTPSConnection object at 0x7f>: [Errno -2] Name or service not known')': /simple/torch/
ERROR: Could not find a version that satisfies the requirement torch>=2.9 (from versions: none)
ERROR: No matching distribution found for torch>=2.9
"""
PIP_BUILD = """\
      FileNotFoundError: Forced include not found: /course/notebooks
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed
"""


@pytest.mark.parametrize(
    ("output", "status", "beginning"),
    [
        (PIP_NETWORK, 1, "The package index cannot be reached: check the network"),
        (PIP_NETWORK.replace("Name or service", "[SSL: CERTIFICATE_VERIFY_FAILED]"), 1, "The certificate of"),
        ("error: invalid peer certificate: UnknownIssuer\n", 1, "The certificate of the package index"),
        (PIP_NETWORK.splitlines()[-1], 1, "pip finds no build of torch>=2.9 for Python 3."),
        ("ERROR: [Errno 28] No space left on device\n" + PIP_NETWORK, 1, "The disk is full ("),
        ("error: failed to write `x`: No space left on device (os error 28)\n", 2, "The disk is full ("),
        ("OSError: [WinError 112] There is not enough space on the disk\n", 1, "The disk is full ("),
        ("ERROR: [WinError 5] Access is denied: 'Scripts\\\\course.exe'\n", 1, "A file cannot be written:"),
        ("ERROR: [Errno 13] Permission denied: '/x'\n", 1, "A file cannot be written:"),
        ("Collecting torch\n", -9, "The system ended the installer, often for want of memory"),
        (
            PIP_BUILD,
            1,
            "The installation failed with 'FileNotFoundError: Forced include not found: /course/n",
        ),
        ("error: unexpected\n", 2, "The installation failed with 'error: unexpected'"),
        ("", 3, "The installation failed with 'status 3'"),
    ],
)
def test_what_installers_say_becomes_one_sentence(
    output: str, status: int, beginning: str, tmp_path: Path
) -> None:
    text = str(start.explain(output, status, tmp_path))
    assert text.startswith(beginning)
    assert "\n" not in text
    assert "{" not in text


def test_a_missing_venv_module_names_the_package_of_debian() -> None:
    package = f"python3.{sys.version_info[1]}-venv"
    assert f"sudo apt install {package}" in start.missing_venv_sentence(["ensurepip"], debian=True)
    assert "apt" not in start.missing_venv_sentence(["venv", "ensurepip"], debian=False)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Collecting torch>=2.9 (from efficient-training-course==0.1.0)", "looking up torch"),
        (
            "  Downloading torch-2.9.1-cp311-cp311-win_amd64.whl (109.3 MB)",
            "downloading torch 2.9.1 (109.3 MB)",
        ),
        ("  Downloading https://host/whl/cpu/uv-0.9-py3-none-any.whl (17 MB)", "downloading uv 0.9 (17 MB)"),
        ("Downloading torch (175.2MiB)", "downloading torch (175.2MiB)"),
        ("Processing /wheels/nvidia_nccl_cu13-2.30.7-py3-none-any.whl", "reading nvidia_nccl_cu13 2.30.7"),
        ("Installing collected packages: six, torch", "unpacking and installing"),
        ("Prepared 101 packages in 3.4s", "unpacking and installing"),
        ("  Downloading torch-2.9.1-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (30 kB)", None),
        ("Requirement already satisfied: pip in /course", None),
        ("", None),
    ],
)
def test_progress_is_told_in_a_few_words(line: str, words: str | None) -> None:
    assert start.activity(line + "\n") == words


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.lists(st.text("abc ", max_size=30), min_size=1))
def test_the_moving_line_of_a_terminal_leaves_no_rest(texts: Sequence[str]) -> None:
    stream = Terminal()
    screen = start.Screen(stream)
    for text in texts:
        screen.tick(text)
    screen.say("Done.")
    assert "\x1b" not in stream.getvalue()
    line = ""
    for part in stream.getvalue().rstrip("\n").split("\r"):  # what the terminal shows: new text over old
        line = part + line[len(part) :]
    assert line.rstrip() == "Done."


def test_outside_a_terminal_a_line_comes_now_and_then() -> None:
    stream = io.StringIO()
    screen = start.Screen(stream)
    for _ in range(5):
        screen.tick("installing", pause_s=60)
    assert stream.getvalue() == ""
    screen.tick("installing", pause_s=0)
    assert stream.getvalue() == "   0:00  installing\n"
