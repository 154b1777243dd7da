import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.train.limits import run_limited
from course_lib.train.limits.counted_budget import CountedBudget
from course_lib.train.rescue import find_batch_size, longest_batch
from course_lib.train.rescue.batch_size_result import BatchSizeSearch
from course_lib.train.step import TrainingStep

MIB = 2**20


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """The search collects garbage before each trial; what the imports made need not be looked at."""
    gc.freeze()
    yield
    gc.unfreeze()


class Card:
    """A device whose steps take `needs(batch_size)` bytes out of `capacity`, and the meter that reads it."""

    name = "card"
    gaps = 0.0

    def __init__(
        self, needs: Callable[[int], float], capacity: float, error: Exception | None = None
    ) -> None:
        self.needs = needs
        self.capacity = capacity
        self.error = error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.calls: list[int] = []
        self.idle = 0
        self.highest = 0

    def step(self, batch_size: int) -> None:
        self.calls.append(batch_size)
        if self.needs(batch_size) > self.capacity:
            raise self.error
        self.highest = max(self.highest, int(self.needs(batch_size)))

    def begin(self) -> int:
        self.highest = self.idle
        return self.idle

    def peak(self) -> int:
        return self.highest

    def limit(self) -> int | None:
        return int(self.capacity)

    def find(self, **settings: object) -> BatchSizeSearch:
        return find_batch_size(self.step, meter=self, **settings)


def test_two_probes_a_line_and_one_confirmation() -> None:
    card = Card(lambda size: 2000 * MIB + 90 * MIB * size, 40_000 * MIB)
    card.idle = 1500 * MIB
    found = card.find()
    assert (len(found.trials), found.ooms) == (3, 0)
    assert found.batch_size >= 0.97 * 422
    assert found.bytes_per_sample == pytest.approx(90 * MIB, rel=1e-6)
    assert found.fixed_bytes == pytest.approx(2000 * MIB, rel=1e-3)
    assert found.trials[2].predicted_bytes == pytest.approx(found.trials[2].peak_bytes, rel=1e-6)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 17, 1000])
def test_a_memory_that_cannot_be_read_is_searched_by_doubling(most: int) -> None:
    card = Card(lambda size: 1.0 if size <= most else 3.0, 2.0)
    found = card.find()
    assert most * 0.95 - 1 < found.batch_size <= most
    assert found.bytes_per_sample is None


def test_each_trial_makes_two_steps_or_more() -> None:
    card = Card(lambda size: size, 100)
    found = card.find()
    assert card.calls == [trial.batch_size for trial in found.trials for _ in range(2)]
    with pytest.raises(CourseError, match="2 steps or more"):
        card.find(steps=1)


def test_it_never_ends_at_nothing() -> None:
    card = Card(lambda size: 10.0, 5)
    with pytest.raises(CourseError, match=r"Not even one sample fits into 5 B .*mixed precision, checkpoint"):
        card.find(start=4)
    assert sorted(set(card.calls)) == [1, 2, 4]
    with pytest.raises(CourseError, match="Not even one batch of 8"):
        Card(lambda size: size, 7).find(multiple_of=8)


def test_a_cap_ends_the_search() -> None:
    found = Card(lambda size: size, 10**9).find(largest=100, multiple_of=8)
    assert found.batch_size == 96
    assert found.capped
    assert "stopped by largest=100" in str(found)
    assert not Card(lambda size: size, 90).find(largest=100).capped
    with pytest.raises(CourseError, match="No multiple of 8 is at most 7"):
        Card(lambda size: size, 10).find(largest=7, multiple_of=8)
    for wrong in ("start", "largest", "multiple_of"):
        with pytest.raises(CourseError, match=f"{wrong} must be 1 or more"):
            Card(lambda size: size, 10).find(**{wrong: 0})


