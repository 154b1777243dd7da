"""The program of each rank that `launch` starts: run the target, and write down how it ended.

torchrun's agent starts it with the environment of a rank, and the path of the order as its argument. Its
standard input is that of the agent: when it closes, whoever launched it is gone, and the rank ends.
"""

import atexit
import faulthandler
import gc
import io
import json
import os
import re
import runpy
import signal
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from course_lib.errors import CourseError
from course_lib.train.ranks.launch_result import is_own_code

LONGEST_LINE = 300
_IN_WORKER = re.compile(r"Caught \w+ (in .+?)\.?\nOriginal Traceback")
_FRAME = re.compile(r'^  File "(.+?)", line (\d+), in (.+)', re.MULTILINE)
_WORKER_ERROR = re.compile(r'^  File ".+\n(?:    .*\n)*(\S.*)', re.MULTILINE)
"""The line below the last frame of a traceback."""


def run(order: dict[str, Any], report: Path) -> int:
    """Run the target of an order, and write the report; the exit status."""
    told: dict[str, Any] = {"state": "running", "pid": os.getpid()}
    write_report(report, told)
    try:
        value = run_target(order)
        told = {"state": "done", "value": value}
        status = 0
    except SystemExit as end:
        code = end.code
        status = 0 if code is None else code if isinstance(code, int) else 1
        told = (
            {"state": "done", "value": None}
            if not status
            else _failure(end, f"it ended with sys.exit({code!r})")
        )
    except CourseError as error:
        status, told = 1, _failure(error, str(error))
    except BaseException as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {first_line(error)}".rstrip(": ")
        if isinstance(error, EOFError) and "reading a line" in text:
            text += ": a rank has no keyboard for input() to read"
        status, told = 1, _failure(error, text)
        # The frames hold what is still open. A loader that the garbage collector ends, together with all else
        # that is in its cycles, waits 5 s for each of its workers.
        traceback.clear_frames(error.__traceback__)
    write_report(report, told)
    return status


def run_target(order: dict[str, Any]) -> Any:
    """Call "module:function" with its arguments, or run "module" as `python -m` does."""
    module, _, name = order["target"].partition(":")
    if name:
        value = call(order["target"], order["arguments"])
        json.dumps(value)  # raises here, in the rank, for what cannot be sent
        return value
    sys.argv = [module, *order["args"]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return None


def call(target: str, arguments: dict[str, Any]) -> Any:
    """Import "module:function", and call it."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)(**arguments)


def call_in_turn(calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """As a rank, several functions in one group of CPU ranks; what each returned. See `launch_in_turn`."""
    from course_lib.train.distributed import process_group

    answers = []
    with process_group(device="cpu", timeout_s=60) as ranks:
        for number, (target, arguments) in enumerate(calls, start=1):
            ranks.print(f"{number} of {len(calls)}: {target.rpartition('.')[2].replace(':', '.')}")
            answers.append(call(target, arguments))
    return answers


def first_line(error: BaseException) -> str:
    """What an error says first: whole sentences, without the place in torch's own sources and gloo's advice.

    Of an error in a worker of a loader, which comes as a text with its traceback, it is the worker's own.
    """
    text = str(error).strip()
    caught = _IN_WORKER.match(text)
    if caught:
        worker = _WORKER_ERROR.findall(text)
        kind, _, said = worker[-1].partition(": ") if worker else ("", "", "")
        if kind.rpartition(".")[2] != type(error).__name__:  # one that torch could not make anew
            said = worker[-1] if worker else ""
        return f"{said.rstrip('. ')}, {caught[1]}".lstrip(", ")
    line = (text.splitlines() or [""])[0].rstrip()
    line = re.sub(r"\[\S*\.cc:\d+\] ?", "", line).partition(" This is typically caused by")[0]
    if len(line) <= LONGEST_LINE:
        return line
    sentences = re.match(r".*[.!?](?=\s)", line[:LONGEST_LINE])
    return sentences[0] if sentences else line[:LONGEST_LINE].rpartition(" ")[0] + " ..."


def write_report(path: Path, told: dict[str, Any]) -> None:
    """Write it whole or not at all; without a word where even that fails, as on a full disk."""
    half = path.with_suffix(".part")
    try:
        half.write_text(json.dumps(told), encoding="utf-8")
        half.replace(path)
    except OSError:
        print("the report of this rank could not be written", file=sys.stderr)


def _failure(error: BaseException, text: str) -> dict[str, Any]:
    frames = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]
    if _IN_WORKER.match(str(error)):
        frames = [(file, int(line), name) for file, line, name in _FRAME.findall(str(error))] or frames
    own = [frame for frame in frames if is_own_code(frame[0])]
    where = f"{Path(own[-1][0]).name}, line {own[-1][1]}, in {own[-1][2]}" if own else ""
    trace = "".join(traceback.format_exception(error))
    return {"state": "failed", "text": text, "where": where, "trace": trace, "time": time.time()}


def end_with_parent() -> None:
    """End this process as soon as its standard input is closed. For the target, it is empty from now on."""
    try:
        watched = os.dup(0)
    except OSError:  # there is no standard input
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def wait_for_the_end() -> None:
        while os.read(watched, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def main() -> int:
    """Read the order that the agent passed on, and carry it out."""
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    end_with_parent()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the agent passes on whole lines, at once
            stream.reconfigure(line_buffering=True, encoding="utf-8", errors="replace")
    name = f"rank{os.environ['RANK']}.attempt{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    folder = Path(sys.argv[1]).parent
    if hasattr(faulthandler, "register"):  # where a rank is when it is told to end; not on Windows
        stack = (folder / f"{name}.stack").open("w", encoding="utf-8")
        faulthandler.register(signal.SIGTERM, file=stack, all_threads=False, chain=True)
    sys.path.extend(entry for entry in order["path"] if entry not in sys.path)
    return run(order, folder / f"{name}.json")


def leave(status: int) -> NoReturn:
    """End this process as Python does, but without taking the interpreter apart.

    A thread of gloo that lets a tensor go just then would abort the process ("terminate called without an
    active exception"), and the agent would take a rank that is done for one that failed.
    """
    gc.collect()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main())
