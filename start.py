"""Sets the course up and starts it, on a machine that has nothing but Python and this folder.

    python3 start.py lab [...]     install what is missing, then open the course in JupyterLab
    python3 start.py test [...]    install what is missing, then run all tests

The question it answers: is `.venv` fit for this command, and if not, how does it become so? It uses the
standard library only, and parses on Python 3.6, so that an old Python can hand over to a newer one.
"""

import contextlib
import errno
import importlib.util
import itertools
import json
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

OLDEST_PYTHON = (3, 11)
# 3.13 and 3.12 first: a brand-new Python may not have a build of torch yet.
PYTHON_NAMES = ("python3.13", "python3.12", "python3.14", "python3.11", "python3", "python")
PROBE = "import struct, sys; print(sys.version_info[0], sys.version_info[1], struct.calcsize('P') * 8)"


def is_usable(major: int, minor: int, bits: int) -> bool:
    """Tell whether such a Python can run the course: torch is built for 64 bits only."""
    return (major, minor) >= OLDEST_PYTHON and bits == 64


def python_commands(path: str, windows: bool) -> "list[list[str]]":
    """List the commands that may start a newer Python, the best first; they need not work."""
    if windows:
        return [["py", "-" + name[len("python") :]] for name in PYTHON_NAMES if "." in name]
    folders = [Path(folder) for folder in path.split(os.pathsep) if folder]
    files = [str(folder / name) for name in PYTHON_NAMES for folder in folders]
    return [[file] for file in files if os.access(file, os.X_OK)]


def find_python(commands: "list[list[str]]") -> "list[str] | None":
    """Return the first command that starts a usable Python, else None; not every shim on PATH starts one."""
    for command in commands:
        try:
            found = subprocess.check_output([*command, "-c", PROBE], stderr=subprocess.DEVNULL, timeout=20)
            major, minor, bits = (int(word) for word in found.split())
        except (OSError, ValueError, subprocess.SubprocessError):
            continue
        if is_usable(major, minor, bits):
            return command
    return None


def hand_over_if_unusable() -> None:
    """Where this Python is too old or has 32 bits, go on with a better one, or end with what to install."""
    bits = struct.calcsize("P") * 8
    if is_usable(sys.version_info[0], sys.version_info[1], bits):
        return
    command = find_python(python_commands(os.environ.get("PATH", ""), os.name == "nt"))
    if command is None:
        sys.exit(
            f"This is Python {platform.python_version()} ({bits} bits), and no Python 3.11 or newer with 64 "
            "bits was found: install one from https://www.python.org/downloads/ and run this again."
        )
    command = [*command, str(Path(__file__).resolve()), *sys.argv[1:]]
    if os.name == "nt":
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)


hand_over_if_unusable()  # here, because an old Python cannot evaluate the annotations that follow


ROOT = Path(__file__).resolve().parent
WINDOWS = os.name == "nt"
EXTRAS: Mapping[str, tuple[str, ...]] = {"lab": (), "test": ("test",)}  # what each command needs
TOGETHER = ("-n", "auto", "--maxprocesses", "4", "--dist", "loadfile")  # all tests: a file a core at a time
HELP = """\
Sets the course up in this folder (.venv) and starts it. The first time takes some minutes, later seconds.

  python3 start.py lab    opens the course in JupyterLab   (its options: start.py lab --help)
  python3 start.py test   runs all tests                   (its options: start.py test --help)

What follows the command is passed on, as in: python3 start.py lab --no-browser --port 9000
On Windows write py instead of python3. To set up afresh, delete the folder .venv."""


class SetupError(Exception):
    """The set-up cannot go on; the text says in one sentence what is wrong and what to do."""


class DiskFullError(SetupError):
    """The set-up ran out of disk space."""


# --- What is there, and what is wanted -----------------------------------------------------------------


class Stamp(NamedTuple):
    """What `.venv/start.json` says about the environment around it."""

    ours: bool  # made here, so it may be made again; else it is somebody's own and is only added to
    ready: bool  # False while packages are being installed, and so after an interruption
    checkout: str  # where this folder was: scripts and the editable install name it
    python: str  # "3.12": the environment's interpreter
    requirements: tuple[str, ...]  # what has been installed, as pyproject.toml words it


def read_stamp(venv: Path) -> Stamp | None:
    """Read the stamp; None where there is none. A damaged one is ours, and not ready."""
    try:
        fields = json.loads((venv / "start.json").read_text(encoding="utf-8"))
        return Stamp(**{**fields, "requirements": tuple(fields["requirements"])})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError):
        return Stamp(ours=True, ready=False, checkout="", python="", requirements=())


