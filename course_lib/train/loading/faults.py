"""What goes wrong with loader workers, and what does it look like?

    print(provoke("lambda_under_spawn"))

Each kind of fault in KINDS is made to happen for real, in a child process that has a time limit and is ended
with all its workers. What it said stands beside why it happens and what helps.
"""

import html
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from course_lib.errors import CourseError
from course_lib.units import format_seconds

NOT_HERE = "cannot be provoked here: "
_ENDED_S = 10.0
# How Python ends a traceback: the error's class, alone or with what it says.
_ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?:: .*|:|)\s*$")
_TRACEBACK = re.compile(r"(?:Original )?Traceback \(most recent call last\):")
COLUMNS = 90  # of printed text: a notebook breaks longer lines in the middle of a word


class Explanation(NamedTuple):
    """One kind of fault: what marks it in what the child says, why it happens, and what helps."""

    title: str
    signs: tuple[str, ...]  # regular expressions, the most telling first
    why: str
    cure: str


KINDS: Mapping[str, Explanation] = {
    "lambda_under_spawn": Explanation(
        "a lambda, and workers that start anew",
        (r"Can't (?:pickle|get) local object", r"cannot pickle"),
        "A worker that is spawned, as on Windows and macOS, is a new Python. Data set and collate_fn are "
        "sent to it by name, and a lambda or a function inside a function has no name that can be imported.",
        "Write it as a function at the top of a .py file, and import it.",
    ),
    "class_of_a_notebook": Explanation(
        "a class that was written in a notebook",
        (r"Can't get attribute 'MyDataset'", r"exited unexpectedly"),
        "Where workers are spawned, as on Windows and macOS, each is a new Python and looks for the class in "
        "a module. A notebook is not a module, so the worker ends at once; the loader only hears that it is "
        "gone, or waits.",
        "Put the class into a .py file beside the notebook, and import it.",
    ),
    "no_main_guard": Explanation(
        "a script without a main guard",
        (r"has finished its bootstrapping phase",),
        "A spawned worker imports the script that started it. Without the guard it runs the training again, "
        "which starts workers again.",
        'Put what the script does under if __name__ == "__main__":, and leave classes and functions outside.',
    ),
    "killed_worker": Explanation(
        "a worker killed by the system",
        (r"killed by signal", r"exited unexpectedly", r"Connection(?:Reset|Refused)Error", r"EOFError"),
        "The system ended the worker without a word: nearly always because memory ran out. "
        "Sometimes the loader only sees a broken connection. Each worker has its own memory, and "
        "prefetch_factor batches of each lie ready.",
        "Fewer workers, a smaller prefetch_factor, or data that all share: a memory map in place of lists of "
        "arrays. The system's log (dmesg) names who was killed.",
    ),
    "out_of_memory": Explanation(
        "a worker that asks for more than there is",
        (r"can't allocate memory", r"MemoryError", r"Cannot allocate memory"),
        "A worker keeps what it puts into the data set, and each worker has a copy of its own. A cache "
        "inside __getitem__ grows once for each worker.",
        "Keep nothing in the data set, or keep it in memory that is shared: a memory map, or a tensor in "
        "shared memory. Then try fewer workers.",
    ),
    "small_shared_memory": Explanation(
        "too little shared memory",
        (r"No space left on device", r"insufficient shared memory", r"Bus error", r"out of shared memory"),
        "Workers hand their batches over in shared memory (/dev/shm). Docker gives a container 64 MiB of it.",
        "Start the container with --shm-size=8g or --ipc=host; until then use num_workers=0, a smaller "
        "batch, or a smaller prefetch_factor.",
    ),
    "too_many_open_files": Explanation(
        "too many open files",
        (r"Too many open files", r"received 0 items of ancdata"),
        "On Linux each tensor that comes from a worker is an open file for as long as it lives. Whoever "
        "keeps batches, in a list of losses or predictions for example, runs into the limit.",
        "Keep copies, as in kept.append(batch.clone()), or call "
        'torch.multiprocessing.set_sharing_strategy("file_system"). Raising ulimit -n only puts it off.',
    ),
    "same_augmentations": Explanation(
        "the same random augmentations in each worker",
        (r"64 samples, (?:[1-9]|[1-5]\d) different random numbers",),
        "Each worker gets a copy of the data set, with a copy of the generator in it, in the same state. "
        "PyTorch gives torch, random and numpy.random a seed of their own in each worker, but knows no "
        "generator of yours. "
        "Nothing fails: the model just sees less variety.",
        "Draw from torch's own generator, or make yours in worker_init_fn, from torch.initial_seed().",
    ),
    "repeated_samples": Explanation(
        "each sample once for each worker",
        (r"each came [2-9] times",),
        "Each worker has a copy of the stream and goes through all of it. Nothing fails: an epoch is just "
        "that many times as long.",
        "In __iter__ ask get_worker_info(), and let worker number i of n take each n-th sample.",
    ),
    "shared_file": Explanation(
        "one open file in several workers",
        (r"[1-9]\d* of 64 samples hold the bytes of another",),
        "On Linux a worker is often a copy of the running process: it is forked. Copies share a file that "
        "was open before, and the place in it: one moves it while another reads. Nothing fails: samples are "
        "mixed up. The same holds for archives, HDF5 files and databases.",
        "Open the file in the worker, when its first sample is asked for.",
    ),
    "different_sizes": Explanation(
        "samples of different sizes",
        (r"equal size",),
        "The default collate_fn puts samples into one tensor, and they must have one shape for that.",
        "Cut or pad them to one size in the data set, or give a collate_fn that does.",
    ),
    "stuck_worker": Explanation(
        "a worker that never answers",
        (r"timed out",),
        "The worker waits for something: a server, a lock that was held when it was copied (forked), a "
        "disk that is gone. Without a timeout the loader would wait with it, for ever.",
        "DataLoader(timeout=60) turns the silence into an error. py-spy dump --pid shows where a worker "
        "stands; num_workers=0 shows it in the training process.",
    ),
    "broken_sample": Explanation(
        "an error in one sample",
        (r"No such file or directory: ", r"Caught \w+ in DataLoader worker"),
        "The error is raised in the worker, sent over, and raised again. The lines under Original Traceback "
        "are yours; those above are PyTorch's.",
        "Read the traceback from the bottom. With num_workers=0 a debugger stops at the place.",
    ),
}


