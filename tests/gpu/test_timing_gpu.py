"""The step timer on a real card: delays are kernels that spin, injected into each phase."""

import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from course_lib.models.zoo import DigitsCNN
from course_lib.train.data import Digits
from course_lib.train.loop import measure_split, train
from course_lib.train.split import PHASES, Phase, StepSplit
from course_lib.train.timing import StepTimer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card"),
]

STEPS, WARMUP = 8, 3
DELAY_S = 0.02


@pytest.fixture(scope="module")
def spin() -> Callable[[float], None]:
    """Queue a kernel that keeps the card busy for so many seconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cycles = 50_000_000
    for _ in range(3):
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        torch.cuda.synchronize()
    per_second = cycles / (begin.elapsed_time(end) / 1e3)
    return lambda seconds: torch.cuda._sleep(int(seconds * per_second))


class Moving:
    """Inputs whose way to the card takes time."""

    def __init__(self, inject: Callable[[Phase], None]) -> None:
        self.inject = inject
        self.shape = (2,)

    def to(self, device: torch.device) -> Tensor:
        self.inject("transfer")
        return torch.ones(2, 4, device=device)


def split_with(inject: Callable[[Phase], None]) -> StepSplit:
    class Model(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            inject("forward")
            outputs = super().forward(inputs)
            outputs.register_hook(lambda gradient: inject("backward"))
            return outputs

    class Optimizer(SGD):
        def step(self, closure: object = None) -> None:
            inject("optimizer")
            super().step()

    def loader() -> Iterator[tuple[Moving, Tensor]]:
        for _ in range(WARMUP + STEPS):
            inject("data")
            yield Moving(inject), torch.zeros(2, dtype=torch.int64)

    model = Model(4, 3).cuda()
    timer = StepTimer("cuda", warmup=WARMUP)
    train(
        model, loader(), Optimizer(model.parameters(), lr=0.1), epochs=1, timer=timer,
        callback=lambda progress: inject("rest"), callback_every=1, progress=False,
    )  # fmt: skip
    return timer.split()


@pytest.mark.parametrize("phase", PHASES)
def test_a_delay_on_the_card_is_found_in_its_phase(phase: Phase, spin: Callable[[float], None]) -> None:
    def inject(place: Phase) -> None:
        if place == phase:
            time.sleep(DELAY_S) if phase == "data" else spin(DELAY_S)

    split = split_with(inject)
    assert split.method == "CUDA events"
    assert split.dominant == phase
    assert split.shares[phase] > 0.95
    assert split.phases[phase].median_s == pytest.approx(DELAY_S, rel=0.1)


def test_loading_that_hides_behind_the_card_is_no_wait(spin: Callable[[float], None]) -> None:
    timer = StepTimer("cuda", warmup=WARMUP)

    def loader() -> Iterator[int]:
        for number in range(WARMUP + STEPS):
            time.sleep(DELAY_S / 4)
            yield number

    for _ in timer.batches(loader()):
        with timer.phase("forward"):
            spin(DELAY_S)
    split = timer.split()
    assert split.shares["data"] < 0.05
    assert split.seconds["forward"] == pytest.approx(DELAY_S, rel=0.1)


def test_the_timer_does_not_wait_for_the_card(spin: Callable[[float], None]) -> None:
    timer = StepTimer("cuda", warmup=0)
    begin = time.perf_counter()
    for _ in timer.batches(range(20)):
        with timer.phase("forward"):
            spin(DELAY_S)
    queued = time.perf_counter() - begin
    assert timer.split().step.mean_s * 20 > 10 * queued


def test_a_real_step_on_the_card_adds_up() -> None:
    loader = torch.utils.data.DataLoader(Digits("train"), 64, pin_memory=True)
    split = measure_split(loader, DigitsCNN(), steps=30, device="cuda")
    assert (split.steps, split.device) == (30, "cuda:0")
    assert sum(split.shares.values()) == pytest.approx(1)
    assert all(split.seconds[phase] > 0 for phase in ("transfer", "forward", "backward", "optimizer"))
