"""The errors that the installed PyTorch really raises are recognised: nothing here is a copied text."""

import datetime
import multiprocessing
import os
import pickle
import socket
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import default_collate

from course_lib.diagnose.recognise import Explanation, explain


def told(fail: Callable[[], object]) -> Explanation:
    """What is said about the traceback of ``fail``."""
    try:
        fail()
    except BaseException:
        return explain(traceback.format_exc())
    pytest.fail("no error was raised")


def second_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


def in_place() -> None:
    y = torch.ones(2, requires_grad=True).sigmoid()
    y += 1
    y.sum().backward()


def leaf() -> None:
    x = torch.ones(2, requires_grad=True)
    x += 1


def scaled(*calls: str) -> Callable[[], None]:
    """A scaler on the CPU whose methods are called in this order."""

    def run() -> None:
        scaler, layer = torch.amp.GradScaler("cpu"), nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        loss = layer(torch.ones(1, 2)).sum()
        for call in calls:
            if call == "plain backward":
                loss.backward()
            elif call == "backward":
                scaler.scale(loss).backward()
            elif call == "other backward":
                scaler.scale(torch.ones(1, requires_grad=True)).backward()
            elif call == "update":
                scaler.update()
            else:
                getattr(scaler, call)(optimizer)

    return run


def half_weights() -> None:
    scaler, layer = torch.amp.GradScaler("cpu"), nn.Linear(2, 2).half()
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    scaler.scale(layer(torch.ones(1, 2).half()).sum()).backward()
    scaler.step(optimizer)


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (second_backward, "graph.reused_across_iterations"),
        (in_place, "graph.modified_in_place"),
        (leaf, "graph.leaf_changed_in_place"),
        (lambda: torch.ones(1).sum().backward(), "graph.loss_has_no_graph"),
        (lambda: nn.Linear(3, 2)(torch.ones(2, 3)).backward(), "graph.loss_is_not_one_number"),
        (lambda: nn.Linear(3, 2)(torch.ones(2, 3)).numpy(), "graph.numpy_of_a_tensor_with_graph"),
        (scaled("backward", "update"), "amp.update_without_step"),
        (scaled("other backward", "step"), "amp.no_gradients_for_optimizer"),
        (scaled("backward", "unscale_", "unscale_"), "amp.unscale_every_micro_step"),
        (scaled("backward", "step", "step"), "amp.wrong_order_of_scaler_calls"),
        (scaled("backward", "step", "unscale_"), "amp.wrong_order_of_scaler_calls"),
        (scaled("plain backward", "step"), "amp.loss_never_scaled"),
        (half_weights, "amp.trainable_params_in_fp16"),
        (
            lambda: torch.zeros(2).half().masked_fill(torch.tensor([True, False]), -1e9),
            "amp.constant_too_large_for_half",
        ),
        (lambda: nn.Linear(3, 2)(torch.ones(2, 4)), "tensors.shapes_of_linear_layer"),
        (lambda: nn.Linear(3, 2)(torch.ones(2, 3).half()), "tensors.half_and_float"),
        (lambda: nn.Conv2d(3, 4, 3)(torch.ones(1, 3, 8, 8).half()), "tensors.half_and_float"),
        (lambda: nn.Linear(3, 2)(torch.ones(2, 3).double()), "tensors.different_types"),
        (lambda: nn.Conv2d(3, 4, 3)(torch.ones(1, 1, 8, 8)), "tensors.wrong_channels"),
        (lambda: torch.ones(3) + torch.ones(4), "tensors.shapes_do_not_match"),
        (lambda: torch.cat([torch.ones(2, 3), torch.ones(3, 4)], 1), "tensors.shapes_do_not_match"),
        (
            lambda: nn.CrossEntropyLoss()(torch.ones(4, 9), torch.ones(3).long()),
            "tensors.batch_sizes_differ",
        ),
        (
            lambda: nn.CrossEntropyLoss()(torch.ones(1, 9), torch.tensor([9])),
            "tensors.label_out_of_range",
        ),
        (lambda: nn.CrossEntropyLoss()(torch.ones(4, 9), torch.ones(4)), "tensors.label_type"),
        (lambda: nn.CrossEntropyLoss()(torch.ones(4, 9), torch.ones(4, 1).long()), "tensors.label_shape"),
        (lambda: nn.Embedding(5, 3)(torch.tensor([7])), "tensors.index_out_of_range_of_embedding"),
        (lambda: torch.ones(2, 3, 4).transpose(1, 2).view(2, 12), "tensors.view_of_non_contiguous"),
        (lambda: torch.ones(6).view(4, 2), "tensors.view_of_other_size"),
        (lambda: nn.BatchNorm1d(3)(torch.ones(1, 3)), "tensors.batchnorm_of_one_sample"),
        (
            lambda: torch.multinomial(torch.tensor([float("nan"), 1.0]), 1),
            "tensors.nan_in_sampling",
        ),
        (
            lambda: default_collate([torch.ones(3, 4), torch.ones(3, 5)]),
            "dataloader.samples_of_unequal_size",
        ),
        (lambda: default_collate([None, None]), "dataloader.sample_is_none"),
        (lambda: torch.utils.data.DataLoader([], shuffle=True), "dataloader.empty_dataset"),
        (
            lambda: nn.Linear(1, 1).load_state_dict(
                {f"module.{name}": value for name, value in nn.Linear(1, 1).state_dict().items()}
            ),
            "checkpoint.prefix_of_the_wrapper",
        ),
        (
            lambda: nn.Linear(1, 1).load_state_dict(nn.Linear(2, 1).state_dict()),
            "checkpoint.shapes_do_not_match",
        ),
        (lambda: nn.Linear(1, 1).load_state_dict({}), "checkpoint.keys_do_not_match"),
        (lambda: dist.all_reduce(torch.ones(1)), "ddp.group_not_initialised"),
        (lambda: pickle.dumps(lambda: 1), "dataloader.unpicklable_under_spawn"),
    ],
)
def test_what_torch_raises_here(fail: Callable[[], object], expected: str) -> None:
    findings = told(fail).findings
    assert [finding.id for finding in findings] == [expected]
    assert findings[0].first_remedy
    assert findings[0].not_helpful


