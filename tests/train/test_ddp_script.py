"""The script that learners take home: as one process, killed and restarted, and as two nodes."""

import contextlib
import math
import os
import re
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
from course_lib.train.ranks.meeting_port import meeting_port

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
    with pytest.raises(SystemExit, match="--global-batch 1 is too small for 2 micro-batches"):
        ddp_script.main([*DATA, "--global-batch", "1", "--accumulate", "2"])


def test_a_batch_that_cannot_be_cut_evenly_says_what_is_trained_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ddp_script.main([*DATA, "--epochs", "1", "--global-batch", "130", "--accumulate", "4"])
    assert "128 samples a step (ranks 1 x micro-batches 4 x samples 32)" in capsys.readouterr().out


def test_a_finished_checkpoint_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished = [*DATA, "--epochs", "1", "--global-batch", "256", "--checkpoint", str(tmp_path / "c.pt")]
    ddp_script.main(finished)
    assert "nothing left" not in capsys.readouterr().out
    before = (tmp_path / "c.pt").read_bytes()
    loss, _ = ddp_script.main(finished)
    assert math.isnan(loss)
    assert re.search(r"nothing left to do: .*c\.pt is at epoch 1 ", capsys.readouterr().out)
    assert (tmp_path / "c.pt").read_bytes() == before


@pytest.mark.parametrize("content", ["text", "broken", "foreign", "folder"])
def test_what_is_no_checkpoint_of_this_script_is_told_and_left(content: str, tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    if content == "folder":
        path.mkdir()
    elif content == "text":
        path.write_text("it is my text", encoding="utf-8")
    else:
        torch.save({"weights": torch.zeros(4)}, path)
    if content == "broken":
        path.write_bytes(path.read_bytes()[:-100])
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(SystemExit, match=r"c\.pt is not a checkpoint of this script and model \(\w+") as told:
        ddp_script.main([*SHORT, "--checkpoint", str(path)])
    assert "\n" not in str(told.value)
    assert before == (path.read_bytes() if path.is_file() else None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--epochs", "0"], "--epochs must lie above 0"),
        (["--epochs", "-1"], "--epochs must lie above 0"),
        (["--accumulate", "0"], "--accumulate must lie above 0"),
        (["--global-batch", "-64"], "--global-batch must lie above 0"),
        (["--lr", "nan"], "--lr must lie above 0"),
        (["--lr", "inf"], "--lr must lie above 0 and below 1e9"),
        (["--timeout", "0"], "--timeout must lie above 0"),
        (["--seed", "-1"], "--seed must be a whole number from 0"),
        (["--seed", str(2**64)], "--seed must be a whole number from 0"),
        (["--checkpoint", "no/such/c.pt"], "there is no folder no"),
    ],
)
def test_bad_settings_are_told_before_anything_is_begun(
    given: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        ddp_script.main([*DATA, *given])
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not dist.is_initialized()


def test_data_that_are_not_there_are_told() -> None:
    with pytest.raises(SystemExit, match=r"no data at nowhere\.npz: say with --data"):
        ddp_script.main(["--data", "nowhere.npz"])
    assert not dist.is_initialized()


def test_damaged_data_are_told(tmp_path: Path) -> None:
    damaged = tmp_path / "digits.npz"
    damaged.write_bytes(Path(DATA[1]).read_bytes()[:2000])
    with pytest.raises(SystemExit, match=r"cannot be read as handwritten digits"):
        ddp_script.main(["--data", str(damaged)])
    assert not dist.is_initialized()


def test_ranks_that_find_different_checkpoints_do_not_train_on(tmp_path: Path) -> None:
    """Two ranks in two folders; a checkpoint lies in the second only."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    checkpoint = folders[1] / "c.pt"
    ddp_script.main([*SHORT, "--epochs", "1", "--checkpoint", str(checkpoint)])
    kept = checkpoint.read_bytes()
    said = ranks_in(folders, [*SHORT, "--checkpoint", "c.pt"])
    for one in said:
        assert re.search(
            r"The checkpoint of rank 0 and rank 1 differ: none and epoch 1 \(CRC \w+\)\.", one
        ), said
        assert "Traceback" not in one
        assert not results(one)
    assert checkpoint.read_bytes() == kept
    assert not (folders[0] / "c.pt").exists()


def test_checkpoints_of_as_many_epochs_are_told_apart(tmp_path: Path) -> None:
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = torch.nn.Linear(2, 2)
        optimizer, scaler = torch.optim.SGD(model.parameters()), torch.amp.GradScaler("cpu", enabled=False)
        ddp_script.save(tmp_path / "c.pt", model, optimizer, scaler, 3)
        found.append(ddp_script.load(tmp_path / "c.pt", model, optimizer, scaler))
    assert [epochs for epochs, _ in found] == [3, 3]
    assert found[0] != found[1]


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
        time_limit_s=600,
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


def ranks_in(folders: list[Path], arguments: list[str]) -> list[str]:
    """Start a rank of the script in each folder, and let them fail: what each said."""
    port = meeting_port()
    told = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(len(folders)), "USE_LIBUV": "1"}
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if sys.platform == "linux":
        told["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        subprocess.Popen(
            [sys.executable, ddp_script.__file__, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=told | {"RANK": str(rank)},
            text=True,
            encoding="utf-8",
        )
        for rank, folder in enumerate(folders)
    ]
    try:
        said = [rank.communicate(timeout=600)[0] for rank in ranks]
    finally:
        for rank in ranks:
            with contextlib.suppress(OSError):
                rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [1, 1], said
    return said


def run_two_nodes(folder: Path) -> list[tuple[str, str]]:
    """Start the script on two "computers": what rank 0 printed."""
    port = meeting_port()
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
    deadline = time.monotonic() + 600
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
