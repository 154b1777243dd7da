"""Who works when: which worker makes which batch, and when does the step have it?"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from course_lib.bounds import whole_in
from course_lib.errors import CourseError
from course_lib.train.batch import to_device
from course_lib.train.loading.settings import LoaderSettings
from course_lib.train.loading.step_bench import Step
from course_lib.train.loading.workers import open_iterator

LARGEST_BATCH = 4096
MOST_BATCHES = 1000  # a picture of more shows nothing


@dataclass(frozen=True)
class Span:
    """Something that lasted: in which row ("step", "worker 0"), for which batch, seconds from the start."""

    row: str
    batch: int
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """The spans of a few batches, and how many of them there were."""

    spans: tuple[Span, ...]
    batches: int
    emulated: bool

    @property
    def rows(self) -> list[str]:
        """The names of the rows, workers first."""
        found = {span.row for span in self.spans}
        return [*sorted(found - {"step"}), "step"]

    @property
    def waited_s(self) -> float:
        """Seconds between the first and the last step in which no step ran."""
        steps = [span for span in self.spans if span.row == "step"]
        return steps[-1].end_s - steps[0].begin_s - sum(span.end_s - span.begin_s for span in steps)


class Stamped(Dataset[Any]):
    """A data set whose samples carry who made their batch and when: (process, begin, end) in seconds."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, Tensor]]:
        """The items of one batch, each with the same stamp."""
        begin = time.monotonic()
        items = [self.dataset[index] for index in indices]
        stamp = torch.tensor([os.getpid(), begin, time.monotonic()], dtype=torch.float64)
        return [(item, stamp) for item in items]


def record_timeline(
    dataset: Any, step: Step, settings: LoaderSettings, *, batch_size: int, batches: int = 8
) -> Timeline:
    """Load and step for a few batches, and note who worked when, on one clock.

    Ends with the epoch, where that has fewer batches. Raises CourseError when there are fewer than two.
    """
    whole_in(batch_size, "The batch size", 1, LARGEST_BATCH)
    whole_in(batches, "The number of batches", 2, MOST_BATCHES)
    if len(dataset) < 2 * batch_size:
        raise CourseError(
            f"A timeline needs two whole batches: {len(dataset)} samples are too few for batches of "
            f"{batch_size}. Choose a batch of {len(dataset) // 2} or less."
            if len(dataset) >= 2
            else "A timeline needs two whole batches: the data set has fewer than two samples."
        )
    loader = DataLoader(
        Stamped(dataset), batch_size=batch_size, shuffle=True, drop_last=True, **settings.arguments()
    )
    device = torch.device(getattr(step, "device", "cpu"))
    spans: list[Span] = []
    begin = time.monotonic()
    names: dict[int, str] = {os.getpid(): "step"}
    with open_iterator(loader) as iterator:
        for number in range(batches):
            try:
                batch, stamps = next(iterator)
            except StopIteration:
                break
            pid, made_from, made_to = stamps[0].tolist()
            row = names.setdefault(int(pid), f"worker {len(names) - 1}")
            label = "loading" if row == "step" else row
            spans.append(Span(label, number, made_from - begin, made_to - begin))
            start = time.monotonic()
            step(to_device(batch, device))
            spans.append(Span("step", number, start - begin, time.monotonic() - begin))
    first = min(span.begin_s for span in spans)
    moved = tuple(Span(s.row, s.batch, s.begin_s - first, s.end_s - first) for s in spans)
    return Timeline(moved, len(spans) // 2, bool(getattr(step, "emulated", False)))
