"""Train a network with one process, with several, or on several computers: the same script.

    python train.py
    torchrun --standalone --nproc-per-node 2 train.py
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 train.py

The last line is for several computers: type it on each of them, with the name of one of them for HOST.
torchrun starts one process a card, each with the same script; each is a rank. With --max-restarts 3 it
starts all of them anew when one fails, and they go on from the checkpoint. On several computers, the
checkpoint must lie where all of them can read it; and restarts need a variable that torchrun itself reads,
so set it before: export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

To train something else, change `make_datasets` and `make_model`.
"""

import argparse
import gc
import os
import zlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_datasets(path: Path) -> tuple[Dataset[tuple[Tensor, ...]], Dataset[tuple[Tensor, ...]]]:
    """Handwritten digits, 8 x 8 pixels: four fifths to train on, one fifth for the test."""
    if not path.is_file():
        raise SystemExit(f"There are no data at {path}: say with --data where they are.")
    try:
        with np.load(path, allow_pickle=False) as file:
            images = torch.from_numpy(file["images"].astype(np.float32) / 16).unsqueeze(1)
            labels = torch.from_numpy(file["labels"].astype(np.int64))
    except Exception as error:  # a damaged file, or another one, fails in many ways
        raise SystemExit(f"{path} cannot be read as handwritten digits: give the course's file.") from error
    test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


def make_model() -> nn.Module:
    """A small convolutional network. With BatchNorm, turn it into SyncBatchNorm when each rank's batch is
    small.
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )  # fmt: skip


def join_ranks(timeout_s: float) -> tuple[int, int, torch.device]:
    """Become one of the ranks that torchrun started, or a group of one; rank, world size and device."""
    rank = int(os.environ.get("RANK", "0"))
    # The number of the card: rank counts over all computers.
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    limit = timedelta(seconds=timeout_s)  # a rank that waits longer for another gives up
    if "RANK" in os.environ:
        store = store_of_this_start(limit)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=limit)  # type: ignore[attr-defined]
    return rank, world_size, device


def store_of_this_start(limit: timedelta) -> dist.Store:  # type: ignore[name-defined]
    """Where the ranks find each other. torchrun keeps one store over all restarts, in which a rank may read
    the address of one that has ended. So each start writes under a name of its own.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    several = os.environ.get("GROUP_WORLD_SIZE", "1") != "1"  # each computer counts its own restarts
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if several and kept and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        raise SystemExit(
            "Restarts on several computers need TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, set on each of them "
            "before torchrun: otherwise a rank may look for one that has ended."
        )
    store, _, _ = next(dist.rendezvous("env://", timeout=limit))  # type: ignore[attr-defined]
    return store if several else dist.PrefixStore(f"start {restarts}", store)  # type: ignore[attr-defined]


def check_alike(**own: object) -> None:
    """End all ranks where two differ in what must be the same: they would train on with weights that
    differ, and no error would tell.
    """
    told: list[dict[str, object]] = [{}] * dist.get_world_size()
    dist.all_gather_object(told, own)
    for rank, other in enumerate(told):
        for name, value in told[0].items():
            if other[name] != value:
                raise SystemExit(
                    f"The {name} of rank 0 and rank {rank} differ: {value} and {other[name]}. "
                    "All computers need the same settings, data and checkpoint."
                )


def windows(
    loader: DataLoader[tuple[Tensor, ...]], device: torch.device, size: int
) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """The micro-batches of one optimizer step after the other, on the device; the last window may be
    shorter.
    """
    batches = iter(loader)
    while window := list(islice(batches, size)):
        yield [(x.to(device, non_blocking=True), y.to(device, non_blocking=True)) for x, y in window]


def evaluate(model: nn.Module, dataset: Dataset[tuple[Tensor, ...]], rank: int, world_size: int) -> float:
    """The accuracy on all samples, each tested by exactly one rank."""
    device = next(model.parameters()).device
    own = Subset(dataset, range(rank, len(dataset), world_size))  # type: ignore[arg-type]
    hits = torch.zeros(2, device=device)
    model.eval()
    with torch.no_grad():
        for images, labels in DataLoader(own, batch_size=256):
            right = (model(images.to(device)).argmax(1) == labels.to(device)).sum()
            hits += torch.stack([right, torch.tensor(len(labels), device=device)])
    model.train()
    dist.all_reduce(hits)  # shares may differ by a sample: sum hits and samples, and divide once
    return float(hits[0] / hits[1])


