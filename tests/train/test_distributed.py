"""A process as one rank: a group of one, and every reason why a group cannot come together, for real."""

import math
import socket
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.errors import CourseError
from course_lib.train import distributed
from course_lib.train.distributed import VARIABLES, join, process_group


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*VARIABLES, "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    yield
    assert not dist.is_initialized(), "the group is always taken down"


def set_rank(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        free = found.getsockname()[1]
    usual = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free}
    for name, value in (usual | values).items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, str(value))


def test_without_torchrun_it_is_a_group_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    with process_group(device="cpu") as ranks:
        assert (ranks.rank, ranks.local_rank, ranks.world_size) == (0, 0, 1)
        assert (ranks.backend, ranks.device.type, ranks.is_first) == ("gloo", "cpu", True)
        assert ranks.mean(6.0, 4) == 1.5
        assert math.isnan(ranks.mean(1.0, 0)), "of no sample there is no mean"
        ranks.print("once")
        done: list[int] = []
        ranks.once(lambda: done.append(1))
        assert done == [1]
        assert list(ranks.tqdm(range(3), leave=False)) == [0, 1, 2]
        model = ranks.wrap(nn.Linear(2, 1))
        with join(model):
            model(torch.rand(1, 2)).sum().backward()
        with process_group(device="cpu") as again:
            assert again == ranks, "within a group it is the same group"
        assert dist.is_initialized()
    assert capsys.readouterr().out == "once\n"


def test_a_model_that_is_not_ddp_needs_no_join() -> None:
    with join(nn.Linear(1, 1)):
        pass


def test_an_error_within_takes_the_group_down_and_stays_itself() -> None:
    with pytest.raises(ZeroDivisionError), process_group(device="cpu"):
        1 / 0  # noqa: B018
    with pytest.raises(ZeroDivisionError), process_group(device="cpu") as ranks:
        ranks.once(lambda: 1 / 0)


@pytest.mark.parametrize("missing", VARIABLES)
def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    set_rank(monkeypatch, **{missing: None})
    with pytest.raises(CourseError, match=f"^{missing} is not set.*torchrun"), process_group(device="cpu"):
        pass


def test_a_busy_port_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        set_rank(monkeypatch, MASTER_PORT=port)
        with (
            pytest.raises(CourseError, match=f"Port {port} is in use.*--standalone"),
            process_group(device="cpu", timeout_s=2),
        ):
            pass


def test_a_wrong_world_size_is_told_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    set_rank(monkeypatch, WORLD_SIZE=2)
    with (
        pytest.raises(CourseError, match=r"(Only 1 of 2 ranks came|did not find each other).*WORLD_SIZE"),
        process_group(device="cpu", timeout_s=1),
    ):
        pass


def test_rank_0_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    set_rank(monkeypatch, RANK=1, WORLD_SIZE=2)
    with (
        pytest.raises(CourseError, match="did not find each other"),
        process_group(device="cpu", timeout_s=1),
    ):
        pass


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"RANK": 3, "WORLD_SIZE": 3}, "ranks count from 0 to WORLD_SIZE - 1"),
        ({"RANK": "two"}, "RANK is 'two': it must be a whole number"),
        ({"WORLD_SIZE": "0"}, "world size is too small"),
        ({"MASTER_PORT": "-1"}, "MASTER_PORT is '-1'"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT is 99999: ports end at 65535"),
    ],
)
def test_values_that_cannot_be_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, object], says: str
) -> None:
    set_rank(monkeypatch, **values)
    with pytest.raises(CourseError, match=says), process_group(device="cpu"):
        pass


def test_a_backend_or_card_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(CourseError, match=r"no backend 'carrier_pigeon'.*gloo"),
        process_group("carrier_pigeon"),
    ):
        pass
    with pytest.raises(CourseError, match="more than 0 s"), process_group(timeout_s=0):
        pass
    with (
        pytest.raises(CourseError, match=r"no device 'tpu'.*cuda, xpu, cpu, mps"),
        process_group(device="tpu"),
    ):
        pass
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(CourseError, match=r"no mps device.*device='cpu'"), process_group(device="mps"):
        pass
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: True)
    with (
        pytest.raises(CourseError, match="nccl moves tensors of a card"),
        process_group("nccl", device="cpu"),
    ):
        pass
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    set_rank(monkeypatch, RANK=2, LOCAL_RANK=2, WORLD_SIZE=4)
    with pytest.raises(CourseError, match="needs card 2, and there are 2"), process_group():
        pass
    assert "gloo" in distributed.available_backends()
