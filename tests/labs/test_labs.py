"""Every lab in a real kernel: sliders to both ends and all buttons, by the messages that a browser sends.

A lab fails here when it keeps an error, when a callback fails unseen, or when a button leaves it stuck.
"""

import importlib
import json
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager, start_new_kernel

from course_lib.teach import labs
from course_lib.teach.running.kernel_errors import KernelListener
from course_lib.teach.workspace import KERNEL_DEFAULTS

LABS = [
    module.name
    for module in pkgutil.iter_modules(labs.__path__, f"{labs.__name__}.")
    if hasattr(importlib.import_module(module.name), "lab")
]
MEASURE_S = 300  # a bound against hanging

# The state that a browser would send to put a control at its low and at its high end.
DESCRIBE = """
import json
def _ends(control):
    if hasattr(control, "index"):
        return [{"index": 0}, {"index": len(control.options) - 1}]
    if hasattr(control, "max"):
        return [{"value": control.min}, {"value": control.max}]
    return [{"value": False}, {"value": True}]
print(json.dumps({
    "controls": {n: {"id": c.model_id, "ends": _ends(c)} for n, c in lab.controls.items()},
    "buttons": {n: b.model_id for n, b in lab.buttons.items()},
}))
"""
LOOK = """
print(json.dumps({
    "errors": [error.traceback for error in lab.errors],
    "answers": len(lab.answers),
    "values": {n: c.value for n, c in lab.controls.items()},
    "stuck": bool(lab.buttons) and lab.buttons["measure"].disabled,
}))
"""


class Browser:
    """The browser's end of a kernel in which one lab was made."""

    def __init__(self, module: str, folder: Path) -> None:
        environment = {**KERNEL_DEFAULTS, **os.environ, "COURSE_FOLDER": str(folder)}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        with (folder / "stderr").open("wb") as stderr:
            self.manager, self.client = start_new_kernel(
                MEASURE_S, kernel_name="python3", cwd=str(folder), env=environment, stderr=stderr
            )
        assert isinstance(self.manager, KernelManager)
        self.listener = KernelListener(self.manager.connection_file)
        self.listener.start()
        self.run(f"import importlib\nlab = importlib.import_module({module!r}).lab()\nlab")
        described = json.loads(self.run(DESCRIBE))
        self.controls: dict[str, Any] = described["controls"]
        self.buttons: dict[str, str] = described["buttons"]

    def run(self, code: str) -> str:
        """Run a cell and return what it printed; an error of the cell is one of the test."""
        printed: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
                printed.append(message["content"]["text"])

        reply = self.client.execute_interactive(code, timeout=MEASURE_S + 20, output_hook=hear)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"].get("traceback", ()))
        return "".join(printed)

    def look(self) -> dict[str, Any]:
        """How the lab is now. A kernel answers in order, so all messages sent before were handled."""
        seen: dict[str, Any] = json.loads(self.run(LOOK))
        return seen

    def move(self, end: int) -> None:
        """Put every control to its low end (0) or its high end (1), one after the other."""
        for control in self.controls.values():
            state = control["ends"][end]
            self._send(control["id"], {"method": "update", "state": state, "buffer_paths": []})
        values = self.look()["values"]
        for name, control in self.controls.items():
            (kind, wanted), value = *control["ends"][end].items(), values[name]
            assert kind == "index" or value == wanted, f"{name} did not move"

    def press(self, button: str) -> None:
        self._send(self.buttons[button], {"method": "custom", "content": {"event": "click"}})

    def wait(self) -> None:
        self.run(f"assert lab.wait({MEASURE_S}), 'the measurement does not end'")

    def faults(self) -> list[str]:
        """All errors that the lab kept, and all that passed unseen; nothing more is heard after it."""
        seen = self.look()
        self.listener.stop()
        stuck = ["the button cannot be pressed again"] if seen["stuck"] else []
        return [*seen["errors"], *stuck, *(str(error) for error in self.listener.hidden_errors())]

    def close(self) -> None:
        self.listener.stop()
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def _send(self, model_id: str, data: dict[str, Any]) -> None:
        message = self.client.session.msg("comm_msg", {"comm_id": model_id, "data": data})
        self.client.shell_channel.send(message)


def use_everything(browser: Browser) -> None:
    """Move every control to both ends and press every button at both."""
    for end in (0, 1):
        browser.move(end)
        if browser.buttons:
            browser.press("measure")
            browser.wait()
    if browser.buttons:
        browser.press("measure")
        browser.press("cancel")
        browser.wait()


@pytest.fixture
def open_lab(tmp_path: Path) -> Iterator[Any]:
    opened: list[Browser] = []

    def open_one(module: str, source: str = "") -> Browser:
        if source:
            (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        opened.append(Browser(module, tmp_path))
        return opened[-1]

    yield open_one
    for browser in opened:
        browser.close()


@pytest.mark.parametrize("module", LABS)
def test_a_lab_stands_every_slider_at_both_ends_and_every_button(module: str, open_lab: Any) -> None:
    browser = open_lab(module)
    before = browser.look()["answers"]
    use_everything(browser)
    assert browser.look()["answers"] > before or not browser.buttons
    assert browser.faults() == []


def test_every_lab_is_found() -> None:
    files = {path.stem for path in Path(labs.__path__[0]).glob("*.py")} - {"__init__", "frame"}
    assert {name.rpartition(".")[2] for name in LABS} == files


HEAD = "from course_lib.teach.labs.frame import *\nimport threading\n"
FAULTY = {
    "at one end": (
        "def lab(): return Lab(lambda x: 1 // (x - 9), {'x': whole_numbers('x', 0, 9, 3)})",
        "ZeroDivisionError",
    ),
    "in the picture": (
        "def lab(): return Lab(lambda x: x, {'x': choices('x', [1, 2], 1)}, show=lambda a: {}['key'])",
        "KeyError: 'key'",
    ),
    "in the measurement": (
        "def measure(x, progress): raise OSError('no such disk')\n"
        "def lab(): return MeasuringLab(measure, {'x': menu('x', ['a', 'b'], 'a')})",
        "no such disk",
    ),
    "in a callback beside the frame": (
        "def lab():\n    made = Lab(lambda x: x, {'x': whole_numbers('x', 0, 9, 3)})\n"
        "    made.controls['x'].observe(lambda change: [][5], 'value')\n    return made",
        "IndexError: list index out of range",
    ),
    "in a thread of its own": (
        "def lab(): return Lab(lambda x: threading.Thread(target=lambda: 1 / 0).start(),"
        " {'x': whole_numbers('x', 0, 9, 3)})",
        "ZeroDivisionError",
    ),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_anywhere_in_a_lab_would_be_caught(fault: str, open_lab: Any) -> None:
    source, told = FAULTY[fault]
    browser = open_lab("faulty_lab", HEAD + source)
    use_everything(browser)
    assert any(told in text for text in browser.faults()), browser.faults()


def test_a_setting_that_cannot_be_used_is_no_fault(open_lab: Any) -> None:
    source = (
        "from course_lib.errors import CourseError\n"
        "def pick(x):\n    if x: raise CourseError('Not this one.')\n    return 'fine'\n"
        "def lab(): return Lab(pick, {'x': whole_numbers('x', 0, 1, 0)})"
    )
    browser = open_lab("strict_lab", HEAD + source)
    use_everything(browser)
    assert browser.faults() == []
    assert "Not this one." in browser.run("print(lab._repr_mimebundle_()['text/html'])")