def write_stamp(venv: Path, stamp: Stamp) -> None:
    """Write the stamp in one move, so that an interruption leaves the old one or the new one."""
    temporary = venv / "start.json.tmp"
    temporary.write_text(json.dumps(stamp._asdict(), indent=1), encoding="utf-8")
    temporary.replace(venv / "start.json")


def wanted_requirements(project: Mapping[str, object], extras: Sequence[str]) -> tuple[str, ...]:
    """List what a parsed pyproject.toml asks for: dependencies, those of the extras, and the scripts."""
    table = project["project"]
    assert isinstance(table, dict)
    optional = table.get("optional-dependencies", {})
    wanted = {*table.get("dependencies", ()), *(line for extra in extras for line in optional[extra])}
    wanted |= {f"script {name} = {target}" for name, target in table.get("scripts", {}).items()}
    return tuple(sorted(wanted))


def program(venv: Path, name: str) -> Path:
    """Return where the environment keeps its program of that name."""
    return venv / "Scripts" / f"{name}.exe" if WINDOWS else venv / "bin" / name


def interpreter_version(venv: Path) -> str | None:
    """Return "3.12" where the environment's Python starts; None where it was removed or is not there."""
    try:
        command = [str(program(venv, "python")), "-I", "-c", PROBE]
        found = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return ".".join(word.decode() for word in found[:2])


def is_ready(venv: Path, stamp: Stamp | None, python: str | None, root: Path, wanted: Sequence[str]) -> bool:
    """Tell whether nothing has to be installed; packages of further extras do no harm."""
    return (
        stamp is not None
        and stamp.ready
        and (stamp.checkout, stamp.python) == (str(root), python)
        and set(wanted) <= set(stamp.requirements)
        and program(venv, "course").exists()
    )


# --- What went wrong, in one sentence ------------------------------------------------------------------

DISK = re.compile(r"No space left|Errno 28\b|os error 28\b|quota exceeded|(?:WinE|os e)rror 112\b", re.I)
CERTIFICATE = re.compile(r"certificate.?verify.?failed|invalid peer certificate", re.I)
NETWORK = re.compile(
    r"NewConnectionError|Failed to establish a new connection|name resolution|getaddrinfo failed|Max retries"
    r"|ConnectTimeout|ReadTimeout|ProxyError|Connection (?:refused|reset|broken|aborted)|RemoteDisconnected"
    r"|Could not fetch URL|Network is unreachable|dns error|error sending request"
)
NO_BUILD = re.compile(r"No matching distribution found for ([^\s;]+)")
PERMISSION = re.compile(
    r"Permission denied|Errno 13\b|os error 13\b|(?:WinE|os e)rror (?:5|32)\b|Read-only file"
)
FAULTS = {  # in this order: pip tells of an index out of reach before it tells what it did not find there
    CERTIFICATE: "The certificate of the package index is not trusted, as in some company networks: "
    "set PIP_CERT to the file with the network's certificate",
    NETWORK: "The package index cannot be reached: check the network, or HTTPS_PROXY where there is a proxy,",
    NO_BUILD: "pip finds no build of {0} for {1}: try another Python (3.11 to 3.13) or check pip's settings,",
    PERMISSION: "A file cannot be written: see to it that this folder is yours, close what uses .venv",
}


def disk_full_error(venv: Path) -> DiskFullError:
    """Say which of the disks that an installation writes to has the least room left."""
    folders = [str(venv.parent), str(venv)]
    with contextlib.suppress(OSError):  # a full disk may have no folder for temporary files
        folders.append(tempfile.gettempdir())
    free, folder = min((shutil.disk_usage(name).free, name) for name in folders if Path(name).exists())
    room = f"{free / 1e9:.1f} GB left in {folder}"
    return DiskFullError(f"The disk is full ({room}): free up to 8 GB there and run this again")


def explain(output: str, status: int, venv: Path) -> SetupError:
    """Turn what a failed program printed into one sentence: what was wrong, and what to do."""
    if DISK.search(output):
        return disk_full_error(venv)
    if status in (-9, 128 + 9):  # SIGKILL
        return SetupError("The system ended the installer, often for want of memory: close other programs")
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    for pattern, sentence in FAULTS.items():
        found = pattern.search(output)
        if found:
            return SetupError(f"{sentence.format(*found.groups(), machine)} and run this again")
    # The last line of a program that pip ran says more than what pip says of it.
    said = re.search(r"^\s*(.+)\n\s*\[end of output\]", output, re.M) or re.search(
        r"(?im)^(error\b.*)", output
    )
    what = said[1] if said else f"status {status}"
    return SetupError(f"The installation failed with '{what}': the log says more")


