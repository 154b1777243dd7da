"""The real JupyterLab in a process of its own, asked through its own interface."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from course_lib.teach.server import FIRST_PORT, RunningLab

PROGRAM = """
import sys
from pathlib import Path
from course_lib.teach.server import run_lab

folder, port, browser = sys.argv[1:]
try:
    run_lab(Path(folder), first="00_start.ipynb", port=int(port), browser=browser == "browser")
finally:
    print("after the server", flush=True)
"""
NOTEBOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
LIMIT_S = 180

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="stops the server with SIGINT, which needs POSIX"
)


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path)


@pytest.fixture
def environment(tmp_path):
    return make_environment(tmp_path)


def make_folder(parent):
    mine = parent / "my lessons"
    mine.mkdir()
    (mine / "00_start.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
    return mine


def make_environment(parent):
    """One in which no Jupyter configuration of whoever runs the tests counts."""
    names = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    own = {name: str(parent / value) for name, value in names.items()}
    left_out = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION", "JUPYTER_TOKEN", "COURSE_FOLDER")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    # Without a virtual environment Jupyter prefers the user's files to those beside the interpreter: as here.
    return inherited | own | {"PYTHONUNBUFFERED": "1", "JUPYTER_PREFER_ENV_PATH": "0"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Lab:
    """A server that was started, and what it printed."""

    def __init__(self, process, output):
        self.process = process
        self.output = output
        self.url = ""

    @property
    def printed(self):
        return self.output.read_text(encoding="utf-8")

    @property
    def base(self):
        return self.url.partition("/lab/")[0]

    @property
    def token(self):
        return self.url.partition("token=")[2]

    def ask(self, path, token=None, data=None):
        """Status and body of an answer of the server."""
        request = urllib.request.Request(
            f"{self.base}/{path}",
            data=None if data is None else json.dumps(data).encode(),
            headers={"Authorization": f"token {self.token if token is None else token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@contextmanager
def lab(folder, port, environment, browser="no browser", ready=True):
    output = folder.parent / "printed"
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(port), browser],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Lab(process, output)
    try:
        wait_for(lambda: "token=" in server.printed or process.poll() is not None)
        server.url = re.search(r"http://\S+", server.printed)[0] if "token=" in server.printed else ""
        if server.url and ready:
            wait_for(lambda: answers(server) or process.poll() is not None)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def answers(server):
    try:
        return server.ask("api")[0] == 200
    except OSError:
        return False


def wait_for(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One server for all tests that only ask it something."""
    parent = tmp_path_factory.mktemp("served")
    with lab(make_folder(parent), free_port(), make_environment(parent)) as server:
        assert server.url, server.printed
        yield server


def test_the_lesson_is_served_to_whoever_has_the_token(served):
    status, body = served.ask("api/contents/00_start.ipynb")
    assert status == 200
    assert json.loads(body)["content"]["cells"] == []
    assert served.ask("api/contents/11_nothing.ipynb")[0] == 404

    for token in ("", "wrong", served.token[:-1]):
        assert served.ask("api/contents/00_start.ipynb", token)[0] == 403
        assert served.ask("api/kernels", token, {"name": "python3"})[0] == 403
    assert re.fullmatch("[0-9a-f]{48}", served.token)
    assert served.url.endswith(f"/lab/tree/00_start.ipynb?token={served.token}")


