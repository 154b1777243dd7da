"""How is a large NVIDIA card made to behave as a small one? Its process is told how much it may take."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib.errors import CourseError
from course_lib.units import format_bytes, parse_bytes


@contextmanager
def small_card(memory: int | str, device: int = 0) -> Iterator[None]:
    """Within it, PyTorch may take `memory` ("2 GiB", or bytes) of the card, and runs out of memory beyond.

    The limit is real (`torch.cuda.set_per_process_memory_fraction`), and counts what this process's caching
    allocator takes; the CUDA context is not part of it. Afterwards the whole card may be used again.

    Raises CourseError where there is no NVIDIA or AMD card, and for more memory than it has.
    """
    size = parse_bytes(memory) if isinstance(memory, str) else int(memory)
    if not torch.cuda.is_available():
        raise CourseError(
            "There is no NVIDIA or AMD card here to limit: "
            "course_lib.train.limits.run_limited limits a child on the CPU."
        )
    total = torch.cuda.get_device_properties(device).total_memory
    if not 0 < size <= total:
        raise CourseError(
            f"A card of {format_bytes(total)} cannot be limited to {format_bytes(size)}: give less, above 0."
        )
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(size / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
