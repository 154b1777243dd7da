"""How does JupyterLab start with the first lesson open, for this learner on this computer alone?

The server runs in this process, on this computer's own address and behind a token. Whatever a Jupyter
configuration of the learner's says, these two hold; the rest of it (theme, shortcuts) stays theirs.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.teach.workspace import FOLDER_VARIABLE, KERNEL_DEFAULTS, STATE_FOLDER

ADDRESS = "127.0.0.1"
FIRST_PORT = 8888
_LAST_PORT = 65535

_DISABLED = (
    "@jupyterlab/apputils-extension:announcements",  # asks whether it may fetch news, over the first lesson
    "jupyterlab-jupytext",  # is there to build the lessons; it would add its menu to each notebook
)
# Else a saved lesson shows "model not found" in place of its sliders and pictures when it is opened again.
_DEFAULTS = {"@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True}}


@dataclass(frozen=True)
class RunningLab:
    """A server that is about to listen."""

    url: str  # with the token: whoever has it can use the server
    port: int
    asked_port: int
    folder: Path
    opens_browser: bool
    as_root: bool

    def __str__(self) -> str:
        lines = []
        if self.port != self.asked_port:
            lines.append(f"Port {self.asked_port} is in use; this is port {self.port}.")
        if self.as_root:
            lines.append("You are root: code in a notebook may change any file on this computer.")
        opening = "Your browser should open now; if not, open" if self.opens_browser else "Open"
        lines += [f"{opening} this address in a browser:", "", f"    {self.url}", ""]
        if os.environ.get("SSH_CONNECTION"):
            lines.append(
                "If your browser is on another computer, type there first:  "
                f"ssh -N -L {self.port}:{ADDRESS}:{self.port} THIS_COMPUTER"
            )
        lines.append("Stop with Ctrl-C.")
        return "\n".join(lines)


def run_lab(
    folder: Path,
    *,
    first: str,
    port: int = FIRST_PORT,
    browser: bool = True,
    announce: Callable[[RunningLab], None] = print,
) -> None:
    """Serve JupyterLab in ``folder`` until it is interrupted; kernels end with it.

    Args:
        folder: the learner's folder, which exists and can be written.
        first: the notebook that opens, a file name in ``folder``.
        port: where to listen; when it is in use, a free port near it is taken.
        browser: whether to open one. None is opened where there is no screen.
        announce: is told the address before the server starts.

    Raises:
        CourseError: JupyterLab is not installed or cannot start, no port is free, the kernel cannot be set up
            in ``folder``, or a configuration file of the learner's would open the server to others.
    """
    try:
        from jupyterlab.labapp import LabApp
    except ImportError as error:
        raise CourseError(
            f"JupyterLab cannot be imported ({error}); "
            f"install it with: {sys.executable} -m pip install jupyterlab"
        ) from None
    folder = folder.absolute()
    opens_browser = browser and _has_screen()
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    _set_environment(folder)
    _set_kernel(folder)
    _set_defaults(folder)
    token = secrets.token_hex(24)
    arguments = _settings(folder, first, port, token, opens_browser=opens_browser, as_root=as_root)
    try:
        server: Any = LabApp.initialize_server(
            argv=[f"--{name}={value}" for name, value in arguments.items()]
        )
    except SystemExit:  # Jupyter has printed why
        raise CourseError(
            "JupyterLab could not start; the line above says why. Is it the port? Use --port."
        ) from None
    if (server.identity_provider.token, server.ip) != (token, ADDRESS):
        raise CourseError(
            "Your Jupyter configuration sets a token or an address of its own, and so opens the server to "
            "others; take that out (`jupyter --paths` names the folders of the configuration)."
        )
    server.web_app.settings["page_config_hook"] = _without_disabled
    url = f"{server.connection_url}lab/tree/{first}?token={token}"
    _stop_on_signals(server)
    announce(RunningLab(url, server.port, port, folder, opens_browser, as_root))
    server.start()


def _settings(
    folder: Path, first: str, port: int, token: str, *, opens_browser: bool, as_root: bool
) -> dict[str, object]:
    """What is set on the command line of Jupyter, and so stands above every configuration file."""
    return {
        "ServerApp.root_dir": folder,
        "ServerApp.ip": ADDRESS,
        "ServerApp.port": port,
        # Jupyter looks for a free one up to twice this far above the port, which must stay a port.
        "ServerApp.port_retries": max(0, min(50, (_LAST_PORT - port) // 2 - 1)),
        "ServerApp.open_browser": opens_browser,
        "ServerApp.allow_root": as_root,
        "ServerApp.allow_remote_access": False,
        "Application.log_level": "ERROR",
        "ServerApp.jpserver_extensions": {"jupyterlab_jupytext": False},
        "IdentityProvider.token": token,
        "MappingKernelManager.default_kernel_name": "python3",
        "LabApp.default_url": f"/lab/tree/{first}",
        # A workspace remembers open tabs by their path; shared, it would open the tabs of another folder.
        "LabApp.workspaces_dir": folder / STATE_FOLDER / "workspaces",
        # Three things that would ask the network.
        "LabApp.news_url": None,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.extension_manager": "readonly",
    } | _encryption()


def _encryption() -> dict[str, object]:
    """Encrypt what passes between server and kernels, where this Jupyter can: others may use the computer."""
    import zmq
    from jupyter_client.manager import KernelManager

    can_encrypt = hasattr(KernelManager, "transport_encryption") and zmq.has("curve")
    return {"KernelManager.transport_encryption": "auto"} if can_encrypt else {}


def _set_environment(folder: Path) -> None:
    """For the kernels and terminals: where the learner's folder is, and this ``course`` on the PATH first."""
    os.environ[FOLDER_VARIABLE] = str(folder)
    for name, value in KERNEL_DEFAULTS.items():
        os.environ.setdefault(name, value)
    own = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    others = [part for part in os.environ.get("PATH", "").split(os.pathsep) if part and part not in own]
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys([*own, *others]))
    # Each kernel of ipykernel 6 would print a page about debugging Python's own modules into the terminal.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")


