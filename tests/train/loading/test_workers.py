"""An interrupt may come at any moment, also in the middle of a worker's start."""

import multiprocessing
import multiprocessing.context
import signal

import pytest
import torch.utils.data
from loading_data_sets import Sleeping, StuckInWorkers
from torch.utils.data import DataLoader

from course_lib.train.loading.workers import interrupt_waits, open_iterator


class InterruptedStart(multiprocessing.context.SpawnProcess):
    """The interrupt comes when the process runs and the loader has not noted it yet."""

    def start(self) -> None:
        super().start()
        signal.raise_signal(signal.SIGINT)


class InterruptedContext(multiprocessing.context.SpawnContext):
    Process = InterruptedStart


def test_an_interrupt_between_the_start_of_a_worker_and_its_note_leaves_nobody() -> None:
    loader = DataLoader(Sleeping(), batch_size=4, num_workers=1, multiprocessing_context=InterruptedContext())
    with pytest.raises(KeyboardInterrupt), open_iterator(loader):
        pytest.fail("the interrupt was lost")
    assert multiprocessing.active_children() == []


def test_stuck_workers_are_ended_together_and_not_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch gives each worker its own time to end, here an hour."""
    monkeypatch.setattr("course_lib.train.loading.workers.GRACE_S", 1.0)
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 3600.0)
    with open_iterator(DataLoader(StuckInWorkers(), batch_size=4, num_workers=2)):
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_the_second_interrupt_acts_at_once_and_the_handler_comes_back() -> None:
    usual = signal.getsignal(signal.SIGINT)
    reached = []

    def interrupted_twice() -> None:
        with interrupt_waits():
            signal.raise_signal(signal.SIGINT)
            reached.append("after the first")
            signal.raise_signal(signal.SIGINT)
            reached.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert reached == ["after the first"]
    assert signal.getsignal(signal.SIGINT) is usual
