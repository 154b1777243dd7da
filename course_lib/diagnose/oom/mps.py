"""What does an out-of-memory message of Apple's MPS backend say?

``MPS backend out of memory (MPS allocated: A, other allocations: B, max allowed: C). Tried to allocate D on
private pool.`` A are tensors, B is what Metal holds beside them (compiled graphs, other buffers), C is the
limit that PyTorch sets itself from the high watermark ratio. "GB" here is 2**30 bytes, as "GiB" is.
"""

import re
from dataclasses import dataclass
from typing import Any

from course_lib.diagnose.finding import Evidence, Finding, Reading
from course_lib.diagnose.oom.words import LOWER_PEAK
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.size import SIZE, PrintedSize, show_mib

_MESSAGE = re.compile(
    rf"MPSbackendoutofmemory\(?(?:(?:MPS|currently)allocated:?{SIZE})?,?(?:otherallocations:?{SIZE})?,?"
    rf"(?:maxallowed:?{SIZE})?\)?\.?(?:Triedtoallocate{SIZE})?(?:on(?:private|shared)pool\.?)?"
    r"(UsePYTORCH_MPS_HIGH_WATERMARK_RATIO)?",
    re.IGNORECASE,
)
_BUFFER = re.compile(rf"Invalidbuffersize:{SIZE}", re.IGNORECASE)
# Set from inside Python; "export" in a shell comes in time.
_RATIO_IN_SCRIPT = re.compile(
    r"(?:environ\W{1,4}|putenv\W{1,3}|setdefault\W{1,3}|%env\s{1,4})PYTORCH_MPS_HIGH_WATERMARK_RATIO\W{1,6}0(?:\.0*)?\b"
)


@dataclass(frozen=True, slots=True)
class MpsMessage:
    """The figures of one message; None where the text does not give them."""

    mps_allocated: PrintedSize | None = None
    other_allocations: PrintedSize | None = None
    max_allowed: PrintedSize | None = None
    tried_to_allocate: PrintedSize | None = None
    watermark_hint_printed: bool = False

    def figures(self) -> dict[str, Any]:
        """All that stands in the text, as JSON data. The backend raises RuntimeError, whoever prints it."""
        sizes = ("mps_allocated", "other_allocations", "max_allowed", "tried_to_allocate")
        figures: dict[str, Any] = {"backend": "mps", "exception": "RuntimeError", "gpu_index": None}
        for name in sizes:
            size = getattr(self, name)
            figures[name] = None if size is None else size.to_json()
        figures["watermark_hint_printed"] = self.watermark_hint_printed
        return figures

    @property
    def sum_mib(self) -> float | None:
        """Tensors and other allocations together, in MiB."""
        if self.mps_allocated is None or self.other_allocations is None:
            return None
        return round(self.mps_allocated.mib + self.other_allocations.mib, 2)


def read(paste: Paste) -> list[Reading]:
    """One Reading for each different MPS message in the text."""
    readings: dict[MpsMessage, Reading] = {}
    too_late = _RATIO_IN_SCRIPT.search(paste.text) is not None
    for match in _MESSAGE.finditer(paste.squeezed):
        groups = match.groups()
        sizes = [
            PrintedSize.of(n, u) if n else None for n, u in zip(groups[0:8:2], groups[1:8:2], strict=True)
        ]
        message = MpsMessage(sizes[0], sizes[1], sizes[2], sizes[3], groups[8] is not None)
        _add(readings, paste, match, message, diagnose(message, ratio_set_in_script=too_late))
    for match in _BUFFER.finditer(paste.squeezed):
        message = MpsMessage(tried_to_allocate=PrintedSize.of(match.group(1), match.group(2)))
        _add(readings, paste, match, message, _too_large(message))
    return list(readings.values())


def _add(
    readings: dict[MpsMessage, Reading],
    paste: Paste,
    match: re.Match[str],
    message: MpsMessage,
    finding: Finding,
) -> None:
    readings.setdefault(
        message,
        Reading(
            kind="out-of-memory message",
            figures=message.figures(),
            derived={"sum_mib": message.sum_mib},
            first_line=paste.line_of(paste.offset(match.start())),
            last_line=paste.line_of(paste.offset(match.end() - 1)),
            findings=(finding,),
            source=message,
        ),
    )


