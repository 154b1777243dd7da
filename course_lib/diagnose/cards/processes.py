"""Who sits on which card: ranks on a foreign card, one process on all, a process that nobody can name?"""

from collections.abc import Iterator
from statistics import mean

from course_lib.diagnose.cards.common import fill, label, pids_on_several
from course_lib.diagnose.finding import Evidence, Finding
from course_lib.diagnose.foreign_contexts import foreign_contexts
from course_lib.diagnose.size import show_mib
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus

_NO_NAME = ("Unknown Error", "[Unknown Error]", "Not Found", "[Not Found]")


def ranks_on_one_card(status: GpuStatus) -> Iterator[Finding]:
    """Ranks that opened a context on a card that is not theirs."""
    for card, guests in foreign_contexts(status.processes or ()).items():
        yield _guests(card, guests)


def _guests(card: int, guests: list[GpuProcess]) -> Finding:
    sizes = [p.mib for p in guests if p.mib is not None]
    amount = f" ({show_mib(mean(sizes))} each, {show_mib(sum(sizes))} in all)" if sizes else ""
    ranks = "One rank also sits" if len(guests) == 1 else f"{len(guests)} ranks also sit"
    return Finding(
        id="ddp.every_rank_has_a_context_on_gpu0",
        summary=f"{ranks} on GPU {card}, " + ("the first card" if card == 0 else "which is not theirs"),
        why=f"The same process numbers appear on a card of their own and on GPU {card}{amount}: these ranks "
        "opened a context on the first device, because set_device is missing, a tensor was sent to 'cuda' "
        "without an index, or torch.load had no map_location.",
        remedies=(
            "Call torch.cuda.set_device(local_rank) first thing in each rank; give torch.load "
            'map_location=f"cuda:{local_rank}" (or cpu).',
        ),
        not_helpful=(
            "Calling it DataParallel: that would be one process on all cards.",
            "A smaller batch: the memory is in contexts.",
        ),
        evidence=tuple(Evidence(f"process {p.pid}", f"on GPU {p.gpu}") for p in guests),
    )


def one_process_on_all(status: GpuStatus) -> Iterator[Finding]:
    """One process that carries more on its first card: DataParallel."""
    several = pids_on_several(status)
    if len(several) != 1 or foreign_contexts(status.processes or ()):
        return
    pid = several.pop()
    sizes = {p.gpu: p.mib for p in status.processes or () if p.pid == pid and p.mib is not None}
    if len(sizes) < 2:
        return
    largest = max(sizes, key=lambda gpu: sizes[gpu] or 0.0)
    others = [size for gpu, size in sizes.items() if gpu != largest and size is not None]
    top = sizes[largest] or 0.0
    if not others or top < 1.15 * mean(others) or largest != min(sizes, key=lambda gpu: gpu or 0):
        return  # even, or fullest elsewhere: a model in parts
    yield Finding(
        id="dp.first_card_carries_more",
        summary=f"One process uses {len(sizes)} cards, and GPU {largest} carries more than the others",
        why=f"Process {pid} holds {show_mib(top)} on GPU {largest} and {show_mib(mean(others))} on the "
        "others: the mark of DataParallel, which gathers outputs on the first card.",
        remedies=("Use DistributedDataParallel with one process a card (torchrun).",),
        not_helpful=("A smaller batch: it leaves the imbalance.",),
        severity="warning",
        certainty="likely",
    )


def nobody_named(status: GpuStatus) -> Iterator[Finding]:
    """Memory is held and a list of processes is there, and names nobody."""
    if status.processes is None or status.processes or status.driver_model:
        return
    if status.smi_version and status.driver_version and status.smi_version != status.driver_version:
        return  # under WSL the driver is Windows' own, and its programs are not listed
    held = [gpu for gpu in status.gpus if (gpu.used_mib or 0.0) >= 1024 and (fill(gpu) or 0.0) >= 0.05]
    if held:
        yield zombie(held[0], "the list of processes is empty")


def owner_gone(status: GpuStatus) -> Iterator[Finding]:
    """Processes that hold memory and have no name any more."""
    gone = [p for p in status.processes or () if p.name in _NO_NAME and (p.mib or 0.0) >= 500]
    if not gone:
        return
    listed = ", ".join(f"{p.pid} on GPU {p.gpu} ({show_mib(p.mib or 0.0)})" for p in gone[:8])
    yield Finding(
        id="zombie.holding_gpu",
        summary=f"{len(gone)} {'process holds' if len(gone) == 1 else 'processes hold'} memory and cannot "
        "be named",
        why=f"Process {listed}: the driver still counts it, and the system has no name for its number. It "
        "has ended without letting go, or it runs outside this container.",
        remedies=(
            "Look for the number and its children (ps -ef, also on the host outside the container) and try "
            "fuser -v /dev/nvidia*: a loader worker left behind can hold the memory. If nothing can be "
            "ended, an administrator resets the card or reboots.",
        ),
        not_helpful=(
            "Taking the memory as free because no program is named.",
            "A smaller batch: the memory is not the new job's.",
        ),
        certainty="likely",
    )


def zombie(gpu: Gpu, reason: str) -> Finding:
    """Memory that is held by a process which the tool cannot name."""
    util = "" if gpu.util_percent is None else f" and {gpu.util_percent:.0f} % utilisation"
    return Finding(
        id="zombie.holding_gpu",
        summary=f"{show_mib(gpu.used_mib or 0.0)} of {label(gpu)} are held by a process that the tool "
        "cannot name",
        why=f"{show_mib(gpu.used_mib or 0.0)}{util}, and {reason}. In a container that is usual (the "
        "process is outside its PID namespace); else its parent is dead, or it is stuck in the kernel.",
        remedies=(
            "List by nvidia-smi --query-compute-apps=pid,used_memory --format=csv, look on the host "
            "outside the container, and try fuser -v /dev/nvidia*; if nothing can be ended, an "
            "administrator resets the card or reboots.",
        ),
        not_helpful=(
            "Taking the memory as free because no process is shown.",
            "kill -9 on a number from another PID namespace.",
        ),
        certainty="likely",
    )
