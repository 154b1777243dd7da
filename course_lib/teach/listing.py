"""What happens when a learner runs the usual first DDP listing? It, its faults, and the mends, one by one.

The listing does what the guide's does, in our words, with the guide's omissions. `run_listing` runs it
with real ranks, again and again, with one more fault mended each time.
"""

from dataclasses import dataclass
from pathlib import Path

from course_lib.train.ranks.launch import OnLine, launch, print_line
from course_lib.train.ranks.meeting_port import meeting_port

LISTING = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    model = DDP(CNN().to(rank), device_ids=[rank])
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
"""


@dataclass(frozen=True)
class Mend:
    """One fault of the listing: what it is, how it shows, and the changes that mend it, as (old, new)."""

    fault: str
    shows: str
    changes: tuple[tuple[str, str], ...]


MENDS: tuple[Mend, ...] = (
    Mend(
        "main() is never called",
        "nothing: no line, no error",
        (("", '\nif __name__ == "__main__":\n    main()\n'),),
    ),
    Mend(
        "the backend is nccl, also where there is no NVIDIA card",
        "an error at the first line",
        (
            (
                '    dist.init_process_group("nccl")\n',
                '    cuda = torch.cuda.is_available()\n    dist.init_process_group("nccl" if cuda else '
                '"gloo")\n',
            ),
        ),
    ),
    Mend(
        "dataset, CNN, criterion and optimizer are not defined",
        "a NameError",
        (
            (
                "    sampler = DistributedSampler(dataset)\n",
                "    from torch.nn.functional import cross_entropy as criterion\n"
                "    from course_lib.models.zoo import DigitsCNN as CNN\n"
                "    from course_lib.train.data import Digits\n"
                '    dataset = Digits("train")\n'
                "    sampler = DistributedSampler(dataset)\n",
            ),
            (
                "    for epoch in range(2):\n",
                "    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)\n"
                "    for epoch in range(2):\n",
            ),
        ),
    ),
    Mend(
        "rank, which counts over all computers, is taken for the number of the card",
        "an error where there is no such card",
        (
            (
                "    model = DDP(CNN().to(rank), device_ids=[rank])\n",
                '    local_rank = int(os.environ["LOCAL_RANK"])\n'
                '    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")\n'
                "    model = DDP(CNN().to(device), device_ids=[local_rank] if cuda else None)\n",
            ),
        ),
    ),
    Mend(
        "the images are never moved to the device",
        "an error on a GPU; nothing on a CPU",
        (
            (
                "        for images, labels in loader:\n",
                "        for images, labels in loader:\n"
                "            images, labels = images.to(device), labels.to(device)\n",
            ),
        ),
    ),
    Mend(
        "the gradients of all steps add up: there is no zero_grad()",
        "no error: the loss does not fall as it should",
        (
            (
                "            loss.backward()\n",
                "            optimizer.zero_grad()\n            loss.backward()\n",
            ),
        ),
    ),
    Mend(
        "the group is never taken down",
        "a warning at the end, or a hang",
        (
            (
                '        print(f"epoch {epoch}: loss {loss.item():.3f}")\n',
                '        print(f"epoch {epoch}: loss {loss.item():.3f}")\n    dist.destroy_process_group()\n',
            ),
        ),
    ),
)
"""In the order in which they come up."""


def version(mended: int) -> str:
    """The listing with the first `mended` faults mended."""
    source = LISTING
    for mend in MENDS[:mended]:
        for old, new in mend.changes:
            source = source.replace(old, new, 1) if old else source + new
    return source


@dataclass(frozen=True)
class Attempt:
    """What became of one version: how many faults were mended in it, what it printed, and its error if
    any.
    """

    mended: int
    printed: tuple[str, ...]
    error: str | None
    left_group: bool

    def __str__(self) -> str:
        if self.error:
            return self.error
        if not self.printed:
            return "nothing happened: no line, no error"
        return "; ".join(self.printed) + ("; the group was left behind" if self.left_group else "")


def run_listing(folder: Path, nproc: int = 2, *, on_line: OnLine | None = print_line) -> tuple[Attempt, ...]:
    """Run the listing as it is, then with one more fault mended each time; what rank 0 saw.

    The versions are written to `folder`. Of those that run through, the first and the wholly mended one
    are run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files, ports = [], []
    for mended in range(len(MENDS) + 1):
        path = folder / f"listing_{mended}.py"
        path.write_text(version(mended), encoding="utf-8")
        files.append(str(path))
        ports.append(meeting_port())
    run = launch(
        "course_lib.train.ranks.listing_rank:run_versions",
        nproc,
        arguments={"files": files, "ports": ports},
        time_limit_s=300,
        on_line=on_line,
    )
    return tuple(
        Attempt(int(one["name"].rpartition("_")[2]), tuple(one["printed"]), one["error"], one["left_group"])
        for one in run.values[0]
    )