def test_the_optimizer_of_another_model() -> None:
    first = torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.1)
    other = torch.optim.SGD(nn.Linear(1, 1, bias=False).parameters(), 0.1)
    explanation = told(lambda: first.load_state_dict(other.state_dict()))
    assert explanation.findings[0].id == "checkpoint.optimizer_does_not_match"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "checkpoint.not_a_checkpoint"),
        (b"<!DOCTYPE html><html></html>", "checkpoint.not_a_checkpoint"),
        (None, "checkpoint.file_damaged"),
    ],
)
def test_files_that_are_no_checkpoint(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "last.pt"
    if content is None:
        torch.save(torch.ones(1000), path)
        content = path.read_bytes()[:2000]
    path.write_bytes(content)
    findings = told(lambda: torch.load(path, weights_only=True)).findings
    assert [finding.id for finding in findings] == [expected]
    assert "weights_only=False" in " ".join(findings[0].not_helpful)


class OfTheTest(nn.Module):
    """A class that torch.load does not know."""


def test_a_whole_model_is_refused_and_weights_only_is_not_the_first_advice(tmp_path: Path) -> None:
    torch.save(OfTheTest(), tmp_path / "model.pt")
    (finding,) = told(lambda: torch.load(tmp_path / "model.pt", weights_only=True)).findings
    assert finding.id == "checkpoint.weights_only_refused"
    assert "OfTheTest" in finding.summary
    assert "weights_only=False" not in str(finding.first_remedy)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk() -> None:
    findings = told(lambda: torch.save(torch.ones(10**6), "/dev/full")).findings
    assert [finding.id for finding in findings] == ["checkpoint.disk_full"]


def test_warnings_of_a_scheduler_and_of_checkpointing() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.1)
        torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
        checkpoint(nn.Linear(1, 1), torch.ones(1, 1), use_reentrant=True)
    ids = [explain(f"UserWarning: {warning.message}").findings[0].id for warning in caught]
    assert ids == ["train.scheduler_before_optimizer", "checkpointing.no_gradient_through_block"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch):
    """A process group of one."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("USE_LIBUV", "0")
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    yield
    dist.destroy_process_group()


class Half(nn.Module):
    """Two layers, of which one is used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_what_ddp_raises(alone: None) -> None:
    def unused() -> None:
        model = DistributedDataParallel(Half())
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()

    explanation = told(unused)
    assert explanation.findings[0].id == "ddp.unused_parameters"
    assert explanation.readings[0].figures["parameter_indices"] == [2, 3]
    for fail, expected in (
        (lambda: DistributedDataParallel(nn.ReLU()), "ddp.nothing_to_train"),
        (lambda: DistributedDataParallel(nn.Linear(1, 1), device_ids=[0]), "ddp.model_not_on_its_device"),
        (lambda: DistributedDataParallel(nn.Linear(1, 1)).width, "ddp.attribute_of_the_wrapper"),
        (lambda: dist.init_process_group("gloo"), "ddp.group_initialised_twice"),
    ):
        assert told(fail).findings[0].id == expected


def test_what_the_rendezvous_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USE_LIBUV", "0")
    explanation = told(lambda: dist.init_process_group("gloo"))
    assert explanation.findings[0].id == "ddp.missing_environment_variable"
    assert explanation.readings[0].figures["variable"] == "RANK"
    assert told(lambda: os.environ["LOCAL_RANK"]).findings[0].id == "ddp.missing_environment_variable"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = {"rank": 0, "world_size": 1, "timeout": datetime.timedelta(seconds=5)}
        explanation = told(
            lambda: dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", **arguments)
        )
    assert explanation.findings[0].id == "ddp.port_in_use"


def _killed(how: int) -> None:
    os.kill(os.getpid(), how)


@pytest.mark.skipif(os.name == "nt", reason="signals of this kind do not exist on Windows")
def test_the_words_of_multiprocessing_for_a_killed_child() -> None:
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(9,))
    process.start()
    process.join(300)
    explanation = explain(f"worker failed (exitcode: {process.exitcode}) local_rank: 0 (pid: {process.pid})")
    assert explanation.findings[0].id == "host_oom_killer"
    assert explanation.readings[0].figures["pid"] == process.pid
