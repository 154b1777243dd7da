"""What does each usual fault of a distributed training look like? Each one, really committed.

    launch("course_lib.train.ranks.ddp_faults:commit", 2, arguments={"fault": "hang"}, check=False)

The ranks train for a few steps, and then the fault happens on one of them, the last.
"""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.errors import CourseError
from course_lib.train import checkpoint
from course_lib.train.distributed import Ranks, process_group
from course_lib.train.ranks.launch_result import Kind

WAIT_S = 2.0
"""Where the fault is that another rank does not come, a rank gives up to wait for it after so many seconds.

For all else, such as the start, they have a minute: a busy machine is no fault.
"""


class Branches(nn.Module):
    """A network with a branch that the forward pass may leave out."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(4, hidden)
        self.last = nn.Linear(hidden, 3)
        self.branch = nn.Linear(hidden, hidden)

    def forward(self, inputs: Tensor, use_branch: bool = True) -> Tensor:
        """Inputs (batch, 4) to logits (batch, 3)."""
        hidden = self.first(inputs).relu()
        logits: Tensor = self.last(self.branch(hidden) if use_branch else hidden)
        return logits


def _impatient_group() -> dist.ProcessGroup:
    """A group of all ranks that waits WAIT_S at most."""
    dist.barrier()  # so that all are here when it is made
    group = dist.new_group(timeout=timedelta(seconds=WAIT_S))
    assert isinstance(group, dist.ProcessGroup)
    return group


def _step_by_hand(group: dist.ProcessGroup | None = None) -> Callable[[], None]:
    """A step whose gradients are averaged without DDP, whose first use takes seconds more."""
    model = Branches()

    def step() -> None:
        _backward(model)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)  # type: ignore[arg-type]

    return step


def _backward(model: nn.Module, **options: bool) -> None:
    loss = cross_entropy(model(torch.rand(5, 4), **options), torch.zeros(5, dtype=torch.int64))
    loss.backward()  # type: ignore[no-untyped-call]


def killed(ranks: Ranks) -> None:
    """The system kills the last rank in the middle of its work."""
    step = _step_by_hand()
    step()
    if _is_last(ranks):
        psutil.Process().kill()
    step()


def hang(ranks: Ranks) -> None:
    """The last rank is stuck in its data."""
    step = _step_by_hand(_impatient_group())
    step()
    if _is_last(ranks):
        _read_a_batch_that_never_comes()
    step()


def _read_a_batch_that_never_comes() -> None:
    time.sleep(3600)


def uneven_data(ranks: Ranks) -> None:
    """The last rank has fewer batches than the others."""
    step = _step_by_hand(_impatient_group())
    for _ in range(2 if _is_last(ranks) else 4):
        step()


def mismatched_shapes(ranks: Ranks) -> None:
    """The last rank has built another model."""
    _backward(ranks.wrap(Branches(hidden=9 if _is_last(ranks) else 8)))


def unused_parameters(ranks: Ranks) -> None:
    """A part of the model takes no part in the loss."""
    model = ranks.wrap(Branches())
    for _ in range(3):
        _backward(model, use_branch=False)


def exception(ranks: Ranks) -> None:
    """The last rank finds a label that does not exist."""
    step = _step_by_hand()
    step()
    if _is_last(ranks):
        raise IndexError("Target 12 is out of bounds.")
    step()


def out_of_memory(ranks: Ranks) -> None:
    """The last rank really has no more memory."""
    from course_lib.train.limits.limited_child import memory_limit

    step = _step_by_hand()
    step()
    if _is_last(ranks):
        with memory_limit(64 * 2**20):
            torch.ones(2**28)  # 1 GiB
    step()


def full_disk(ranks: Ranks) -> None:
    """The disk is full when rank 0 saves."""
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "training.pt"
        if ranks.is_first:
            _fill_disk(path)
        ranks.once(lambda: checkpoint.save(path, model=model, optimizer=optimizer, position={}))


def _fill_disk(path: Path) -> None:
    """Let the next checkpoint be written to a device on which no byte is left, where the system has one."""
    full = Path("/dev/full")
    if not full.exists():
        raise CourseError("There is no /dev/full here: a full disk cannot be tried on this system.")
    path.with_name(path.name + ".tmp").symlink_to(full)


def mismatched_collective(ranks: Ranks) -> None:
    """The last rank calls another collective than the others."""
    group = _impatient_group()
    if _is_last(ranks):
        dist.broadcast(torch.zeros(4), src=0, group=group)
    else:
        dist.all_reduce(torch.zeros(4), group=group)
    dist.barrier(group)


def port_in_use() -> None:
    """Another program listens where rank 0 wants to."""
    taken = socket.create_server(("127.0.0.1", 0))
    os.environ |= {"MASTER_PORT": str(taken.getsockname()[1]), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    with process_group(device="cpu", timeout_s=WAIT_S):
        pass


def missing_variable() -> None:
    """The script was not started with torchrun, and one variable was forgotten."""
    del os.environ["MASTER_ADDR"]
    with process_group(device="cpu", timeout_s=WAIT_S):
        pass


def wrong_world_size() -> None:
    """WORLD_SIZE says more ranks than were started."""
    os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) + 1)
    with process_group(device="cpu", timeout_s=WAIT_S):
        pass


def interrupt(ranks: Ranks) -> None:
    """Train until somebody interrupts."""
    step = _step_by_hand()
    ranks.print("training")
    while True:
        step()
        time.sleep(0.01)


IN_A_GROUP: Mapping[str, Callable[[Ranks], None]] = {
    one.__name__: one
    for one in (
        killed, hang, uneven_data, mismatched_shapes, unused_parameters, exception, out_of_memory, full_disk,
        mismatched_collective, interrupt,
    )
}  # fmt: skip
BEFORE_THE_GROUP: Mapping[str, Callable[[], None]] = {
    one.__name__: one for one in (port_in_use, missing_variable, wrong_world_size)
}
FAULTS = (*IN_A_GROUP, *BEFORE_THE_GROUP)

FIRST_ERRORS: Mapping[str, tuple[Kind, str]] = {
    "killed": ("killed", r"Rank 1 was killed"),
    "hang": ("hung", r"Rank 1 hung: .*in _read_a_batch_that_never_comes"),
    "uneven_data": ("exception", r"Rank 0 failed: .*rank 1 had come to its end"),
    "mismatched_shapes": ("exception", r"Rank 1 failed: .*sizes \[9, 4\]"),
    "unused_parameters": ("exception", r"finished reduction.*not used in producing loss"),
    "exception": ("exception", r"Rank 1 failed: IndexError: Target 12 is out of bounds"),
    "out_of_memory": ("exception", r"Rank 1 failed: .*(memory|alloc)"),
    "full_disk": ("exception", r"Rank 0 failed: .*training\.pt cannot be written"),
    "port_in_use": ("exception", r"Rank 0 failed: Port \d+ is in use"),
    "missing_variable": ("exception", r"MASTER_ADDR is not set"),
    "wrong_world_size": ("exception", r"WORLD_SIZE"),
}
"""What the first error must be with two ranks: its kind, and a pattern of its sentence. An interrupt is
none.
"""


def commit(fault: str) -> None:
    """As a rank, commit this fault. Raises CourseError for a name that is not among FAULTS."""
    torch.set_num_threads(1)
    if fault in BEFORE_THE_GROUP:
        BEFORE_THE_GROUP[fault]()
        return
    if fault not in IN_A_GROUP:
        raise CourseError(f"There is no fault {fault!r}: choose one of {', '.join(FAULTS)}.")
    with process_group(device="cpu", timeout_s=60) as ranks:
        IN_A_GROUP[fault](ranks)


def commit_in_turn(faults: list[str]) -> str:
    """As a rank, commit the first fault, and after each new start of all ranks the next one; then train
    on.
    """
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if attempt < len(faults):
        print(f"{faults[attempt]} ...", file=sys.stderr, flush=True)
        commit(faults[attempt])
        return f"{faults[attempt]}: nothing happened"
    return "trained"


def _is_last(ranks: Ranks) -> bool:
    return ranks.rank == ranks.world_size - 1
