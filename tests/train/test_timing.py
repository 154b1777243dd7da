import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

from course_lib.errors import CourseError
from course_lib.train.loop import train
from course_lib.train.split import PHASES, Phase, StepSplit
from course_lib.train.timing import StepTimer

STEPS, WARMUP = 6, 1
DELAY_S = 0.03


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))


@dataclass
class Injector:
    """Waits in one phase, and keeps by its own clock how long it really waited."""

    phase: Phase
    wait: Callable[[float], None]
    waited: list[float] = field(default_factory=list)

    def __call__(self, phase: Phase) -> None:
        if phase == self.phase:
            begin = time.perf_counter()
            self.wait(DELAY_S)
            self.waited.append(time.perf_counter() - begin)


class SlowBatch(Tensor):
    """A batch that takes time to move."""

    inject: Injector

    def to(self, *args: Any, **settings: Any) -> Tensor:
        self.inject("transfer")
        return self.as_subclass(Tensor).to(*args, **settings)


class SlowData(Dataset[tuple[Tensor, int]]):
    def __init__(self, inject: Injector) -> None:
        self.inject = inject

    def __len__(self) -> int:
        return 2 * (STEPS + WARMUP)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index % 2:  # once a batch of two
            self.inject("data")
        return torch.ones(4), index % 3


class SlowModel(nn.Linear):
    def __init__(self, inject: Injector) -> None:
        super().__init__(4, 3)
        self.inject = inject

    def forward(self, inputs: Tensor) -> Tensor:
        self.inject("forward")
        outputs = super().forward(inputs)
        outputs.register_hook(lambda gradient: self.inject("backward"))
        return outputs


class SlowSGD(SGD):
    inject: Injector

    def step(self, closure: Any = None) -> Any:
        self.inject("optimizer")
        return super().step(closure)