def _set_kernel(folder: Path) -> None:
    """Make "python3" this very interpreter: another one may have put its own under that name for the user."""
    from ipykernel.kernelspec import install

    prefix = folder / STATE_FOLDER / "jupyter"
    try:
        install(prefix=str(prefix))
    except OSError as error:
        raise CourseError(
            f"The kernel cannot be set up in {prefix} ({error.strerror or error}); "
            "make room or give another folder with --dir."
        ) from None
    path = [str(prefix / "share" / "jupyter"), os.environ.get("JUPYTER_PATH", "")]
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, path))


def _set_defaults(folder: Path) -> None:
    """Give JupyterLab the course's defaults, under whatever the learner has set."""
    prefix = folder / STATE_FOLDER / "jupyter" / "etc"
    try:
        (prefix / "labconfig").mkdir(parents=True, exist_ok=True)
        path = prefix / "labconfig" / "default_setting_overrides.json"
        path.write_text(json.dumps(_DEFAULTS, indent=1), encoding="utf-8")
    except OSError as error:
        raise CourseError(
            f"The settings of JupyterLab cannot be written to {prefix} ({error.strerror or error}); "
            "make room or give another folder with --dir."
        ) from None
    path_before = os.environ.get("JUPYTER_CONFIG_PATH", "")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [str(prefix), path_before]))


def _without_disabled(handler: object, page_config: dict[str, Any]) -> dict[str, Any]:
    """Tell the page which parts of JupyterLab to leave out. Jupyter calls this for each page."""
    page_config["disabledExtensions"] = sorted({*page_config.get("disabledExtensions", ()), *_DISABLED})
    return page_config


def _has_screen() -> bool:
    """Whether a browser can show itself: without a screen, Python would start a text browser instead."""
    if not sys.platform.startswith("linux"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _stop_on_signals(server: Any) -> None:
    """Stop at the first Ctrl-C, without the question that Jupyter asks; a second one does not wait."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        server.stop(from_signal=True)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