def diagnose(message: MpsMessage, *, ratio_set_in_script: bool = False) -> Finding:
    """The one finding that the figures of ``message`` support best.

    ``ratio_set_in_script``: the same text sets PYTORCH_MPS_HIGH_WATERMARK_RATIO to 0.0 from Python.
    """
    allocated, other, limit, tried = (
        None if size is None else size.mib
        for size in (
            message.mps_allocated,
            message.other_allocations,
            message.max_allowed,
            message.tried_to_allocate,
        )
    )
    if ratio_set_in_script and limit is not None:
        return _set_too_late(message)
    if tried is not None and limit is not None and tried >= 0.5 * limit:
        return _too_large(message)
    if allocated is None or other is None or limit is None:
        return _figures_missing(message)
    if tried is not None and allocated + other + tried < 0.98 * limit:
        return _unexplained(message)
    if other > allocated:
        return Finding(
            id="oom.mps_other_allocations",
            summary="Most of the memory is not in tensors but in other Metal allocations",
            why=f"{message.mps_allocated} + {message.other_allocations} = {show_mib(allocated + other)} of "
            f"{message.max_allowed}; {other / (allocated + other):.0%} of it is 'other allocations': "
            "compiled graphs and driver memory outside the tensor pool.",
            remedies=(
                "Release the side of graphs and driver: torch.mps.empty_cache(), fewer distinct shapes (each "
                "compiles a graph of its own), restart the process; then a smaller model or batch.",
                "Find what grows there: print torch.mps.driver_allocated_memory() beside "
                "torch.mps.current_allocated_memory() every few steps.",
            ),
            not_helpful=(
                f"Looking at the {message.mps_allocated} of tensors alone and calling memory ample.",
                "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 as a first step: it takes the guard away, not the "
                "cause.",
            ),
            evidence=_evidence(message),
        )
    return Finding(
        id="oom.capacity",
        summary="The part of memory that MPS may use is really full",
        why=f"{message.mps_allocated} of tensors and {message.other_allocations} of other allocations reach "
        f"{show_mib(allocated + other)} of {message.max_allowed} allowed.",
        remedies=(
            f"Lower the peak: {LOWER_PEAK}; close other programs, since this memory is the computer's own.",
        ),
        not_helpful=(
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 as a first step: it takes the guard away, not the cause, "
            "and the whole system may stall.",
        ),
        evidence=_evidence(message),
    )


def _set_too_late(message: MpsMessage) -> Finding:
    other = ""
    if (
        message.other_allocations
        and message.mps_allocated
        and message.other_allocations.mib > message.mps_allocated.mib
    ):
        other = f" And {message.other_allocations} is 'other allocations': the limit is not the real problem."
    return Finding(
        id="env_var_set_too_late",
        summary="The environment variable was set too late to have an effect",
        why=f"The message still names a limit ({message.max_allowed}), so the ratio of 0.0 was not in "
        "force: the allocator had read the variable before the script set it. It must be set before the "
        f"first import of torch, or in the shell.{other}",
        remedies=(
            "Export the variable before starting Python, if you must have it; better, find what grows in "
            "'other allocations' (print torch.mps.driver_allocated_memory() every few steps).",
            f"Lower the peak: {LOWER_PEAK}.",
        ),
        not_helpful=(
            "Calling it a bug that the variable has no effect, before checking when it is set.",
            "Taking the limit away: the memory is the computer's own, and the system may stall.",
        ),
        evidence=_evidence(message),
    )


def _too_large(message: MpsMessage) -> Finding:
    limit = (
        f" of {message.max_allowed} allowed"
        if message.max_allowed
        else ", more than Metal gives in one piece"
    )
    return Finding(
        id="oom.single_request_too_large",
        summary=f"One tensor asks for {message.tried_to_allocate}{limit}",
        why="A single buffer of that size comes from an input or an intermediate result (image size, "
        "sequence length squared, batch) that is far too large.",
        remedies=(
            f"Find the line that asks for {message.tried_to_allocate} and cut what it scales with: image or "
            "sequence size, batch, a matrix of all pairs.",
            "Compute it in pieces (attention slicing, chunks), or in half precision.",
        ),
        not_helpful=("torch.mps.empty_cache().", "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0."),
        evidence=_evidence(message),
    )


def _unexplained(message: MpsMessage) -> Finding:
    return Finding(
        id="oom.contradictory_free_exceeds_request",
        summary="The figures do not explain the failure: the request is below the limit",
        why=f"{show_mib(message.sum_mib or 0.0)} in use and {message.tried_to_allocate} asked for stay "
        f"below {message.max_allowed}: the refusal has another reason (the system's own pressure, the "
        "largest buffer that Metal gives, a figure read at another moment).",
        remedies=("Try again in a fresh process with other programs closed, and watch Activity Monitor.",),
        not_helpful=("Raising the watermark ratio: the limit was not reached.",),
        evidence=_evidence(message),
        certainty="likely",
    )


def _figures_missing(message: MpsMessage) -> Finding:
    return Finding(
        id="oom.figures_missing",
        summary="MPS ran out of memory, but the figures that would say why are not in the text",
        why="The message is cut off: the tensors, the other allocations and the limit are needed.",
        remedies=("Paste the whole message, to its last sentence.",),
        evidence=_evidence(message),
        certainty="possible",
    )


def _evidence(message: MpsMessage) -> tuple[Evidence, ...]:
    named = (
        ("asked for", message.tried_to_allocate),
        ("tensors", message.mps_allocated),
        ("other allocations", message.other_allocations),
        ("allowed", message.max_allowed),
    )
    return tuple(Evidence(name, str(size)) for name, size in named if size is not None)