def test_the_server_listens_on_this_computer_only(served):
    listening = {
        connection.laddr.ip
        for connection in psutil.Process(served.process.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_the_page_asks_for_no_news_and_no_network(served):
    status, page = served.ask("lab/tree/00_start.ipynb")
    assert status == 200
    config = json.loads(
        re.search(r'id="jupyter-config-data" type="application/json">(.*?)</script>', page, re.S)[1]
    )

    assert "@jupyterlab/apputils-extension:announcements" in config["disabledExtensions"]
    assert config["news"] == {"disabled": True}
    assert config["extensionManager"]["can_install"] is False
    assert json.loads(served.ask("lab/api/update")[1]) == {"notification": None}
    assert json.loads(served.ask("lab/api/news")[1]) == {"news": []}


def test_sliders_and_their_pictures_are_saved_with_the_lesson(served):
    status, settings = served.ask("lab/api/settings/@jupyter-widgets/jupyterlab-manager:plugin")
    assert status == 200
    found = json.loads(settings)
    assert found["schema"]["properties"]["saveState"]["default"] is True
    assert json.loads(found["raw"] or "{}") == {}, "a default, which the learner may change"


def test_the_front_door_leads_to_the_lesson(served):
    with urllib.request.urlopen(f"{served.base}/?token={served.token}", timeout=LIMIT_S) as answer:
        assert "/lab/tree/00_start.ipynb" in answer.url


def test_a_kernel_is_this_interpreter_and_ends_with_the_server(folder, environment):
    wrong = Path(environment["JUPYTER_DATA_DIR"]) / "kernels" / "python3"
    wrong.mkdir(parents=True)
    spec = {"argv": ["/no/such/python", "{connection_file}"], "display_name": "Other", "language": "python"}
    (wrong / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")

    with lab(folder, free_port(), environment) as server:
        kernel = json.loads(server.ask("api/kernels", data={"path": "00_start.ipynb"})[1])
        connection = Path(environment["JUPYTER_RUNTIME_DIR"]) / f"kernel-{kernel['id']}.json"
        wait_for(connection.exists)
        executable, course_folder, current, course = what_a_kernel_sees(connection)
        encrypted = "curve_publickey" in json.loads(connection.read_text(encoding="utf-8"))
        children = psutil.Process(server.process.pid).children(recursive=True)
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(LIMIT_S) == 0

    assert kernel["name"] == "python3"
    assert executable == sys.executable
    assert (course_folder, current) == (str(folder), str(folder))
    expected = Path(sys.executable).parent / "course"
    assert course == (str(expected) if expected.exists() else str(shutil.which("course")))
    assert encrypted == hasattr(KernelManager, "transport_encryption")
    assert children
    _, left = psutil.wait_procs(children, timeout=LIMIT_S)
    assert [child for child in left if child.status() != psutil.STATUS_ZOMBIE] == []
    assert server.printed.partition("Stop with Ctrl-C.\n")[2] == "after the server\n"


def is_ready(client):
    try:
        client.wait_for_ready(timeout=LIMIT_S)
    except RuntimeError:  # a heart that beats late, as on a busy machine, is taken for a kernel that died
        return False
    return True


def what_a_kernel_sees(connection):
    """Its interpreter, the learner's folder, the current folder, and the ``course`` that it would run."""
    client = BlockingKernelClient()
    client.load_connection_file(str(connection))
    client.start_channels()
    printed = []
    try:
        wait_for(lambda: is_ready(client))
        client.execute_interactive(
            "import os, shutil, sys; print(sys.executable, os.environ['COURSE_FOLDER'], os.getcwd(), "
            "shutil.which('course'), sep='\\n')",
            output_hook=lambda message: printed.append(message["content"].get("text", "")),
            timeout=LIMIT_S,
        )
    finally:
        client.stop_channels()
    return "".join(printed).splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it(folder, environment, number):
    with lab(folder, free_port(), environment) as server:
        os.kill(server.process.pid, number)
        assert server.process.wait(LIMIT_S) == 0
        assert server.printed.endswith("after the server\n")


def test_an_interrupt_right_after_the_address_stops_it(folder, environment):
    with lab(folder, free_port(), environment, ready=False) as server:
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(LIMIT_S) == 0
        assert server.printed.endswith("after the server\n")


def test_the_terminal_shows_the_address_and_little_else(served):
    lines = served.printed.splitlines()

    assert f"    {served.url}" in lines
    assert [line for line in lines if line.startswith("[")] == []
    assert len(lines) <= 6
    assert ("You are root" in served.printed) == (os.geteuid() == 0)


def test_a_busy_port_moves_on(folder, environment):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        busy = listener.getsockname()[1]
        with lab(folder, busy, environment) as server:
            used = int(re.search(r":(\d+)/", server.url)[1])
            assert used != busy
            assert f"Port {busy} is in use; this is port {used}." in server.printed
            assert server.ask("api/contents/00_start.ipynb")[0] == 200


def test_the_last_port_has_no_next_one(folder, environment):
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", 65535))
        except OSError:
            pytest.skip("port 65535 is in use")
        listener.listen()
        with lab(folder, 65535, environment) as server:
            assert server.process.wait(LIMIT_S) == 1
            assert "65535 is not available" in server.printed
            assert "CourseError: JupyterLab could not start" in server.printed


@pytest.mark.parametrize(
    "setting",
    [
        "IdentityProvider.token = ''",
        "ServerApp.token = ''",
        "ServerApp.ip = '0.0.0.0'",
        "ServerApp.open_browser = True",
    ],
)
def test_a_configuration_of_the_learners_does_not_open_the_server(folder, environment, setting):
    config = Path(environment["JUPYTER_CONFIG_DIR"])
    config.mkdir()
    (config / "jupyter_server_config.py").write_text(f"c.{setting}\n", encoding="utf-8")
    with lab(folder, free_port(), environment) as server:
        assert server.url.startswith("http://127.0.0.1:"), server.printed
        assert server.ask("api/contents/00_start.ipynb", "")[0] == 403
        assert server.ask("api/contents/00_start.ipynb")[0] == 200


def test_a_configuration_that_cannot_be_overruled_stops_the_start(folder, environment):
    config = Path(environment["JUPYTER_CONFIG_DIR"])
    config.mkdir()
    (config / "jupyter_server_config.py").write_text(
        "c.PasswordIdentityProvider.token = ''\n", encoding="utf-8"
    )
    with lab(folder, free_port(), environment) as server:
        assert server.process.wait(LIMIT_S) == 1
        assert "CourseError: Your Jupyter configuration sets a token" in server.printed


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell to stand in for a browser")
def test_a_browser_is_given_the_lesson(folder, environment):
    opened = folder.parent / "opened"
    browser = folder.parent / "browser.sh"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{opened}"\n', encoding="utf-8")
    browser.chmod(0o755)
    with lab(folder, free_port(), environment | {"BROWSER": f"{browser} %s"}, "browser") as server:
        wait_for(lambda: opened.exists() and opened.read_text(encoding="utf-8").strip())
        address = opened.read_text(encoding="utf-8").strip()
        page = urllib.request.urlopen(address, timeout=LIMIT_S).read().decode()
        assert "Your browser should open now" in server.printed
        assert f"/lab/tree/00_start.ipynb?token={server.token}" in page


def test_without_a_screen_no_browser_is_tried(folder, environment):
    if not sys.platform.startswith("linux"):
        pytest.skip("other systems have a screen")
    with lab(folder, free_port(), environment, "browser") as server:
        assert "Open this address in a browser:" in server.printed


def test_over_ssh_the_address_comes_with_the_way_to_it(monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5 10.0.0.2 22")
    shown = str(RunningLab("http://127.0.0.1:9001/lab", 9001, FIRST_PORT, Path("mine"), False, False))
    assert "ssh -N -L 9001:127.0.0.1:9001" in shown


def test_a_folder_without_room_for_the_kernel_is_told(folder, environment):
    (folder / ".course").write_text("a file", encoding="utf-8")
    with lab(folder, free_port(), environment) as server:
        assert server.process.wait(LIMIT_S) == 1
        assert "CourseError: The kernel cannot be set up" in server.printed