def explain_os_error(error: OSError, venv: Path) -> SetupError:
    """Do the same for a file operation of this program."""
    file = error.filename or venv
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full_error(venv)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return SetupError(
            f"No permission to write {file}: copy the course into a folder of your own, or close what uses "
            "that file, and run this again"
        )
    return SetupError(f"{file}: {error.strerror or error}")


def missing_venv_sentence(modules: Sequence[str], debian: bool) -> str:
    """Say how to get the parts of Python that make environments; Debian and its kin ship them apart."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    source = (
        f"it with 'sudo apt install {package}'" if debian else "Python from https://www.python.org/downloads/"
    )
    return f"This Python lacks its module {' and '.join(modules)}: install {source} and run this again"


# --- Running installers, calmly ------------------------------------------------------------------------

WHEEL = r"(?:\S*/)?([A-Za-z0-9_.]+)-(\d[^-]*)-\S+\.whl"
ACTIVITIES = {
    re.compile(rf"Downloading {WHEEL} \((.+)\)"): r"downloading \1 \2 (\3)",
    re.compile(r"Downloading ((?!\S*metadata )[\w.-]+) \((.+)\)"): r"downloading \1 (\2)",
    re.compile(r"Collecting ([\w.-]+).*"): r"looking up \1",
    re.compile(rf"Processing {WHEEL}.*"): r"reading \1 \2",
    re.compile(r"Installing collected packages:.*|Prepared \d+ packages?.*"): "unpacking and installing",
}
CHANGES = re.compile(r"^(?:Installing collected packages|Prepared \d+ package|Uninstalled \d+)", re.M)


def activity(line: str) -> str | None:
    """Put a line of pip or uv into a few words; None for one that says nothing to a beginner."""
    for pattern, words in ACTIVITIES.items():
        match = pattern.fullmatch(line.strip())
        if match:
            return match.expand(words)
    return None


class Screen:
    """Tells the learner what goes on: in a terminal the last line moves, elsewhere one comes now and then."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream, self.live, self.shown_width = stream, stream.isatty(), 0
        self.began = self.shown_at = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        print(self._over(text), file=self.stream, flush=True)

    def tick(self, text: str, pause_s: float = 20) -> None:
        """Show what is being done now, with the time since the start."""
        now = time.monotonic()
        minutes, seconds = divmod(int(now - self.began), 60)
        line = f"   {minutes}:{seconds:02d}  {text}"[: shutil.get_terminal_size().columns - 1]
        if self.live:
            print(self._over(line), end="", file=self.stream, flush=True)
            self.shown_width = len(line)
        elif now - self.shown_at >= pause_s:
            print(line, file=self.stream, flush=True)
            self.shown_at = now

    def _over(self, text: str) -> str:
        """Put the text over the moving line."""
        width, self.shown_width = self.shown_width, 0
        return "\r" + text.ljust(width) if width else text


class Installer:
    """Runs the programs of a set-up: all that they print goes to a log, a few words to the screen."""

    def __init__(self, root: Path, log: Path, lock: int, screen: Screen) -> None:
        self.root, self.log, self.lock, self.screen = root, log, lock, screen
        log.write_bytes(b"")

    def run(self, *command: str | Path, doing: str, **settings: str) -> tuple[int, str]:
        """Run a program with these environment settings; return its exit status and what it printed."""
        lines: list[str] = []
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=self.root,
            env={**install_environment(os.environ), **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            pass_fds=() if WINDOWS else (self.lock,),  # the lock holds as long as an installer lives
        )
        output = itertools.chain([f"$ {' '.join(map(str, command))}\n"], process.stdout or ())
        reader = threading.Thread(target=self._read, args=(output, lines), daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.5)
                known = filter(None, map(activity, reversed(lines[-50:])))
                self.screen.tick(next(known, doing))
        finally:
            stop(process)
        reader.join(timeout=10)
        return process.returncode, "".join(lines[1:])  # without the command

    def _read(self, output: Iterable[str], lines: list[str]) -> None:
        with self.log.open("ab", buffering=0) as log:
            for line in output:
                with contextlib.suppress(OSError):  # a full disk must not stop the reading
                    log.write(line.encode())
                lines.append(line)


