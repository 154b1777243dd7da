"""A trace is plain data: it survives the disk, and a batch size between two others is a straight line."""

from pathlib import Path

import pytest
from torch import nn

from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.model_names import named_workload
from course_lib.plan.step_trace import StepTrace, interpolate, load_trace
from course_lib.plan.tracer import trace
from course_lib.plan.workload import workload_from


@pytest.fixture(scope="module")
def small() -> StepTrace:
    return trace(named_workload("cnn", micro_batch=2))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_saved_and_loaded_is_the_same(small: StepTrace, tmp_path: Path, name: str) -> None:
    small.save(tmp_path / name)
    assert load_trace(tmp_path / name) == small


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1, 2]", b'{"format": 99}', b"\x1f\x8b broken", b"\xff\xfe"]
)
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_damaged_file_is_told_in_one_sentence(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CourseError, match="is not a saved trace"):
        load_trace(tmp_path / name)


def test_a_missing_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no saved trace"):
        load_trace(tmp_path / "none.json")


@pytest.mark.parametrize("model", ["cnn", "resnet18", "vit_b_32"])
def test_interpolated_is_traced(model: str) -> None:
    low, high, middle = (trace(named_workload(model, micro_batch=size)) for size in (4, 8, 6))
    assert interpolate(low, high, 6) == middle
    assert interpolate(low, high, 12) == trace(named_workload(model, micro_batch=12))


def test_a_model_that_branches_on_the_batch_is_not_interpolated() -> None:
    import torch

    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) if len(x) < 6 else self.linear(self.linear(x))

    low, high = (trace(workload_from(Branching(), torch.zeros(n, 4))) for n in (4, 8))
    assert interpolate(low, high, 6) is None


def test_the_saved_traces_of_the_course_are_those_of_today() -> None:
    saved = {path.name: load_trace(path) for path in sorted(data_path("traces").glob("*.json.gz"))}
    assert len(saved) >= 3
    cnn = saved["cnn_b64_fp32.json.gz"]
    made = trace(named_workload("cnn", micro_batch=64))
    assert made.parameter_count == cnn.parameter_count
    assert made.live_peak() == cnn.live_peak()


def test_every_release_follows_its_allocation(small: StepTrace) -> None:
    alive: set[int] = set()
    for _, kind, block in small.events:
        if kind == 0:
            assert block not in alive
            alive.add(block)
        elif kind == 1:
            alive.remove(block)
        else:
            assert block in alive
            assert small.blocks[block].category == "gradient"
