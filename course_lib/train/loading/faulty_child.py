"""Loaders that go wrong, each for real, in a process of its own.

    python -c "from course_lib.train.loading.faulty_child import run; run('stuck_worker')"

A function here breaks one thing and lets PyTorch say what it says. Where nothing is said, because the fault
is silent, it prints what came out. `faults` runs this in a child and explains what it hears.
"""

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

NOT_HERE = "cannot be provoked here: "
SAMPLES = 64


class Numbers(Dataset[Tensor]):
    """Sample i is the number i."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index)])


class MemoryHog(Numbers):
    """Takes 64 MiB more with each sample and keeps them."""

    TAKES = 2**26

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def __getitem__(self, index: int) -> Tensor:
        self.kept.append(torch.ones(self.TAKES // 4))
        return super().__getitem__(index)


class KilledFrom(Numbers):
    """The system ends the worker at its first sample, as it does when memory is short.

    Not at a later one: the loader might then find the connection broken over which it fetches an earlier
    batch, and not hear why. And not at once: it listens for the end of its workers once all are started.
    """

    def __getitem__(self, index: int) -> Tensor:
        if index == 0:
            time.sleep(0.5)
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return super().__getitem__(index)


class LargeSamples(Numbers):
    """A sample of 8 MiB."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(2**21)


class UnevenSamples(Numbers):
    """Samples of different lengths."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(index % 3 + 1)


class Stuck(Numbers):
    """A sample that never comes, as from a server that does not answer."""

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(3600)
        return super().__getitem__(index)


class BrokenSample(Numbers):
    """One sample of many cannot be read."""

    def __getitem__(self, index: int) -> Tensor:
        if index == SAMPLES // 2:
            raise FileNotFoundError(2, "No such file or directory", "photographs/00032.jpg")
        return super().__getitem__(index)


class OwnRandomness(Numbers):
    """Augments with a generator that it brought along, instead of torch's own."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([self.random.uniform()])


class UnsharedStream(IterableDataset[Tensor]):
    """A stream that does not look which worker it is in."""

    def __iter__(self) -> Iterator[Tensor]:
        for index in range(SAMPLES):
            yield torch.tensor([float(index)])


