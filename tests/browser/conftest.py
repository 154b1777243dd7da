"""Chromium, driven by Playwright, in front of the JupyterLab that ``course lab`` starts.

Of a test that fails, a picture of the page and its text are kept in build/browser/; the failure names them.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from course_lib.files import checkout_root

# Ubuntu's chromium comes last: it is a snap, which may not use a profile under /tmp.
BROWSERS = ("google-chrome", "google-chrome-stable", "microsoft-edge", "chromium", "chromium-browser")
OPTIONS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WINDOW = {"width": 1280, "height": 800}
LIMIT_S = 120
"""How long anything may take, a busy machine considered; nothing waits so long when all is well."""

MARK = "COURSE_BROWSER_TEST"
"""An environment variable by which the processes of a test are known, whoever their parent is by then."""

SCROLL = """async cell => {
    cell.scrollIntoView({block: 'center'})
    const place = () => cell.getBoundingClientRect().top
    const before = place()
    await new Promise(done => setTimeout(done, 100))
    return place() === before && before > 0 && before < innerHeight
}"""

ERRORS = '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]'

# What is looked at when a test fails: the browser, and the file of what the lab printed.
_browser = pytest.StashKey[object]()
_printed = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def playwright_api():
    """Playwright's module, set to be patient."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install '.[test]'"
    )
    api.expect.set_options(timeout=1000 * LIMIT_S)
    return api


@pytest.fixture(scope="module")
def browser(playwright_api, request):
    """A Chromium with a profile of its own. When it is closed, none of its processes may be left."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no Chromium here; looked on the PATH for {', '.join(BROWSERS)}")
    before = set(psutil.Process().children(recursive=True))
    with playwright_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=program,
            args=OPTIONS,
            chromium_sandbox=False,  # root cannot have it, nor can many containers
            timeout=1000 * LIMIT_S,
        )
        request.config.stash[_browser] = chromium
        yield chromium
        started = set(psutil.Process().children(recursive=True)) - before
        chromium.close()
    _, left = psutil.wait_procs(started, timeout=LIMIT_S)
    assert not left, f"{left} outlived the browser"


class CourseLab:
    """A running ``course lab``: its address with the token, and the learner's folder."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder

    @property
    def base(self) -> str:
        return self.address.partition("/lab/")[0]

    @property
    def lesson(self) -> str:
        """The address without the token."""
        return self.address.partition("?")[0]

    @property
    def token(self) -> str:
        return self.address.partition("token=")[2]

    def progress(self) -> dict:
        """What is kept of each exercise."""
        text = (self.folder / ".course" / "progress.json").read_text(encoding="utf-8")
        return json.loads(text)["exercises"]


@pytest.fixture(scope="module")
def course_lab(browser, tmp_path_factory, request) -> Iterator[CourseLab]:
    """``course lab`` as a learner starts it, in a new folder. When it is stopped, no process may be left."""
    place = tmp_path_factory.mktemp("browser")
    request.config.stash[_printed] = printed = place / "printed.txt"
    command = [sys.executable, "-m", "course_lib", "lab", "--no-browser"]
    with printed.open("w", encoding="utf-8") as file:
        server = subprocess.Popen(
            [*command, "--dir", str(place / "my lessons"), "--port", str(free_port())],
            env=environment(place),
            cwd=place,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        address = wait_for(
            lambda: re.search(r"(http://\S+\?token=\w+)\n", printed.read_text(encoding="utf-8")),
            f"the address of the lab in {printed}",
            process=server,
        )
        yield CourseLab(address[1], place / "my lessons")
    finally:
        family = marked(place)
        server.terminate()
        _, left = psutil.wait_procs(family, timeout=LIMIT_S)
        for process in left:
            process.kill()
        server.wait(LIMIT_S)
    assert not left, f"{left} outlived the server"
    assert not marked(place)


def environment(place: Path) -> dict[str, str]:
    """One with the short run of the lessons, in which no Jupyter configuration of whoever tests counts."""
    names = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    own = {name: str(place / value) for name, value in names.items()}
    left_out = ("COURSE_FOLDER", "JUPYTER_TOKEN", "JUPYTERLAB_SETTINGS_DIR", "SSH_CONNECTION")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**inherited, **own, "COURSE_QUICK": "1", "PYTHONUNBUFFERED": "1", MARK: str(place)}