def train(settings: argparse.Namespace) -> tuple[float, float]:
    """Train, and return the last epoch's loss and the test accuracy."""
    rank, world_size, device = join_ranks(settings.timeout)
    torch.manual_seed(settings.seed)
    train_set, test_set = make_datasets(settings.data)
    parts = world_size * settings.accumulate
    micro_batch = settings.global_batch // parts
    if micro_batch < 1:
        raise SystemExit(f"--global-batch {settings.global_batch} is too small for {parts} micro-batches.")
    # Each rank has its own samples.
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train_set, seed=settings.seed)
    loader = DataLoader(train_set, micro_batch, sampler=sampler, pin_memory=device.type == "cuda")
    plain = make_model().to(device)
    optimizer = torch.optim.SGD(plain.parameters(), lr=settings.lr, momentum=0.9)
    dtype = PRECISIONS[settings.precision]
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)  # bf16 needs none
    first, found = load(settings.checkpoint, plain, optimizer, scaler)
    asked = {name: value for name, value in vars(settings).items() if name not in ("data", "checkpoint")}
    check_alike(checkpoint=found, samples=len(train_set), **asked)  # type: ignore[arg-type]
    model = DistributedDataParallel(plain, device_ids=[device.index] if device.type == "cuda" else None)
    if rank == 0:
        shares = f"ranks {world_size} x micro-batches {settings.accumulate} x samples {micro_batch}"
        print(f"{parts * micro_batch} samples a step ({shares})", flush=True)
        if first >= settings.epochs:
            print(f"nothing left to do: {settings.checkpoint} is at {found}", flush=True)
    loss = accuracy = float("nan")
    for epoch in range(first, settings.epochs):
        sampler.set_epoch(epoch)  # another order in each epoch
        total = torch.zeros(2, device=device)
        for window in windows(loader, device, settings.accumulate):
            samples = sum(len(labels) for _, labels in window)
            optimizer.zero_grad()
            for number, (images, labels) in enumerate(window, start=1):
                model.require_backward_grad_sync = number == len(window)  # exchange once a step: no_sync
                with torch.autocast(device.type, dtype, enabled=dtype is not None):
                    micro_loss = cross_entropy(model(images), labels, reduction="sum") / samples
                scaler.scale(micro_loss).backward()  # type: ignore[no-untyped-call]
                total += torch.stack(
                    [micro_loss.detach() * samples, torch.tensor(len(labels), device=device)]
                )
            scaler.step(optimizer)
            scaler.update()
        dist.all_reduce(total)
        loss = float(total[0] / total[1])
        accuracy = evaluate(plain, test_set, rank, world_size)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)
            save(settings.checkpoint, plain, optimizer, scaler, epoch + 1)
    return loss, accuracy


def save(
    path: Path | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    epoch: int,
) -> None:
    """Write a checkpoint under another name and rename it: it is whole, or not there."""
    if path is None:
        return
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    torch.save(parts | {"epoch": epoch}, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def load(
    path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> tuple[int, str]:
    """Go on from the checkpoint, where there is one; the number of complete epochs, and which they are."""
    if path is None or not path.exists():
        return 0, "none"
    try:
        state = torch.load(path, map_location=next(model.parameters()).device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if scaler.is_enabled():
            scaler.load_state_dict(state["scaler"])
        return int(state["epoch"]), f"epoch {state['epoch']} (CRC {zlib.crc32(path.read_bytes()):08x})"
    except Exception as error:  # what is no checkpoint, or another's, fails in many ways
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SystemExit(f"{path} is not a checkpoint of this script and model ({reason}).") from error


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Read the settings, train, and take the group down however it ends."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).with_name("digits.npz"))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--global-batch", type=int, default=64, help="samples in a step, of all ranks together"
    )
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches a rank in a step")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="saved after each epoch, and gone on from")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a rank waits for another")
    settings = parser.parse_args(arguments)
    for name in ("epochs", "global_batch", "accumulate", "lr", "timeout"):
        if not 0 < getattr(settings, name) < 1e9:  # NaN is neither
            parser.error(f"--{name.replace('_', '-')} must lie above 0 and below 1e9")
    if not 0 <= settings.seed < 2**32:
        parser.error("--seed must be a whole number from 0 to 2**32 - 1")
    needed = os.W_OK if os.environ.get("RANK", "0") == "0" else os.R_OK  # rank 0 writes, all read
    if settings.checkpoint and not os.access(settings.checkpoint.parent, needed):
        parser.error(f"--checkpoint: there is no folder {settings.checkpoint.parent}, or it is closed to you")
    try:
        return train(settings)
    finally:
        gc.collect()  # a DDP model keeps the group alive until it is collected
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
