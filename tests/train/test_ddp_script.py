"""The script that learners take home: as one process, killed and restarted, and as two nodes."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from course_lib.files import data_path
from course_lib.train import ddp_script
from course_lib.train.ranks.launch import launch

DATA = ["--data", str(data_path("digits.npz"))]
SHORT = [*DATA, "--epochs", "3", "--global-batch", "128"]


def results(text: str) -> list[tuple[str, str]]:
    """(loss, accuracy) of each epoch that was printed."""
    return re.findall(r"loss (\d\.\d+), accuracy (\d+\.\d)", text)


def test_one_process_learns_the_digits(capsys: pytest.CaptureFixture[str]) -> None:
    _, accuracy = ddp_script.main([*DATA, "--epochs", "6"])
    assert accuracy > 0.9
    assert len(results(capsys.readouterr().out)) == 6


def test_accumulation_and_bfloat16_do_the_same_training_nearly(tmp_path: Path) -> None:
    plain, _ = ddp_script.main(SHORT)
    accumulated, _ = ddp_script.main([*SHORT, "--accumulate", "4"])
    assert accumulated == pytest.approx(plain, rel=1e-3)
    coarse, _ = ddp_script.main([*SHORT, "--precision", "bf16"])
    assert coarse == pytest.approx(plain, rel=0.2)
    assert coarse != plain


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    checkpoint = ["--checkpoint", str(tmp_path / "training.pt")]
    whole = ddp_script.main(SHORT)
    ddp_script.main([*SHORT, *checkpoint, "--epochs", "2"])
    assert ddp_script.main([*SHORT, *checkpoint]) == whole
    assert list(tmp_path.iterdir()) == [tmp_path / "training.pt"]


def test_a_batch_too_small_for_the_ranks_is_refused() -> None:
    with pytest.raises(SystemExit, match="too small"):
        ddp_script.main([*DATA, "--global-batch", "1", "--accumulate", "2"])


def test_a_killed_rank_and_two_nodes_end_with_the_loss_of_an_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two torchrun agents on loopback, one rank each, are the undisturbed run; in the other, a rank is
    killed.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "ranks"))
    nodes = run_two_nodes(tmp_path)
    checkpoint = str(tmp_path / "killed.pt")
    run = launch(
        "ddp_targets:train_and_be_killed",
        arguments={"arguments": SHORT, "checkpoint": checkpoint},
        max_restarts=1,
        on_line=None,
    )
    assert run.restarts == 1
    if os.name == "posix":
        assert (run.earlier[0][0].rank, run.earlier[0][0].kind) == (1, "killed")
    (loss, accuracy), other = run.values
    assert [loss, accuracy] == other
    assert f"{loss:.4f}" == nodes[-1][0]
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 3


@pytest.fixture
def agent_store(monkeypatch: pytest.MonkeyPatch) -> dist.TCPStore:
    """The store that torchrun keeps over all restarts, as the environment of its ranks tells of it."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    told = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}
    restarts = {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_MAX_RESTARTS": 3, "GROUP_WORLD_SIZE": 1}
    for name, value in {**told, **restarts}.items():
        monkeypatch.setenv(name, str(value))
    return store


def test_a_restarted_rank_does_not_read_the_addresses_of_the_start_before(
    agent_store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []
    for restart in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restart)
        starts.append(ddp_script.store_of_this_start(timedelta(seconds=20)))
    starts[0].set("address", "of one that has ended")
    assert starts[0].check(["address"])
    assert not starts[1].check(["address"])


def test_restarts_on_several_computers_ask_for_a_store_for_each_start(
    agent_store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        ddp_script.store_of_this_start(timedelta(seconds=20))
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "0")
    assert not ddp_script.store_of_this_start(timedelta(seconds=20)).check(["address"])


def run_two_nodes(folder: Path) -> list[tuple[str, str]]:
    """Start the script on two "computers": what rank 0 printed."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    script = folder / "train.py"
    script.write_text(Path(ddp_script.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "USE_LIBUV": "1"}
    if sys.platform != "linux":
        environment.pop("GLOO_SOCKET_IFNAME")
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "nodes"),
                *("--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1", str(script), *SHORT),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            encoding="utf-8",
        )
        for _ in range(2)
    ]
    deadline = time.monotonic() + 120
    try:
        said = [agent.communicate(timeout=deadline - time.monotonic())[0] for agent in agents]
    finally:
        for agent in agents:
            with contextlib.suppress(OSError):
                agent.kill()
            agent.wait()
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert len([one for one in said if results(one)]) == 1, "rank 0 prints, the other node does not"
    return results(said[0] + said[1])
