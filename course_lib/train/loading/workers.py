"""How are a loader's workers let go, and how much memory does each of them take?

`open_iterator` starts a pass over a loader and ends its workers with the block, whatever happens in it: an
exception, a `break` or an interrupt. Workers that do not end within a few seconds, all together, are killed.

An interrupt that comes while the workers are being started or ended waits until that is done: raised between
the start of a process and the line that notes it, it would leave a worker that nobody knows and nobody ends.
"""

import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil

GRACE_S = 3.0


@contextmanager
def open_iterator(loader: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """A pass over the loader. At the end of the block its workers have ended, persistent ones too."""
    iterator: Iterator[Any] | None = None
    try:
        with warnings.catch_warnings(), interrupt_waits():
            # More workers than cores may be wanted, where they wait for storage.
            warnings.filterwarnings("ignore", "This DataLoader will create")
            iterator = iter(loader)
        yield iterator
    finally:
        if iterator is not None:
            with interrupt_waits():
                end_workers(iterator)
            if getattr(loader, "_iterator", None) is iterator:
                loader._iterator = None  # type: ignore[attr-defined]  # else persistent workers keep it


@contextmanager
def interrupt_waits() -> Iterator[None]:
    """Hold Ctrl-C, or the stop button of a notebook, back to the end of the block. A second one acts at once.

    Only the main thread hears an interrupt: in any other one this changes nothing.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            usual(number, frame)
        asked = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if asked:
            usual(signal.SIGINT, None)  # at once: a signal raised anew may end in a callback that drops it


class Epochs:
    """Passes over a loader, one after the other: `next_epoch` begins one.

    With persistent workers a new epoch goes on with the workers of the one before. At the end of the `with`
    block all workers have ended.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        self._open: Any = None
        self._iterator: Iterator[Any] = iter(())

    def __enter__(self) -> "Epochs":
        return self

    def next_epoch(self) -> Iterator[Any]:
        """Begin the next pass."""
        if self._open is not None and not getattr(self._loader, "persistent_workers", False):
            self._close()
        if self._open is None:
            self._open = open_iterator(self._loader)
            self._iterator = self._open.__enter__()
        else:
            self._iterator = iter(self._loader)
        return self._iterator

    def batches(self) -> Iterator[Any]:
        """The batches of one epoch after the other, without end; none from a loader that has none."""
        while True:
            empty = True
            for batch in self.next_epoch():
                empty = False
                yield batch
            if empty:
                return

    def pids(self) -> list[int]:
        """The process ids of the workers now."""
        return worker_pids(self._iterator)

    def _close(self, *raised: Any) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            opened.__exit__(*(raised or (None, None, None)))

    def __exit__(self, *raised: object) -> None:
        self._close()


def worker_pids(iterator: Iterator[Any]) -> list[int]:
    """The process ids of a `DataLoader` iterator's workers; none for other iterators."""
    return [worker.pid for worker in getattr(iterator, "_workers", ()) if worker.pid is not None]


def end_workers(iterator: Iterator[Any]) -> None:
    """End the workers of a `DataLoader` iterator, and wait for their end: `GRACE_S` for all of them together.

    PyTorch itself waits for one worker after the other, which takes 5 s for each that is stuck. So it does
    that in a thread, and whoever is still alive after the common time is killed.
    """
    processes = []
    for pid in worker_pids(iterator):
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    shut_down = getattr(iterator, "_shutdown_workers", None)  # what the iterator's own __del__ calls
    if shut_down is None:
        return

    def close() -> None:
        with suppress(Exception):  # whether the workers are gone is looked at below
            shut_down()

    closing = threading.Thread(target=close, name="end of the workers", daemon=True)
    closing.start()
    try:
        closing.join(GRACE_S)
    finally:
        if closing.is_alive():
            _forget_workers(iterator)
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        closing.join(GRACE_S)  # before the next line, which takes the ends of processes from PyTorch
        _, alive = psutil.wait_procs(processes, timeout=GRACE_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=GRACE_S)


def _forget_workers(iterator: Any) -> None:
    """Keep PyTorch from taking the end of these workers for a failure: it would raise that anywhere."""
    from torch import _C  # its own record, from which the end of a worker is told as an error

    if getattr(iterator, "_worker_pids_set", False):
        iterator._worker_pids_set = False
        with suppress(ValueError):  # it forgot them itself just now
            _C._remove_worker_pids(id(iterator))


def private_bytes(pids: Iterable[int]) -> int | None:
    """The most memory that one of these processes has for itself, in bytes: what ending it would free.

    None when the system tells it for none of them.
    """
    found = []
    for pid in pids:
        with suppress(psutil.Error, NotImplementedError):
            found.append(int(psutil.Process(pid).memory_full_info().uss))
    return max(found, default=None)
