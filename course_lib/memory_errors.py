"""Which exceptions and texts mean "out of memory", and whose memory is it?

Every library words it in its own way, and some hide it: cuBLAS, cuDNN and NCCL report that a handle or a
plan could not be made when it was the memory for it that was missing. Such texts are *masked*: memory is the
usual cause, not the only one. Nothing here imports torch; exceptions are judged by class name and text.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

Owner = Literal["cuda", "hip", "mps", "xpu", "npu", "host", "unknown"]


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """That a text or an exception speaks of missing memory.

    ``owner`` is whose memory it was, "host" being the computer's own. ``masked`` is the library that hides it
    ("cublas", "cudnn", "nccl", ...), or None where the text says it plainly. ``text`` is the part that was
    recognised.
    """

    owner: Owner
    masked: str | None
    text: str


class _Wording(NamedTuple):
    owner: Owner
    masked: str | None
    pattern: re.Pattern[str]


def _wording(owner: Owner, pattern: str, masked: str | None = None) -> _Wording:
    # A blank in a pattern is any run of blanks, also none: terminals break lines inside a message.
    return _Wording(owner, masked, re.compile(pattern.replace(" ", r"\s*"), re.IGNORECASE))


# Plain wordings stand before the masked ones, special ones before the general.
_WORDINGS: tuple[_Wording, ...] = (
    # PyTorch's caching allocators: 1.0 to today
    _wording("cuda", r"\bCUDA out of memory"),
    _wording("hip", r"\bHIP out of memory"),
    _wording("xpu", r"\bXPU out of memory"),
    _wording("npu", r"\bNPU out of memory"),
    _wording("mps", r"\bMPS backend out of memory"),
    _wording("mps", r"\bInvalid buffer size: \d[\d.]* [KMGT]i?B"),
    # the runtime or the driver, outside the allocator (torch 0.4 says "cuda runtime error (2)")
    _wording("cuda", r"\bCUDA (?:driver )?error: out of memory"),
    _wording("cuda", r"\bcuda runtime error \(2\) : out of memory"),
    _wording("cuda", r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation)\b"),
    _wording("cuda", r"\bcuda(?:Malloc|MallocAsync|HostAlloc)\w* failed:? out of memory"),
    _wording("hip", r"\bHIP error: out of memory|\bhipErrorOutOfMemory\b"),
    _wording("xpu", r"\bUR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES|HOST_MEMORY)\b"),
    _wording("xpu", r"\bPI_ERROR_OUT_OF_(?:RESOURCES|HOST_MEMORY)\b"),
    _wording("xpu", r"can NOT allocate memory block with size larger than 4 ?GB"),
    # other frameworks on the same card
    _wording("cuda", r"\bcupy\S*OutOfMemoryError: Out of memory allocating"),
    _wording("unknown", r"\bRESOURCE_EXHAUSTED: Out of memory|\bOOM when allocating tensor"),
    # host memory
    _wording("host", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"),
    _wording("host", r"\bnot enough memory: you tried to allocate"),
    _wording(
        "host", r"\b_?ArrayMemoryError\b|\bUnable to allocate (?:array|[\d.]+ [KMGTPE]?i?B(?:ytes)? for)"
    ),
    _wording("host", r"\bMemoryError\b|\bstd::bad_alloc\b"),
    _wording("host", r"\[Errno 12\]|\bCannot allocate memory\b"),
    _wording("host", r"\[WinError (?:8|14|1455)\]"),
    _wording("host", r"\bOut of memory: Kill(?:ed)? process \d+|\bMemory cgroup out of memory\b"),
    _wording("host", r"\boom[-_]kill(?:er)?\b|\bcgroup out-of-memory handler\b"),
    # hidden behind another library's error
    _wording("cuda", r"\bCUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)\b", "cublas"),
    _wording("hip", r"\b(?:HIPBLAS_STATUS_ALLOC_FAILED|rocblas_status_memory_error)\b", "rocblas"),
    _wording("hip", r"\bmiopenStatusAllocFailed\b", "miopen"),
    _wording("cuda", r"\bCUSOLVER_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)\b|cusolver error: 2\b", "cusolver"),
    _wording("cuda", r"\bCUSPARSE_STATUS_ALLOC_FAILED\b|\bCUFFT_ALLOC_FAILED\b", "cusparse"),
    _wording("cuda", r"\bCUDNN_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)\b", "cudnn"),
    _wording(
        "cuda", r"\b(?:Unable to find a valid cuDNN algorithm|GET was unable to find an engine)", "cudnn"
    ),
    _wording("cuda", r"\bCuda failure '?(?:out of memory|2)\b|\bFailed to CUDA calloc\b", "nccl"),
    _wording("cuda", r"\bnccl\w* error\b.{0,400}\bout of memory\b", "nccl"),
    # the class alone, and torch failing to say who is on the card after it ran out
    _wording("unknown", r"\b(?:torch|cuda)\.OutOfMemoryError\b"),
    _wording("cuda", r"\bNVML_SUCCESS == \w+ INTERNAL ASSERT FAILED\b.{0,80}\bCUDACachingAllocator\b"),
    # last: the bare words, whoever says them
    _wording("unknown", r"\bout of memory\b"),
)
# A text without any of these holds none of the wordings; most lines of a log end here.
_HINT = re.compile(
    r"memory|alloc|oom|_STATUS_|cudnn|find an engine|exhausted|errno|winerror|buffer|_ERROR_|Cuda failure"
    r"|cusolver|4 ?GB",
    re.IGNORECASE,
)
# These say "out of memory" or "MemoryError" and mean something else.
_FALSE_FRIENDS = re.compile(
    r"out\s*of\s*shared\s*memory|out\s*of\s*resource:\s*shared\s*memory", re.IGNORECASE
)
_MOST_CAUSES = 20


def find_out_of_memory(text: str) -> OutOfMemory | None:
    """The plainest mention of missing memory in ``text``; None when there is none."""
    found = _find(text)
    if found is None or found.owner == "unknown":
        # A terminal may have broken the owner's name in two: "CUD / A out of memory".
        return _find("".join(text.split())) or found
    return found


def _find(text: str) -> OutOfMemory | None:
    if not _HINT.search(text):
        return None
    cleaned = _FALSE_FRIENDS.sub(" ", text)
    for wording in _WORDINGS:
        match = wording.pattern.search(cleaned)
        if match:
            return OutOfMemory(wording.owner, wording.masked, match.group())
    return None


def out_of_memory(error: BaseException) -> OutOfMemory | None:
    """What ``error``, or an error it was raised from, says about missing memory; None for any other error.

    Errors that were merely being handled at the time (``__context__``) do not count.
    """
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if current is None:
            return None
        names = {cls.__name__ for cls in type(current).__mro__}
        found = find_out_of_memory(str(current))
        if found is None and "MemoryError" in names:
            found = OutOfMemory("host", None, type(current).__name__)
        if found is None and isinstance(current, OSError) and current.errno == 12:
            found = OutOfMemory("host", None, "[Errno 12]")
        if found is None and "OutOfMemoryError" in names:
            found = OutOfMemory("unknown", None, type(current).__name__)
        if found:
            return found
        current = current.__cause__
    return None


def is_out_of_memory(error: BaseException, *, masked: bool = True) -> bool:
    """Whether ``error`` means that memory ran out.

    ``masked=False`` leaves out the errors of cuBLAS, cuDNN, NCCL and their like that only usually mean it.
    """
    found = out_of_memory(error)
    return found is not None and (masked or found.masked is None)
