"""How fast is a matrix product in each number format on this device?

A format that a processor has no circuits for can be hundreds of times slower than float32. So the matrices
start small and grow only while the next size will stay within the budget; each format is compared with
float32 at the size that it reached, in turns, so that other work on the machine slows both alike.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache

import torch

from course_lib.errors import CourseError
from course_lib.train.device_time import timed_call
from course_lib.train.number_formats.float32_products import float32_products
from course_lib.train.number_formats.float_formats import FLOAT_FORMATS, Format

BUDGET_S = 0.2  # for each format
ROUNDS = 5
MOST_ROUNDS = 500
_SIZES = {"cpu": (64, 128, 256, 512, 1024), "mps": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192)}
_FORMATS: dict[str, tuple[Format, ...]] = {"cuda": ("tf32", "bf16", "fp16")}


def matmul_speedups(device: str | torch.device) -> dict[Format, float]:
    """How many times as fast as in fp32 a matrix product is in each other format that this device has.

    The fastest of some rounds counts, for both. Measured once a process, for each device and number of
    threads; takes about a second. Raises CourseError when the device is not here.
    """
    device = torch.device(device)
    if not _is_here(device):
        raise CourseError(
            f"There is no {device.type} device here to measure: give the speed-ups of the card you mean, "
            'as in choose("cuda", {"fp16": 4.0, "bf16": 0.5}).'
        )
    return dict(_measured(device, torch.get_num_threads()))


@lru_cache(maxsize=16)
def _measured(device: torch.device, threads: int) -> tuple[tuple[Format, float], ...]:
    """`threads` is part of the question: the answer depends on it."""
    formats = _FORMATS.get(device.type, ("bf16", "fp16"))
    return tuple((name, _speedup(device, name)) for name in formats)


def _speedup(device: torch.device, name: Format) -> float:
    for size in _SIZES[device.type]:
        own, plain = _product(device, name, size), _product(device, "fp32", size)
        timed_call(own, device), timed_call(plain, device)  # the first call chooses and compiles
        once = max(timed_call(own, device), timed_call(plain, device))
        if 8 * once * 2 * ROUNDS > BUDGET_S:  # twice the size is eight times the work
            break
    rounds = [(timed_call(own, device), timed_call(plain, device)) for _ in range(ROUNDS)]
    # Small products on a busy machine may all be interrupted: go on until the time is used up.
    while sum(map(sum, rounds)) < BUDGET_S and len(rounds) < MOST_ROUNDS:
        rounds.append((timed_call(own, device), timed_call(plain, device)))
    return min(plain_s for _, plain_s in rounds) / min(own_s for own_s, _ in rounds)


def _product(device: torch.device, name: Format, size: int) -> Callable[[], object]:
    dtype = FLOAT_FORMATS[name].dtype
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    how = "tf32" if name == "tf32" else "ieee"

    def multiply() -> object:
        with float32_products(how) if device.type == "cuda" else nullcontext():  # type: ignore[arg-type]
            return left @ right

    return multiply


def _is_here(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_available()
    return device.type == "cpu" or (device.type == "mps" and torch.backends.mps.is_available())