def test_what_the_system_let_pass_is_counted_too() -> None:
    """Some drivers move what does not fit into the computer's memory: slow, and no error."""
    card = Card(lambda size: 10 * MIB * size, 10**15)
    found = card.find(budget="1000 MiB", start=128)
    assert found.batch_size <= 100
    assert found.ooms == 1
    assert "more than 1000 MiB" in str(found.trials[0].failure)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
        RuntimeError("MPS backend out of memory (MPS allocated: 5.1 GB)"),
        RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("XPU out of memory, please use `empty_cache`"),
        RuntimeError("NCCL Error 1: unhandled cuda error. Cuda failure 'out of memory'"),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=lambda error: str(error)[:30],
)
def test_every_wording_is_rescued(error: Exception) -> None:
    card = Card(lambda size: 100 * size if size < 60 else 10**9, 100 * 200, error)
    found = card.find()
    assert 50 <= found.batch_size < 60
    assert found.ooms >= 1


@pytest.mark.parametrize(
    "error", [ValueError("shape"), RuntimeError("mat1 and mat2 shapes cannot be multiplied")]
)
def test_other_errors_pass_through(error: Exception) -> None:
    card = Card(lambda size: 10.0, 5, error)
    with pytest.raises(type(error), match=str(error)):
        card.find()


def test_the_tensors_of_a_failed_step_are_gone_before_the_next() -> None:
    """Also where somebody keeps the exception, as a notebook does, and where frames form a cycle."""
    kept: list[Exception] = []
    ghosts: list[weakref.ref[Tensor]] = []
    first_steps: list[int] = []
    tried: list[int] = []

    def step(batch_size: int) -> None:
        if batch_size not in tried:
            first_steps.append(sum(ghost() is not None for ghost in ghosts))
        tried.append(batch_size)
        activations = torch.ones(batch_size)
        ghosts.append(weakref.ref(activations))
        cycle: list[object] = [activations]
        cycle.append(cycle)
        if batch_size > 30:
            error = torch.OutOfMemoryError("CUDA out of memory.")
            kept.append(error)
            raise error

    card = Card(lambda size: 1.0, 10**6)
    find_batch_size(step, meter=card)
    assert len(kept) >= 2
    # Before a trial's first step nothing is alive; before its second, its first one's cycle may be.
    assert first_steps
    assert all(alive == 0 for alive in first_steps)


def test_the_last_traceback_of_a_notebook_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        held = torch.ones(10)
        ghosts.append(weakref.ref(held))
        raise RuntimeError

    ghosts: list[weakref.ref[Tensor]] = []
    try:
        fails()
    except RuntimeError as error:
        monkeypatch.setattr(sys, "last_traceback", error.__traceback__, raising=False)
    assert ghosts[0]() is not None
    Card(lambda size: size, 100).find()
    assert ghosts[0]() is None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 400),
            nn.BatchNorm1d(400),
            nn.Dropout(0.5),
            nn.Linear(400, 400),
            nn.Tanh(),
            nn.Linear(400, 4),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return outputs


def batch(size: int) -> tuple[Tensor, Tensor]:
    return torch.rand(size, 64), torch.zeros(size, dtype=torch.int64)


def test_optimizer_states_are_counted_and_the_answer_really_trains() -> None:
    budget = 16 * MIB
    with CountedBudget(budget):
        model = Net()
        step = TrainingStep(model, torch.optim.AdamW(model.parameters()))
        found = find_batch_size(step, batch, device="cpu")
        del model, step
    assert found.ooms <= 1
    assert trains(found.batch_size, budget)
    assert not trains(round(found.batch_size * 1.08), budget)


def trains(size: int, budget: int) -> bool:
    with CountedBudget(budget):
        model = Net()
        step = TrainingStep(model, torch.optim.AdamW(model.parameters()))
        try:
            for _ in range(3):
                step(batch(size))
        except torch.OutOfMemoryError:
            return False
    return True


def test_the_model_is_left_as_it_was() -> None:
    torch.manual_seed(5)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    step = TrainingStep(model, optimizer)
    card = Card(lambda size: size, 100)
    find_batch_size(lambda size: (card.step(size), step(batch(size))), meter=card, restore=(model, optimizer))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not optimizer.state
    assert torch.equal(torch.get_rng_state(), random)


