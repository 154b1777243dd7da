"""How does a child process get its order, end with its parent, and leave its answer?

The order is one line of JSON on standard input, which then stays open: when it closes, the parent is gone,
and the child ends. The answer is a JSON file, which is whole as soon as it is there.
"""

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any


def take_order() -> dict[str, Any]:
    """The order on standard input. From now on this process ends with its parent, and so does its group.

    Its group only where it leads one. Ends the process where no order comes.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)  # without a buffer: what follows belongs to the thread below
        if not piece:
            sys.exit("no order came")
        line += piece
    threading.Thread(target=_end_with_parent, daemon=True).start()
    order: dict[str, Any] = json.loads(line)
    return order


def leave_answer(path: str | Path, answer: dict[str, Any]) -> None:
    """Write the answer as JSON."""
    write_whole(path, json.dumps(answer))


def write_whole(path: str | Path, text: str) -> None:
    """Write under another name first, so that nobody reads half of the text."""
    half = Path(f"{path}.part")
    half.write_text(text, encoding="utf-8")
    half.replace(path)


def read_answer(path: Path) -> dict[str, Any]:
    """The answer of a child; empty as long as there is none, or none that can be read."""
    with suppress(OSError, ValueError):
        answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return answer
    return {}


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # what this process started ends with it
    os._exit(1)