def slow_run(inject: Injector) -> StepSplit:
    def collate(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        images = torch.stack([image for image, _ in items]).as_subclass(SlowBatch)
        images.inject = inject
        return images, torch.tensor([label for _, label in items])

    model = SlowModel(inject)
    optimizer = SlowSGD(model.parameters(), lr=0.1)
    optimizer.inject = inject
    timer = StepTimer(warmup=WARMUP)
    loader = DataLoader(SlowData(inject), batch_size=2, collate_fn=collate)
    train(
        model,
        loader,
        optimizer,
        epochs=1,
        timer=timer,
        callback=lambda progress: inject("rest"),
        callback_every=1,
        progress=False,
    )
    return timer.split()


@pytest.mark.parametrize("wait", [sleep, compute])
@pytest.mark.parametrize("phase", PHASES)
def test_a_delay_is_found_in_its_phase_and_nowhere_else(phase: Phase, wait: Callable[[float], None]) -> None:
    for _ in range(20):  # other work on the machine can take the processor in any phase: look again
        inject = Injector(phase, wait)
        split = slow_run(inject)
        whole = split.step.mean_s * split.steps
        injected = sum(inject.waited[WARMUP : WARMUP + STEPS]) / whole
        # Whatever else happened: the phase holds at least the delay, and the others none of it.
        assert split.steps == STEPS
        assert split.shares[phase] >= injected - 1e-3
        assert sum(share for name, share in split.shares.items() if name != phase) <= 1 - injected + 1e-3
        if injected > 0.96:
            break
    assert split.dominant == phase
    assert split.shares[phase] == pytest.approx(injected, abs=0.05)
    assert all(share < 0.05 for name, share in split.shares.items() if name != phase)
    assert split.samples == 2 * STEPS


class Card:
    """An emulated GPU: a queue that works on its own while the program goes on, on one virtual clock."""

    method = "emulated card"

    def __init__(self) -> None:
        self.now = 0.0  # the program's time
        self.free_at = 0.0  # when the queue will be empty
        self.busy = 0.0
        self.alive: set[int] = set()
        self.marks: list[float] = []

    def host(self, seconds: float) -> None:
        self.now += seconds

    def queue(self, seconds: float) -> None:
        self.free_at = max(self.now, self.free_at) + seconds
        self.busy += seconds

    def mark(self) -> int:
        self.marks.append(max(self.now, self.free_at))
        self.alive.add(len(self.marks) - 1)
        return len(self.marks) - 1

    def reached(self, mark: int) -> bool:
        return self.marks[mark] <= self.now

    def seconds(self, earlier: int, later: int) -> float:
        assert {earlier, later} <= self.alive, "a mark was taken back while it was still needed"
        assert self.reached(later), "a time was read before the card was there"
        return self.marks[later] - self.marks[earlier]

    def reuse(self, mark: int) -> None:
        self.alive.remove(mark)

    def wait(self) -> None:
        self.now = max(self.now, self.free_at)


def run_on(card: Card, loading: float, forward: float, backward: float, steps: int) -> StepSplit:
    def loader() -> Iterator[Tensor]:
        for _ in range(steps):
            card.host(loading)
            yield torch.zeros(8)

    timer = StepTimer(warmup=2, clock=card)
    for _ in timer.batches(loader()):
        for name, seconds in (("forward", forward), ("backward", backward)):
            with timer.phase(name):
                card.host(0.001)
                card.queue(seconds)
    return timer.split()


def test_on_a_card_a_wait_that_is_hidden_behind_its_work_is_no_wait() -> None:
    split = run_on(Card(), loading=0.020, forward=0.010, backward=0.030, steps=30)
    assert split.shares["data"] == pytest.approx(0, abs=1e-6)
    assert split.seconds["forward"] == pytest.approx(0.010)
    assert split.seconds["backward"] == pytest.approx(0.030)
    assert split.step.mean_s == pytest.approx(0.040)


def test_on_a_card_data_is_the_time_for_which_it_stood_still() -> None:
    split = run_on(Card(), loading=0.098, forward=0.010, backward=0.030, steps=30)
    # A step takes the program 98 + 1 + 1 ms. The card works 40 of them, and starts 1 ms into "forward".
    assert split.step.mean_s == pytest.approx(0.100)
    assert split.seconds["forward"] == pytest.approx(0.011)
    assert split.seconds["backward"] == pytest.approx(0.030)
    assert split.seconds["data"] == pytest.approx(0.100 - 0.041)
    assert split.samples_per_second == pytest.approx(80)


@given(st.lists(st.floats(1e-4, 0.1), min_size=3, max_size=3), st.integers(3, 12))
def test_on_a_card_the_phases_add_up_to_the_slower_of_program_and_card(
    times: list[float], steps: int
) -> None:
    card = Card()
    split = run_on(card, *times, steps=steps)
    loading, forward, backward = times
    assert split.steps == steps - 2
    slower = max(loading + 0.002, forward + backward)
    assert split.step.mean_s <= slower + 0.002
    assert split.step.mean_s >= forward + backward - 1e-9
    assert split.seconds["backward"] >= backward - 1e-9
    assert len(card.alive) <= 1  # every mark was taken back but the last


def test_a_phase_inside_another_interrupts_it() -> None:
    clock = Card()
    timer = StepTimer(warmup=0, clock=clock)
    for _ in timer.batches([1]):
        with timer.phase("forward"):
            clock.host(1)
            with timer.phase("transfer"):
                clock.host(5)
            clock.host(2)
        clock.host(7)
    split = timer.split()
    assert split.seconds == {"data": 0, "transfer": 5, "forward": 3, "backward": 0, "optimizer": 0, "rest": 7}
    assert split.samples_per_second is None  # a number is no batch


def count(timer: StepTimer) -> int:
    return timer.split().steps


def test_a_step_left_by_break_does_not_count() -> None:
    timer = StepTimer(warmup=0)
    for number in timer.batches(range(10)):
        if number == 4:
            break
    assert count(timer) == 4


def test_a_loader_that_raises_keeps_the_steps_before() -> None:
    def loader() -> Iterator[int]:
        yield from range(3)
        raise OSError("gone")

    timer = StepTimer(warmup=0)
    with pytest.raises(OSError, match="gone"):
        for _ in timer.batches(loader()):
            pass
    assert count(timer) == 3


def test_a_step_that_raises_does_not_count_and_the_timer_goes_on() -> None:
    timer = StepTimer(warmup=0)
    kept = timer.batches(range(5))  # a notebook keeps the generator of a failed cell alive

    def fail_at_the_fourth() -> None:
        for number in kept:
            with timer.phase("forward"):
                1 / (3 - number)

    with pytest.raises(ZeroDivisionError):
        fail_at_the_fourth()
    for _ in timer.batches(range(2)):
        with timer.phase("backward"):
            pass
    kept.close()
    assert count(timer) == 5


def test_epochs_of_one_step_and_many_passes() -> None:
    timer = StepTimer(warmup=1)
    for _ in range(4):
        for _ in timer.batches([torch.zeros(3, 2)]):
            pass
    split = timer.split()
    assert (split.steps, split.samples, split.warmup) == (3, 9, 1)


def test_two_loops_over_one_timer_at_once_are_refused() -> None:
    timer = StepTimer()
    with pytest.raises(CourseError, match="own"):
        for _ in zip(timer.batches(range(5)), timer.batches(range(5)), strict=True):
            pass


@pytest.mark.parametrize(
    ("steps", "said"), [(0, "No complete step"), (1, "1 complete step was"), (3, "3 comp")]
)
def test_no_step_after_the_warm_up_is_said(steps: int, said: str) -> None:
    timer = StepTimer(warmup=3)
    for _ in timer.batches(range(steps)):
        pass
    with pytest.raises(CourseError, match=said):
        timer.split()


def test_what_cannot_be_timed_is_said() -> None:
    wrong: Any = "loading"
    with pytest.raises(CourseError, match="data, transfer, forward"):
        StepTimer().phase(wrong)
    with pytest.raises(CourseError, match="cpu, cuda or mps"):
        StepTimer("meta")
    with pytest.raises(CourseError, match="warm-up"):
        StepTimer(warmup=-1)


def test_outside_a_loop_a_phase_measures_nothing() -> None:
    clock = Card()
    timer = StepTimer(warmup=0, clock=clock)
    with timer.phase("forward"):
        clock.host(1)
    for _ in timer.batches(range(2)):
        pass
    with timer.phase("forward"):
        clock.host(1)
    assert timer.split().seconds["forward"] == 0