def test_it_is_put_back_after_an_error_too() -> None:
    model = Net()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def step(size: int) -> None:
        with torch.no_grad():
            next(model.parameters()).add_(1)
        raise KeyError("broken")

    with pytest.raises(KeyError):
        find_batch_size(step, meter=Card(lambda size: size, 9), restore=(model,))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_longest_sample_decides() -> None:
    samples = [torch.zeros(length) for length in (3, 9, 4)]
    make_batch = longest_batch(samples)
    assert make_batch(5).shape == (5, 9)
    pairs = [("a", 1), ("bcd", 2)]
    assert longest_batch(pairs, length=lambda pair: len(pair[0]), collate=list)(2) == [("bcd", 2)] * 2
    with pytest.raises(CourseError, match="empty"):
        longest_batch([])
    card = Card(lambda size: 9.0 * size, 900)
    found = find_batch_size(lambda tensors: card.step(len(tensors)), make_batch, meter=card)
    assert 95 <= found.batch_size <= 100


def test_a_process_without_a_limit_is_not_risked() -> None:
    class NoLimit(Card):
        def limit(self) -> int | None:
            return None

    card = NoLimit(lambda size: MIB * size, 10**12)
    with pytest.raises(CourseError, match=r"give budget=.*run_limited"):
        card.find()
    assert not card.calls
    assert 95 <= card.find(budget=100 * MIB).batch_size <= 100


def test_the_real_rescue_in_a_really_limited_child() -> None:
    """The same batch that fails in one child is searched around in another, and what is found trains."""
    target = "course_lib.train.limits.limited_training"
    settings = {"memory": "48 MiB", "time_limit_s": 300}
    failed = run_limited(f"{target}:train_some_steps", arguments={"batch_size": 400}, **settings)
    assert failed.outcome == "out of memory"
    run = run_limited(f"{target}:search_batch_size", **settings)
    assert run.outcome == "done"
    found = BatchSizeSearch.from_json(json.dumps(run.value))
    assert 8 <= found.batch_size < 400
    again = run_limited(
        f"{target}:train_some_steps", arguments={"batch_size": round(0.9 * found.batch_size)}, **settings
    )
    assert again.outcome == "done"


def ranks(folder: Path, what: str, *budgets: int) -> list[dict[str, object]]:
    """Real processes in a gloo group, one a budget."""
    script = Path(__file__).with_name("rescue_rank.py")
    folder.mkdir(exist_ok=True)
    started = [
        subprocess.Popen(
            [sys.executable, script, folder / "store", str(rank), str(len(budgets)), str(budget), what],
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for rank, budget in enumerate(budgets)
    ]
    try:
        return [json.loads(process.communicate(timeout=600)[0].splitlines()[-1]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_ranks_take_what_the_smallest_can(tmp_path: Path) -> None:
    alone = ranks(tmp_path / "a", "search", 12 * MIB)[0]
    first, second = ranks(tmp_path / "b", "search", 40 * MIB, 12 * MIB)
    assert first["batch_size"] == second["batch_size"] == alone["batch_size"]
    sizes = [[trial["batch_size"] for trial in one["trials"]] for one in (first, second)]
    assert sizes[0] == sizes[1]
    assert first["global_batch_size"] == 2 * first["batch_size"]
    assert first["limit_bytes"] == second["limit_bytes"] == 12 * MIB


def test_an_error_on_one_rank_ends_the_search_on_all(tmp_path: Path) -> None:
    first, second = ranks(tmp_path, "fail", MIB, MIB)
    assert second["error"] == "ZeroDivisionError"
    assert first["error"] == "CourseError"
    assert "another rank" in str(first["text"])


def test_the_result_prints_and_comes_back() -> None:
    card = Card(lambda size: 1000.0 * size, 12_345_678, RuntimeError("<b>CUDA out of memory</b>"))
    found = card.find(start=20_000)
    assert BatchSizeSearch.from_json(found.to_json()) == found
    assert f"batch size {found.batch_size}" in str(found)
    assert "out of memory" in str(found)
    assert "&lt;b&gt;CUDA" in found._repr_html_()
    assert "<b>CUDA" not in found._repr_html_()
    for text in ("", "[]", "{}", '{"batch_size": 3}'):
        with pytest.raises(CourseError, match="to_json"):
            BatchSizeSearch.from_json(text)
