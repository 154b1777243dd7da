"""How long does one call take on a device, until the device has really done it?"""

import time
from collections.abc import Callable

import torch


def timed_call(call: Callable[[], object], device: torch.device) -> float:
    """Seconds from an idle device until the work of `call` is done there."""
    wait_for(device)
    begin = time.perf_counter()
    call()
    wait_for(device)
    return time.perf_counter() - begin


def wait_for(device: torch.device) -> None:
    """Return when all that was queued on the device is done; on the processor it always is."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