@dataclass(frozen=True)
class ProvokedFault:
    """A fault that was made to happen in a child, what it said, and why.

    `happened` is false where the system does not let it happen; `said` then says why not. `output` is all
    that the child printed. No process is left behind, which is checked.
    """

    kind: str
    happened: bool
    said: str
    why: str
    cure: str
    seconds: float
    output: str

    @property
    def title(self) -> str:
        """The kind in words."""
        return KINDS[self.kind].title

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self) | {"title": self.title})

    def _rows(self) -> list[tuple[str, str]]:
        return [("It says", self.said), ("Why", self.why), ("What helps", self.cure)]

    def __str__(self) -> str:
        head = f"{self.title[0].upper()}{self.title[1:]} (a child of {format_seconds(self.seconds)})"
        rows = [
            textwrap.fill(text, COLUMNS, initial_indent=f"  {name + ':':12} ", subsequent_indent=" " * 15)
            for name, text in self._rows()
        ]
        return "\n".join([head, *rows])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left;vertical-align:top">{name}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in self._rows()
        )
        return f"<table><caption><b>{html.escape(self.title)}</b></caption>{rows}</table>"


def provoke(kind: str, *, time_limit_s: float = 90.0) -> ProvokedFault:
    """Let this fault happen in a child process, and explain it.

    Raises CourseError for an unknown kind, and when the child does something else than expected or is not
    done after `time_limit_s`.
    """
    if kind not in KINDS:
        raise CourseError(f"There is no fault {kind!r}: choose one of {', '.join(KINDS)}.")
    begin = time.perf_counter()
    output = _run_child(kind, time_limit_s)
    seconds = time.perf_counter() - begin
    known = KINDS[kind]
    if NOT_HERE in output:
        reason = output.rpartition(NOT_HERE)[2].splitlines()[0]
        return ProvokedFault(kind, False, NOT_HERE + reason, known.why, known.cure, seconds, output)
    said = what_it_says(output, known.signs)
    if said is None:
        last = output.strip().splitlines()[-1] if output.strip() else "nothing"
        raise CourseError(f"The child for {kind} did not fail as expected, it said: {last[:300]}")
    return ProvokedFault(kind, True, said, known.why, known.cure, seconds, output)


def what_it_says(output: str, signs: Sequence[str]) -> str | None:
    """What tells a fault in the text that a program left, in one line; None where nothing does.

    The whole message of an error goes before a mere line, which may be a line of code in a traceback; then
    the earlier sign goes before the later one.
    """
    for candidates in (_messages(output), [line.strip() for line in output.splitlines()]):
        for sign in signs:
            for said in candidates:
                if re.search(sign, said):
                    return said
    return None


def _messages(output: str) -> list[str]:
    """The errors in a text, each with the lines of its first paragraph, joined into one."""
    found: list[list[str]] = []
    inside = False
    for line in output.splitlines():
        if _ERROR.match(line):
            found.append([line.strip()])
            inside = True
        elif not line.strip() or _TRACEBACK.match(line):
            inside = False
        elif inside:
            found[-1].append(line.strip())
    return [" ".join(lines) for lines in found]


def _run_child(kind: str, time_limit_s: float) -> str:
    """What the child and its workers printed. All of them have ended."""
    root = str(Path(__file__).resolve().parents[3])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory(prefix="course_fault_", ignore_cleanup_errors=True) as folder:
        printed = Path(folder) / "output.txt"
        with printed.open("wb") as file:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from course_lib.train.loading.faulty_child import run; run({kind!r})",
                ],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment | {"TMPDIR": folder, "TEMP": folder},
                start_new_session=os.name == "posix",
            )
            try:
                child.wait(time_limit_s)
            except subprocess.TimeoutExpired:
                raise CourseError(
                    f"The child for {kind} was not done after {format_seconds(time_limit_s)} and was ended: "
                    "try again when the machine is less busy."
                ) from None
            finally:
                _end_all(child)
        return printed.read_text(encoding="utf-8", errors="replace")


def _end_all(child: "subprocess.Popen[Any]") -> None:
    """End the child and its workers, also where the child itself has ended already, and see them gone."""
    workers = []
    with suppress(psutil.NoSuchProcess):
        workers = psutil.Process(child.pid).children(recursive=True)
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # nobody is left in its group
            os.killpg(child.pid, signal.SIGKILL)
    for process in workers:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    with suppress(OSError):
        child.kill()
    child.wait()
    psutil.wait_procs(workers, timeout=_ENDED_S)
