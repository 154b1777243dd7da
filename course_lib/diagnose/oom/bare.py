"""What can be said when memory ran out and the message gives no figures?

"CUDA error: out of memory" comes from the driver or a library, not from PyTorch's caching allocator; cuBLAS,
cuDNN and NCCL hide missing memory behind errors of their own. What remains is where in the program it
happened, and what the lines around it say.
"""

import re
from dataclasses import dataclass
from typing import Any

from course_lib.diagnose.finding import Evidence, Finding, Reading
from course_lib.diagnose.paste import Paste
from course_lib.memory_errors import OutOfMemory, find_out_of_memory

_CHOOSER = {"hip": "HIP_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK", "npu": "ASCEND_RT_VISIBLE_DEVICES"}
_TOOL = {"hip": "rocm-smi --showpids", "xpu": "xpu-smi ps", "npu": "npu-smi info"}
_PHASES = tuple(
    (phase, re.compile(pattern))
    for phase, pattern in (
        ("distributed.barrier", r"\bbarrier\s*\("),
        ("distributed.init_process_group", r"\binit_process_group\s*\("),
        ("torch.load", r"\btorch\.load\s*\(|_cuda_deserialize|\brestore_location\b|\bpickle_module\.load"),
        ("pin_memory", r"\bpin_memory\b"),
        ("backward", r"\.backward\s*\("),
        ("optimizer.step", r"\boptim\w*\.step\s*\("),
        ("device transfer", r"\.cuda\s*\(|\.to\s*\(|\b_lazy_init\b|\b_cuda_init\b|set_device\s*\("),
        ("forward", r"\bforward\s*\(|\b_call_impl\b"),
    )
)
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception))\s*:")
_RANK_MEMORY = re.compile(
    r"\brank\s*[:=]?\s*(\d{1,5})\b[^\n]{0,40}?allocated\s*[:=]\s*(\d{1,15})\b", re.IGNORECASE
)
_CODE = re.compile(
    r"^\s*(?:#|//|\"\"\"|if |elif |except |print\(|assert |raise |def |class |\w+ = )|in str\("
)
_LIKE_AN_ERROR = re.compile(r"error|exception|exhausted|failed|fatal|oom|killed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BareMessage:
    """What stands in the text around an out-of-memory error without figures."""

    found: OutOfMemory
    exception: str | None
    phase: str | None
    ranks: int | None
    allocated_bytes_per_rank: int | None

    def figures(self) -> dict[str, Any]:
        """As JSON data; the sizes that other messages give are None."""
        return {
            "backend": self.found.owner,
            "masked_by": self.found.masked,
            "exception": self.exception,
            "tried_to_allocate": None,
            "total_capacity": None,
            "phase": self.phase,
            "ranks": self.ranks,
            "allocated_bytes_per_rank": self.allocated_bytes_per_rank,
        }


def read(paste: Paste) -> list[Reading]:
    """At most one Reading: the last line of the text that speaks of missing memory as an error does."""
    for number in range(len(paste.lines), 0, -1):
        line = paste.lines[number - 1]
        if len(line) > 20_000:
            continue
        found = find_out_of_memory(line)
        if found is None or found.owner == "host" or _CODE.search(line):
            continue
        if found.owner == "unknown" and not _LIKE_AN_ERROR.search(line):
            continue
        message = _message(paste, number, line, found)
        return [
            Reading(
                kind="out-of-memory message",
                figures=message.figures(),
                first_line=number,
                last_line=number,
                findings=(diagnose(message),),
                source=message,
            )
        ]
    return []


def _message(paste: Paste, number: int, line: str, found: OutOfMemory) -> BareMessage:
    exceptions = _EXCEPTION.findall(line)
    ranks: dict[int, int] = {}
    for rank, allocated in _RANK_MEMORY.findall(paste.text):
        ranks[int(rank)] = int(allocated)
    same = set(ranks.values())
    return BareMessage(
        found=found,
        exception=exceptions[-1] if exceptions else None,
        phase=_phase(paste.lines[max(number - 200, 0) : number - 1]),
        ranks=len(ranks) or None,
        allocated_bytes_per_rank=same.pop() if len(same) == 1 else None,
    )


def _phase(lines: list[str]) -> str | None:
    """The innermost frame of the traceback that says what the program was doing."""
    for line in reversed(lines):
        for phase, pattern in _PHASES:
            if pattern.search(line[:500]):
                return phase
    return None


def diagnose(message: BareMessage) -> Finding:
    """The one finding that the place and the wording support best."""
    if message.found.masked:
        return _masked(message)
    if message.phase == "pin_memory":
        return _pinned(message)
    text = message.found.text.lower()
    if message.found.owner == "unknown" or "runtime error (2)" in text or "error" not in text:
        return _figures_missing(message)
    return _device_full(message)


def _list_processes(message: BareMessage) -> str:
    return _TOOL.get(message.found.owner, "nvidia-smi")


def _chooser(message: BareMessage) -> str:
    return _CHOOSER.get(message.found.owner, "CUDA_VISIBLE_DEVICES")


def _device_full(message: BareMessage) -> Finding:
    tool = _list_processes(message)
    first = f"{tool} first; then "
    if message.phase and message.phase.startswith("distributed"):
        first += (
            "make every rank call torch.cuda.set_device(local_rank) before init_process_group and barrier."
        )
    elif message.phase == "torch.load":
        first += (
            "give torch.load map_location='cpu' (or this rank's own device): without it the file goes back "
            "to the card it was saved from, which may be full."
        )
    else:
        first += (
            f"free the card or choose another ({_chooser(message)}), and check that each process uses the "
            "device you mean."
        )
    nothing = ""
    if message.allocated_bytes_per_rank == 0:
        nothing = f" All {message.ranks} ranks report 0 bytes allocated, so it is not this job's tensors."
    place = f" (in {message.phase})" if message.phase else ""
    return Finding(
        id="oom.device_already_full_or_wrong_device",
        summary="The driver had no memory left for a context or a buffer: the card was full already",
        why=f"The error comes from the driver{place}, not from PyTorch's allocator, and gives no figures: a "
        f"context, communication buffers or a library did not fit.{nothing} The card this process landed on "
        "is full with other jobs, or several ranks share one card because their device was not set.",
        remedies=(first, "If the card is yours alone, look for an earlier run of yours that did not end."),
        not_helpful=(
            "A smaller batch size, before you know who fills the card.",
            "Gradient checkpointing.",
            "PYTORCH_CUDA_ALLOC_CONF settings: the caching allocator is not involved.",
        ),
        evidence=_evidence(message),
        certainty="likely",
    )


def _pinned(message: BareMessage) -> Finding:
    return Finding(
        id="oom.pinned_host_memory",
        summary="Pinning host memory failed",
        why="The error arises while a batch is copied into pinned (page-locked) memory of the computer, "
        "which is limited; or the pinning thread opened a context on a card that is full.",
        remedies=(
            "Set pin_memory=False in the DataLoader as a test, and lower num_workers and prefetch_factor; "
            f"look at free -h and {_list_processes(message)}.",
        ),
        not_helpful=("A smaller model.", "PYTORCH_CUDA_ALLOC_CONF settings."),
        evidence=_evidence(message),
        certainty="likely",
    )


def _masked(message: BareMessage) -> Finding:
    library = message.found.masked
    return Finding(
        id=f"oom.masked_by_{library}",
        summary=f"{library} failed; most often the memory for its own workspace was missing",
        why=f"{message.found.text} does not say why. The usual cause is that PyTorch has taken nearly the "
        "whole card and nothing is left for the library's handle or workspace. An index out of range in an "
        "earlier, asynchronous kernel, or mismatched library versions, look the same.",
        remedies=(
            f"Watch the card's memory ({_list_processes(message)}) while it runs: if it is nearly full at "
            "the failure, lower the peak (halve the batch); if not, run once with CUDA_LAUNCH_BLOCKING=1, "
            "or on the CPU, to see the real error.",
            "Leave room for the libraries: torch.cuda.set_per_process_memory_fraction(0.9).",
        ),
        not_helpful=("Reinstalling CUDA or PyTorch before the memory was looked at.",),
        evidence=_evidence(message),
        certainty="possible",
    )


def _figures_missing(message: BareMessage) -> Finding:
    return Finding(
        id="oom.figures_missing",
        summary="Memory ran out, but the figures that would say why are not in the text",
        why="Whether the card is full, another process holds it, or one request was too large cannot be "
        "told from what is here.",
        remedies=(
            f"Look at who is on the card ({_list_processes(message)}), and paste the whole message; if the "
            "card is yours alone, halve the batch as a test.",
        ),
        not_helpful=("Any single setting, before the figures are known.",),
        evidence=_evidence(message),
        certainty="possible",
    )


def _evidence(message: BareMessage) -> tuple[Evidence, ...]:
    named = (("words", message.found.text), ("in", message.phase), ("ranks", message.ranks))
    return tuple(Evidence(name, " ".join(str(value).split())) for name, value in named if value is not None)
