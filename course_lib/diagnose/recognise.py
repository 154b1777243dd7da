"""What is in this paste? Every kind of text that the course can read, tried on one text.

A new kind is one line in KINDS: its name, what it looks like (for the answer to unknown text), and its
function from a Paste to Readings. Each kind looks for its own marks, so one paste may hold several.
"""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from course_lib.diagnose import cards, faults, memory_growth, memory_verdict, oom
from course_lib.diagnose.faults import rank_errors, uncaught
from course_lib.diagnose.finding import WIDTH, Finding, Reading
from course_lib.diagnose.oom import bare, host, mps
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.together import together

_END_OF_STRING = re.compile(r'(?<!\\)"')


class Kind(NamedTuple):
    """One kind of text: name, what it looks like, and who reads it."""

    name: str
    looks_like: str
    read: Callable[[Paste], list[Reading]]


KINDS: tuple[Kind, ...] = (
    Kind(oom.KIND, '"CUDA out of memory. Tried to allocate ...", HIP and XPU alike', oom.read),
    Kind(oom.KIND, '"MPS backend out of memory (...)"', mps.read),
    Kind(oom.KIND, '"not enough memory", "Cannot allocate memory", WinError 1455', host.read),
    Kind(oom.KIND, '"CUDA error: out of memory", CUBLAS_STATUS_ALLOC_FAILED', bare.read),
    Kind(
        faults.KIND,
        "errors of DDP, NCCL, gloo, torchrun, GradScaler, DataLoader, autograd, checkpoints, CUDA; any "
        "traceback",
        faults.read,
    ),
    Kind(memory_verdict.KIND, "torch.cuda.memory_summary() or memory_stats()", memory_verdict.read),
    Kind(memory_growth.KIND, "a log that prints memory in use from step to step", memory_growth.read),
    Kind(
        cards.KIND,
        "nvidia-smi in all its forms, gpustat, nvitop, nvtop, rocm-smi, amd-smi, xpu-smi",
        cards.read,
    ),
)


_NOTHING_TO_DO = "Nothing in these figures calls for an action."


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was read in a text, and what follows, the most important finding first."""

    readings: tuple[Reading, ...]
    findings: tuple[Finding, ...]

    @property
    def known(self) -> bool:
        """Whether anything in the text was recognised."""
        return bool(self.readings)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data, ready for ``json.dumps``."""
        answer: dict[str, Any] = {
            "known": self.known,
            "findings": [finding.to_json() for finding in self.findings],
            "readings": [reading.to_json() for reading in self.readings],
        }
        if not self.known:
            answer["can_be_read"] = can_be_read()
        return answer

    def __str__(self) -> str:
        return self.in_lines()

    def in_lines(self, width: int = WIDTH) -> str:
        """The answer as text, wrapped at ``width`` characters where its words allow it."""
        if not self.known:
            return "\n".join(
                ["I do not know this text. What can be read:", *(f"  - {line}" for line in can_be_read())]
            )
        parts = [finding.in_lines(width) for finding in self.findings]
        if not parts:
            parts = [_NOTHING_TO_DO]
        parts.append("Read: " + "; ".join(f"{r.kind} ({r.where})" for r in self.readings) + ".")
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        if not self.known:
            rows = "".join(f"<li>{html.escape(line)}</li>" for line in can_be_read())
            return (
                "<p>I do not know this text. Paste an error as it was printed, from first line to last, "
                "or what nvidia-smi shows.</p>"
                f"<details><summary>All that can be read</summary><ul>{rows}</ul></details>"
            )
        read = "; ".join(f"{html.escape(r.kind)} ({r.where})" for r in self.readings)
        told = "".join(finding._repr_html_() for finding in self.findings) or f"<p>{_NOTHING_TO_DO}</p>"
        return f"{told}<small>Read: {read}.</small>"


def can_be_read() -> list[str]:
    """One line for each kind of text."""
    return [f"{kind.name}: {kind.looks_like}" for kind in KINDS]


def explain(text: str) -> Explanation:
    """Read ``text`` with every kind, and say what follows.

    Raises CourseError for a text that is too long. The text is data: nothing in it is run.
    """
    readings = _readings(Paste.of(text))
    if not readings and (place := text.find("\\n")) >= 0:
        # A log or a notebook in JSON: a whole traceback stands in one string.
        line = text.count("\n", 0, place) + 1
        plain = _END_OF_STRING.sub("\n", text)
        plain = plain.replace("\\n", "\n").replace('\\"', '"').replace("\\u001b", "\x1b")
        readings = [replace(r, first_line=line, last_line=line) for r in _readings(Paste.of(plain))]
    return Explanation(tuple(readings), together(readings))


def _readings(paste: Paste) -> list[Reading]:
    """What each kind reads in the paste, in the order of the text."""
    readings: list[Reading] = []
    for kind in KINDS:
        if kind.read is bare.read and any(r.kind == oom.KIND for r in readings):
            continue  # a message with figures says more than the bare words around it
        readings.extend(kind.read(paste))
    readings.extend(rank_errors.read(paste, readings))
    readings.extend(uncaught.read(paste, readings))
    readings.sort(key=lambda reading: reading.first_line)
    return readings