def stop(process: subprocess.Popen[str]) -> None:
    """End a program that is still running; after Ctrl-C it may just be ending by itself."""
    for end in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
        if process.poll() is None:
            end()
    process.wait()


def install_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Keep the user's settings (index, proxy, cache), except those that put files elsewhere or ask."""
    misplacing = {"PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "UV_SYSTEM_PYTHON"}
    kept = {name: value for name, value in environ.items() if name not in misplacing}
    return {**kept, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


# --- Making the environment ----------------------------------------------------------------------------


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[int]:
    """Hold a lock that the system lets go of when the process ends, however it ends; yield its descriptor."""
    with lock.open("ab") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise SetupError(
                    "Another start.py is still installing in this folder: wait for its end and run this again"
                ) from None  # any other error: a network disk that knows no locks
        yield file.fileno()


def clear(folder: Path) -> None:
    """Delete what is in the folder, the stamp last; the folder may be a link to a roomier disk and stays."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == "start.json"):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def make_venv(venv: Path, installer: Installer) -> None:
    """Make the environment with this Python. The stamp stands there first: an interruption shows."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        debian = sys.base_prefix == "/usr" and shutil.which("apt") is not None
        raise SetupError(missing_venv_sentence(missing, debian))
    venv.mkdir(exist_ok=True)
    write_stamp(venv, Stamp(ours=True, ready=False, checkout="", python="", requirements=()))
    # This may be the environment's own Python, which goes.
    base = getattr(sys, "_base_executable", None) or sys.executable
    command = (base, "-I", "-m", "venv", "--without-pip", venv.resolve())  # venv follows no links
    status, output = installer.run(*command, doing="making .venv")
    if status:
        raise explain(output, status, venv)


def find_uv(venv: Path, pip: Sequence[str | Path], installer: Installer) -> str | None:
    """Put uv into the environment, so that it is a recent one; else take the one on PATH, else None."""
    impatient = ("--retries", "1", "--timeout", "15")
    status, output = installer.run(*pip, "install", *impatient, "--upgrade", "uv", doing="fetching uv")
    if status and DISK.search(output):
        raise disk_full_error(venv)
    return shutil.which("uv") if status else str(program(venv, "uv"))


def install(venv: Path, extras: Sequence[str], installer: Installer) -> tuple[int, str]:
    """Install the course and what it needs; return the exit status and output of the last program.

    uv comes first, because it picks the build of torch that suits the machine: CUDA where there is a card,
    else the small CPU build. It does not know pip's settings, nor reaches every index; then pip does it all.
    """
    screen, python = installer.screen, program(venv, "python")
    pip = (python, "-I", "-X", "utf8", "-m", "pip")
    target = ("--editable", f".[{','.join(extras)}]" if extras else ".")
    if installer.run(*pip, "--version", doing="looking for pip")[0]:
        # Not left to the module venv, which keeps to itself why this failed.
        status, output = installer.run(python, "-I", "-m", "ensurepip", doing="adding pip")
        if status:
            return status, output
    uv = find_uv(venv, pip, installer)
    reason = "uv cannot be had"
    if uv:
        backend = os.environ.get("UV_TORCH_BACKEND", "auto")
        options = ("--color", "never", "--python", python, "--torch-backend", backend)
        command = (uv, "pip", "install", *options, *target)
        # Tried with little patience first, so that an index out of reach costs seconds.
        patience = {"UV_HTTP_RETRIES": "1", "UV_HTTP_TIMEOUT": "15", "UV_HTTP_CONNECT_TIMEOUT": "5"}
        status, output = installer.run(*command, "--dry-run", doing="choosing the build of torch", **patience)
        if status == 0:
            build = re.search(r"^ \+ torch==(\S+)", output, re.M)
            if build:
                screen.say(f"   torch {build[1]} suits this machine.")
            status, output = installer.run(*command, doing="installing")
        if status == 0 or DISK.search(output) or CHANGES.search(output):
            return status, output
        failed = re.search(r"Failed to fetch: \S+", output) or re.search(r"(?<=^error: ).+", output, re.M)
        reason = f"uv cannot do it ({failed[0] if failed else f'status {status}'})"
    screen.say(f"   {reason}: pip takes over, with the usual build of torch.")
    return installer.run(*pip, "install", "--no-color", "--progress-bar", "off", *target, doing="installing")


def set_up(root: Path, extras: Sequence[str], screen: Screen) -> Path:
    """Make `.venv` fit for a command, doing only what is missing; return where it is. Raises SetupError."""
    import tomllib

    venv = root / ".venv"
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        wanted = wanted_requirements(project, extras)
    except (ValueError, KeyError) as error:
        raise SetupError(f"{root / 'pyproject.toml'} is damaged ({error}): fetch it again.") from None
    if is_ready(venv, read_stamp(venv), interpreter_version(venv), root, wanted):
        return venv
    state = root / ".start"
    state.mkdir(exist_ok=True)
    with only_one(state / "lock") as lock:
        installer = Installer(root, state / "log.txt", lock, screen)
        try:
            update(venv, extras, wanted, installer)
        except SetupError as error:
            log = f" (log: {installer.log})" if installer.log.stat().st_size else ""
            raise SetupError(f"{error}{log}.") from None
    return venv


def update(venv: Path, extras: Sequence[str], wanted: tuple[str, ...], installer: Installer) -> None:
    """Make the environment, or make it again if it is ours and unfit, and install what is wanted."""
    screen, root = installer.screen, str(installer.root)
    stamp, python = read_stamp(venv), interpreter_version(venv)
    new = not venv.exists() or all(entry.name == "start.json.tmp" for entry in venv.iterdir())
    if stamp and stamp.ours and (not stamp.ready or (stamp.checkout, stamp.python) != (root, python)):
        screen.say("The folder .venv is incomplete, was moved or lost its Python: making it again.")
        write_stamp(venv, stamp._replace(ready=False))
        clear(venv)
        new = True
    elif not new and (python is None or tuple(map(int, python.split("."))) < OLDEST_PYTHON):
        raise SetupError(
            f"The folder {venv} is not from start.py, and holds no Python 3.11 or newer that starts: "
            "rename or delete it and run this again"
        )
    try:
        if new:
            screen.say(f"Making the folder .venv with Python {platform.python_version()}.")
            make_venv(venv, installer)
        screen.say("Installing the course and what it needs. The first time takes some minutes.")
        before = read_stamp(venv) or Stamp(False, False, "", "", ())  # one made by somebody else
        write_stamp(venv, before._replace(ready=False))
        status, output = install(venv, extras, installer)
        if status:
            if not CHANGES.search(output):
                write_stamp(venv, before)  # what worked before still does
            raise explain(output, status, venv)
        python = interpreter_version(venv) or ""
        write_stamp(venv, Stamp(before.ours, True, root, python, wanted))
    except DiskFullError:
        if new:
            clear(venv)  # give the space back
        raise
    screen.say("Ready.")


# --- Going -----------------------------------------------------------------------------------------------


def run_environment(environ: Mapping[str, str], venv: Path) -> dict[str, str]:
    """Return the settings for the course: terminals and kernels in JupyterLab find `course` and `python`."""
    kept = {name: value for name, value in environ.items() if name != "PYTHONHOME"}
    path = os.pathsep.join([str(program(venv, "python").parent), *filter(None, [environ.get("PATH")])])
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(venv)}


def go(venv: Path, command: str, arguments: Sequence[str]) -> int:
    """Become the command (on Windows: wait for it), so that its signals and exit status are its own."""
    line = [str(program(venv, "course")), command, *arguments]
    if command == "test":
        os.chdir(ROOT)
        line = [str(program(venv, "python")), "-m", "pytest", *(arguments or TOGETHER)]
    environment = run_environment(os.environ, venv)
    if not WINDOWS:
        os.execve(line[0], line, environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which shares the console
    return subprocess.call(line, env=environment)


def terminated(signum: int, frame: object) -> NoReturn:
    """End as SIGTERM asks, but through the clean-up of installers."""
    raise SystemExit(128 + signum)


def main(arguments: Sequence[str]) -> int:
    """Set up and go; return the exit status: 1 set-up failed, 2 wrong command, 130 stopped by Ctrl-C."""
    command = arguments[0] if arguments else ""
    if command in ("-h", "--help", "help"):
        with contextlib.suppress(BrokenPipeError):  # start.py --help | head
            print(HELP)
        return 0
    if command not in EXTRAS:
        known = " or ".join(EXTRAS)
        print(f"start.py needs a command, {known}, not {command!r}: see start.py --help.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, terminated)
    screen = Screen(sys.stderr)
    try:
        venv = set_up(ROOT, EXTRAS[command], screen)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return go(venv, command, arguments[1:])
    except KeyboardInterrupt:
        screen.say("Stopped by Ctrl-C. Nothing is broken: run the same command again to go on.")
        return 130
    except OSError as error:
        screen.say(f"{explain_os_error(error, ROOT / '.venv')}.")
    except SetupError as error:
        screen.say(str(error))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