def marked(place: Path) -> list[psutil.Process]:
    """The processes that were started, by whatever way, from the lab of this place."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(place):
                found.append(process)
        except (psutil.Error, OSError):  # another user's, or gone
            continue
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(condition, what: str, process: subprocess.Popen | None = None):
    """What ``condition`` returns once that is true."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if found := condition():
            return found
        assert process is None or process.poll() is None, f"ended by itself; was waiting for {what}"
        time.sleep(0.1)
    raise AssertionError(f"waited {LIMIT_S} s for {what}")


class LessonPage:
    """A notebook in JupyterLab, used as a learner uses it: by menus, mouse and keyboard."""

    def __init__(self, page, expect) -> None:
        self.page = page
        self.expect = expect
        self.complaints: list[str] = []
        """What the browser's console, or an answer of the server, reported as an error."""
        page.on("console", lambda said: self._hear(said.type == "error", said.text))
        page.on("pageerror", lambda error: self._hear(True, str(error)))
        page.on("response", lambda answer: self._hear(answer.status >= 400, f"{answer.status}: {answer.url}"))

    def _hear(self, bad: bool, what: str) -> None:
        if bad:
            self.complaints.append(what)

    @property
    def code_cells(self):
        return self.page.locator(".jp-Notebook .jp-CodeCell")

    def wait_until_ready(self) -> None:
        """Wait until JupyterLab has drawn the whole notebook and its kernel waits for work."""
        self.expect(self.page.locator("#jupyterlab-splash")).to_have_count(0)
        self.expect(self.page.locator(".jp-Notebook .jp-Cell", has_text="What to remember")).to_have_count(1)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until no cell runs and none waits."""
        running = self.page.locator(".jp-InputPrompt", has_text="[*]")
        self.expect(running).to_have_count(0, timeout=3000 * LIMIT_S)
        indicator = self.page.locator(".jp-NotebookPanel-toolbar .jp-Notebook-ExecutionIndicator")
        self.expect(indicator).to_have_attribute("data-status", "idle")

    def cell(self, **found_by):
        """The one cell with this text (``has_text=``) or part (``has=``), brought into view."""
        cell = self.page.locator(".jp-Notebook .jp-Cell").filter(**found_by)
        self.expect(cell).to_have_count(1)
        # JupyterLab draws what comes into view, which may push the cell out of view again.
        wait_for(lambda: cell.evaluate(SCROLL), f"the cell with {found_by} to stay in view")
        return cell

    def menu(self, *names: str) -> None:
        """Click through a menu: ``menu("Run", "Run All Cells")``."""
        for name in names:
            # Its full name has the keyboard shortcut at the end.
            self.page.get_by_role("menuitem", name=re.compile(f"^{re.escape(name)}")).click()

    def run(self, cell) -> None:
        """Press Shift+Enter in a cell and wait until it has run."""
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.text_content()
        cell.locator(".cm-content").press("Shift+Enter")
        self.expect(prompt).not_to_have_text(before)
        self.wait_until_idle()

    def answer(self, cell, code: str) -> None:
        """Type another line in place of the one that returns something, and run the cell."""
        line = cell.locator(".cm-line", has_text="return ")
        line.click()
        for key in ("End", "Shift+Home"):  # selects the line, from its end back to its indentation
            self.page.keyboard.press(key)
        self.page.keyboard.type(code)
        self.expect(line).to_have_text(f"    {code}")
        self.run(cell)

    def write_and_run(self, below, code: str):
        """Add a cell below another one, write code into it and run it; returns what it shows."""
        below.locator(".jp-InputPrompt").click()  # chooses the cell without writing in it
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("b")
        new = below.locator("xpath=following-sibling::*[1]")
        self.expect(new).to_have_class(re.compile("jp-mod-selected"))
        self.page.keyboard.press("Enter")
        self.page.keyboard.type(code)
        self.expect(new.locator(".cm-content")).to_have_text(code)
        self.run(new)
        return new.locator(".jp-OutputArea-output")

    def drag(self, slider, side: str) -> None:
        """Take the handle of a slider with the mouse and pull it beyond its ``left`` or ``right`` end."""
        track = slider.locator(".noUi-target").bounding_box()
        end = track["x"] - 30 if side == "left" else track["x"] + track["width"] + 30
        slider.locator(".noUi-handle").hover()
        self.page.mouse.down()
        self.page.mouse.move(end, track["y"], steps=10)
        self.page.mouse.up()

    def save(self) -> None:
        """Press Ctrl+S (on a Mac, Command+S) and wait until the file is written."""
        self.page.keyboard.press("ControlOrMeta+s")
        self.expect(self.page.locator(".lm-DockPanel-tabBar .jp-mod-dirty")).to_have_count(0)

    def restart_kernel(self) -> None:
        """Choose Kernel > Restart Kernel, and say yes."""
        self.menu("Kernel", "Restart Kernel…")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.expect(self.page.locator(".jp-Dialog")).to_have_count(0)
        self.wait_until_idle()


@pytest.fixture
def new_page(browser):
    """Makes a page of a browser that has no cookies yet."""
    contexts = []

    def make():
        contexts.append(new_context(browser))
        return contexts[-1].new_page()

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def opened(browser, course_lab, playwright_api):
    """Lesson 00 as it looks when the learner has opened the address that ``course lab`` prints."""
    context = new_context(browser)
    lesson = LessonPage(context.new_page(), playwright_api.expect)
    lesson.page.goto(course_lab.address)
    lesson.wait_until_ready()
    yield lesson
    context.close()


def new_context(browser):
    context = browser.new_context(viewport=WINDOW)
    context.set_default_timeout(1000 * LIMIT_S)
    return context


@pytest.fixture(scope="module")
def run_lesson(opened):
    """Lesson 00 after Run > Run All Cells, which stops at an error."""
    opened.menu("Run", "Run All Cells")
    end = opened.code_cells.last.locator(".jp-InputPrompt", has_text=re.compile(r"\[\d+\]"))
    stop = opened.page.locator(ERRORS)
    opened.expect(end.or_(stop).first).to_be_attached(timeout=3000 * LIMIT_S)
    opened.wait_until_idle()
    assert stop.all_text_contents() == []
    return opened


@pytest.fixture
def lesson(run_lesson):
    """Lesson 00, run, for one test; nothing in it may make the browser or the server complain."""
    before = len(run_lesson.complaints)
    yield run_lesson
    assert run_lesson.complaints[before:] == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    stash = item.config.stash
    if report.failed and _browser in stash:
        for number, page in enumerate(page for context in stash[_browser].contexts for page in context.pages):
            name = re.sub(r"\W+", "_", f"{item.name} {report.when} {number}")
            report.sections.append((f"page {number}", keep(page, name)))
        if _printed in stash:
            report.sections.append(("the lab printed", stash[_printed].read_text(encoding="utf-8")))
    return report


def keep(page, name: str) -> str:
    """Save a picture of a page and its text, line by line; return where they are."""
    folder = (checkout_root() or Path.cwd()) / "build" / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    picture, text = folder / f"{name}.png", folder / f"{name}.txt"
    try:
        page.screenshot(path=picture)
        parts = page.locator(".jp-InputPrompt, .cm-line, .jp-RenderedMarkdown, .jp-OutputArea-output")
        lines = [page.url, page.inner_text("body"), "", "All cells:", *parts.all_text_contents()]
        text.write_text("\n".join(lines), encoding="utf-8")
    except Exception as error:  # the browser may be what failed
        return f"no picture of the page: {error}"
    return f"picture: {picture}\ntext: {text}"