class OneOpenFile(Dataset[Tensor]):
    """Samples of eight bytes, all equal, read from a file that was opened before the workers were forked."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"".join(bytes([index]) * 8 for index in range(SAMPLES)))
        self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self.file.seek(8 * index)
        time.sleep(0.001)  # the other worker moves the place in the file, which belongs to both
        return torch.tensor([index, *self.file.read(8).ljust(8)])


def lambda_under_spawn() -> None:
    """A lambda cannot be sent to a worker that starts anew."""
    loader = DataLoader(
        Numbers(), 8, num_workers=2, multiprocessing_context="spawn", collate_fn=lambda samples: samples
    )
    next(iter(loader))


def class_of_a_notebook() -> None:
    """A class that was written in a notebook is not there in a worker that starts anew."""
    here: Any = sys.modules["__main__"]  # of `python -c`: like a notebook, no module with a file
    here.MyDataset = type("MyDataset", (Numbers,), {"__module__": "__main__"})
    # No timeout: with one, a loader that misses the signal of a worker's end waits all of it; without, it
    # looks every few seconds whether its workers live.
    next(iter(DataLoader(here.MyDataset(), 8, num_workers=1, multiprocessing_context="spawn")))


def no_main_guard() -> None:
    """A script that starts workers without asking whether it is the main module starts itself again."""
    script = Path(tempfile.mkdtemp()) / "train.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "from course_lib.train.loading.faulty_child import Numbers\n"
        'for batch in DataLoader(Numbers(), 8, num_workers=1, multiprocessing_context="spawn"):\n'
        "    pass\n",
        encoding="utf-8",
    )
    os.execv(sys.executable, [sys.executable, str(script)])


def killed_worker() -> None:
    """The system ends a worker."""
    for _ in DataLoader(KilledFrom(), 8, num_workers=2):
        pass


def out_of_memory() -> None:
    """A worker asks for more memory than it may have."""
    if sys.platform != "linux":
        print(NOT_HERE + "this system does not hold a limit on a process's memory")
        return
    import resource

    def limit(worker_id: int) -> None:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
        # Three samples and a half: what is left then must hold the thread that sends the error back.
        most = used + 7 * MemoryHog.TAKES // 2
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    for _ in DataLoader(MemoryHog(), 8, num_workers=1, worker_init_fn=limit, multiprocessing_context="fork"):
        pass


def small_shared_memory() -> None:
    """/dev/shm is smaller than a batch, as Docker makes it."""
    if not _small_shared_memory(2**24):
        print(NOT_HERE + "it takes Linux and the right to mount a small /dev/shm")
        return
    for _ in DataLoader(LargeSamples(), 8, num_workers=1):
        pass


def too_many_open_files() -> None:
    """Batches that are kept keep a file of shared memory open each."""
    if sys.platform == "win32":
        print(NOT_HERE + "this system has no such limit")
        return
    import resource

    most = len(list(Path("/dev/fd").iterdir())) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kept = list(DataLoader(Numbers(), 1, num_workers=1))
    print(f"{len(kept)} batches came: {NOT_HERE}this system shares memory without open files")


def same_augmentations() -> None:
    """Each worker has a copy of the same generator, and so the same randomness. Nothing is reported."""
    batches = list(DataLoader(OwnRandomness(), 8, num_workers=2))
    values = [round(value, 3) for value in torch.cat(batches).flatten().tolist()]
    print(f"{len(values)} samples, {len(set(values))} different random numbers")
    print(f"batch 0, of worker 0: {values[:4]} ...")
    print(f"batch 1, of worker 1: {values[8:12]} ...")


def repeated_samples() -> None:
    """Each worker goes through the whole stream. Nothing is reported."""
    values = torch.cat(list(DataLoader(UnsharedStream(), 8, num_workers=2))).flatten()
    print(f"{len(values)} samples in an epoch of {SAMPLES}: each came {len(values) // SAMPLES} times")


def shared_file() -> None:
    """Two forked workers move the place in one open file. Nothing is reported."""
    if "fork" not in torch.multiprocessing.get_all_start_methods():
        print(NOT_HERE + "this system forks no workers")
        return
    with tempfile.TemporaryDirectory() as folder:
        dataset = OneOpenFile(Path(folder) / "samples.bin")
        loader = DataLoader(dataset, 4, num_workers=2, multiprocessing_context="fork")
        rows = torch.cat(list(loader))
        wrong = int((rows[:, 1:] != rows[:, :1]).any(dim=1).sum())
        dataset.file.close()
    print(f"{wrong} of {len(rows)} samples hold the bytes of another one")


def different_sizes() -> None:
    """Samples of different lengths do not stack."""
    for _ in DataLoader(UnevenSamples(), 8, num_workers=2):
        pass


def stuck_worker() -> None:
    """A sample never comes; only with a timeout does the loader say so."""
    for _ in DataLoader(Stuck(), 8, num_workers=1, timeout=1):
        pass


def broken_sample() -> None:
    """A sample raises an error in a worker."""
    for _ in DataLoader(BrokenSample(), 8, num_workers=2):
        pass


KINDS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        lambda_under_spawn,
        class_of_a_notebook,
        no_main_guard,
        killed_worker,
        out_of_memory,
        small_shared_memory,
        too_many_open_files,
        same_augmentations,
        repeated_samples,
        shared_file,
        different_sizes,
        stuck_worker,
        broken_sample,
    )
}


def run(kind: str) -> None:
    """Let this kind of fault happen in this process."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        KINDS[kind]()
    except Exception:  # told now: while Python ends, an error of a worker may get lost
        traceback.print_exc()
        sys.stderr.flush()
        sys.exit(1)


def _small_shared_memory(size: int) -> bool:
    """Give this process a /dev/shm of its own, of `size` bytes; False where that is not allowed."""
    if sys.platform != "linux":
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_mount, private, recursive = 0x10000000, 0x00020000, 1 << 18, 1 << 14
    # Root needs no user namespace; others may make mounts only in one of their own.
    if libc.unshare(new_mount) and libc.unshare(new_user | new_mount):
        return False
    if libc.mount(b"none", b"/", None, recursive | private, None):
        return False
    return bool(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={size}".encode()) == 0)
