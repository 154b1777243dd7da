"""The words that all findings about out-of-memory messages share."""

from course_lib.diagnose.finding import Evidence
from course_lib.diagnose.oom.message import AllocatorMessage

EMPTY_CACHE = "torch.cuda.empty_cache(): the allocator has already given back what it could before it failed."
ALLOCATOR_SETTINGS = (
    "Allocator settings such as expandable_segments or max_split_size_mb: they join gaps, and the gaps are "
    "not what is missing here."
)
LAST_STRAW = "Reading the size of the last request as the amount that is missing: it is only the last straw."
LOWER_PEAK = (
    "smaller batch (keep the global batch with gradient accumulation) or shorter inputs, mixed precision, "
    "gradient checkpointing"
)
NOT_IN_THE_FIGURES = (
    "The message does not say whose it is: the driver's context and libraries of this process (300 MiB to "
    "1 GiB), the desktop if this card drives a screen, another library in this process, or another process."
)
_NAMES = {
    "tried_to_allocate": "asked for",
    "total_capacity": "card",
    "free": "free",
    "allocated": "allocated",
    "reserved_total": "reserved by PyTorch",
    "reserved_unallocated": "reserved but unallocated",
    "cached_unused": "cached, unused",
    "process_in_use": "this process",
    "allowed": "allowed",
    "private_pools": "in private pools",
}
_TOOLS = {"cuda": "nvidia-smi", "hip": "rocm-smi --showpids", "xpu": "xpu-smi ps", "npu": "npu-smi info"}


def evidence(message: AllocatorMessage) -> tuple[Evidence, ...]:
    """Every size that the message gives, as printed."""
    return tuple(
        Evidence(words, str(size))
        for name, words in _NAMES.items()
        if (size := getattr(message, name)) is not None and message.mib(name) is not None
    )


def device(message: AllocatorMessage) -> str:
    """The card as the message numbers it."""
    return "the card" if message.gpu_index is None else f"GPU {message.gpu_index}"


def process_lister(message: AllocatorMessage) -> str:
    """The command that lists the processes on this kind of card."""
    return _TOOLS.get(message.backend, "the vendor's monitoring tool")
