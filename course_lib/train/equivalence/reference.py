"""What should a step be equal to? The plain training from large batches, written down as data.

A `Reference` says which micro-batches there are, how many make one update, and what the loss is the mean of.
`Task` is the same made ready for one run: a model in float64, the batches of each rank, and the loss.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from course_lib.bounds import whole_in
from course_lib.errors import CourseError
from course_lib.train.batch import samples_in
from course_lib.train.misfit import require_model
from course_lib.train.step import as_pair

MOST_PARAMETERS: Final = 3_000_000
MOST_RANKS: Final = 8
MOST_BATCHES: Final = 10_000  # the proof keeps each of them, in float64
_WORDS, _LONGEST = 13, 9  # of the made-up texts: the vocabulary, and the most tokens in one


@dataclass(frozen=True)
class Reference:
    """The training from large batches that a step is compared with.

    Left as it is, it is a small network on made-up data: 11 micro-batches an epoch, 4 to an update, so that
    the last update of an epoch has 3. With `weight_by="tokens"` the data are texts of unequal length, and the
    loss is the mean over tokens. `ranks` gives each rank its number of micro-batches, as in (7, 5).

    Your own go in as functions without arguments: `make_model`, and `make_batches`, a list of micro-batches,
    pairs (inputs, targets) or dictionaries whose model returns a `.loss`. `loss_fn(outputs, targets)` is the
    mean over a batch. `max_norm` is what gradients are clipped to; left out, what the step itself clips to.
    """

    accumulation_steps: int = 4
    epochs: int = 2
    micro_batches: int = 11
    batch_size: int = 6
    weight_by: Literal["samples", "tokens"] = "samples"
    max_norm: float | None = None
    ranks: tuple[int, ...] = ()
    seed: int = 0
    make_model: Callable[[], nn.Module] | None = None
    make_batches: Callable[[], Sequence[Any]] | None = None
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None
    make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None

    def __post_init__(self) -> None:
        for name in ("accumulation_steps", "epochs", "micro_batches", "batch_size"):
            whole_in(getattr(self, name), name, 1, MOST_BATCHES)
        if self.weight_by not in ("samples", "tokens"):
            raise CourseError(f'weight_by is "samples" or "tokens", not {self.weight_by!r}.')
        if len(self.ranks) == 1 or len(self.ranks) > MOST_RANKS:
            raise CourseError(
                "ranks is the number of micro-batches of each of 2 to 8 ranks, as in (7, 5); it has "
                f"{len(self.ranks)}."
            )
        for number in self.ranks:
            whole_in(number, "The number of micro-batches of a rank", 1, MOST_BATCHES)

    def to_plain(self) -> dict[str, Any]:
        """All of it as plain data, functions by their names, for a process of its own.

        Raises CourseError for a function that another process cannot import.
        """
        plain = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if callable(value):
                module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
                if module in ("", "__main__") or not name.isidentifier():
                    raise CourseError(
                        f"{one.name} must be a function at the top of a module, which other processes can "
                        "import: write it into a .py file."
                    )
                value = f"{module}:{name}"
            plain[one.name] = value
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Reference:
        """What `to_plain` told, with the functions imported by name."""
        values = dict(plain)
        values["ranks"] = tuple(values["ranks"])
        for name in ("make_model", "make_batches", "loss_fn", "make_optimizer"):
            if values[name] is not None:
                module, _, function = values[name].partition(":")
                values[name] = getattr(importlib.import_module(module), function)
        return cls(**values)

    @property
    def world_size(self) -> int:
        """How many processes train together."""
        return max(1, len(self.ranks))


def learning_rate_factor(update: int) -> float:
    """The schedule of the proof: by what the learning rate is multiplied at an update. Each one differs."""
    return 1 / (1 + update)


def mean_token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of (batch, tokens, words) against (batch, tokens), the mean over tokens that count."""
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


class Task:
    """A Reference made ready: data in float64, and what each sample counts."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        with seeded(reference.seed):
            model = (reference.make_model or self._small_model)()
            require_model(model)
            self._first_model = model.double().train()
            made = reference.make_batches() if reference.make_batches else self._made_up()
        self.batches = [as_double(batch) for batch in made]
        wanted = sum(reference.ranks)
        if not self.batches or len(self.batches) < wanted:
            raise CourseError(
                f"There are {len(self.batches)} micro-batches, and {max(1, wanted)} are needed: make more."
            )
        if any(samples_in(batch) == 0 for batch in self.batches):
            raise CourseError("A micro-batch without a sample cannot be trained on: leave it out.")
        self.parameters = sum(p.numel() for p in self._first_model.parameters() if p.requires_grad)
        if not 0 < self.parameters <= MOST_PARAMETERS:
            raise CourseError(
                f"The model has {self.parameters:,} parameters to train; the proof takes 1 to "
                f"{MOST_PARAMETERS:,}. It is about the step, not about the model: take a smaller one."
            )
        self.units = [self._units(batch) for batch in self.batches]
        if not all(self.total(window) for window in self.windows()):
            raise CourseError("There is a window in which no token counts: its mean does not exist.")

    @property
    def loss_fn(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The mean loss over a batch, from outputs and targets."""
        default = mean_token_loss if self.reference.weight_by == "tokens" else cross_entropy
        return self.reference.loss_fn or default

    def model(self) -> nn.Module:
        """The model as it begins: the same weights each time."""
        return copy.deepcopy(self._first_model)

    def optimizer(self, model: nn.Module) -> Optimizer:
        """A fresh optimizer for the model."""
        make = self.reference.make_optimizer or _sgd
        return make(model.parameters())

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean loss of one batch."""
        if isinstance(batch, Mapping):
            outputs = model(**batch)
            loss = outputs["loss"] if isinstance(outputs, Mapping) else outputs.loss
            assert isinstance(loss, Tensor)
            return loss
        inputs, targets = as_pair(batch)
        return self.loss_fn(model(inputs), targets)

    def of_rank(self, rank: int) -> range:
        """The numbers of the micro-batches that a rank sees in each epoch."""
        ranks = self.reference.ranks or (len(self.batches),)
        return range(sum(ranks[:rank]), sum(ranks[: rank + 1]))

    def windows(self) -> list[list[int]]:
        """The numbers of the micro-batches of each update of an epoch, over all ranks."""
        k = self.reference.accumulation_steps
        cut = [
            [list(mine[at : at + k]) for at in range(0, len(mine), k)]
            for mine in map(self.of_rank, range(self.reference.world_size))
        ]
        return [
            [number for of_rank in cut for number in (of_rank[at] if at < len(of_rank) else [])]
            for at in range(max(map(len, cut)))
        ]

    def total(self, numbers: Iterable[int]) -> float:
        """The samples or tokens in these micro-batches."""
        return float(sum(self.units[number].sum() for number in numbers))

    def _units(self, batch: Any) -> Tensor:
        """What each sample of a batch counts: 1, or its tokens."""
        if self.reference.weight_by == "samples":
            return torch.ones(samples_in(batch), dtype=torch.float64)
        targets = batch.get("labels") if isinstance(batch, Mapping) else as_pair(batch)[1]
        if not isinstance(targets, Tensor):
            raise CourseError('With weight_by="tokens" a batch has targets, or "labels" in a dictionary.')
        return (targets != -100).flatten(1).sum(dim=1).double()

    def _small_model(self) -> nn.Module:
        if self.reference.weight_by == "tokens":
            return nn.Sequential(nn.Embedding(_WORDS, 8), nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, _WORDS))
        return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 5))

    def _made_up(self) -> list[tuple[Tensor, Tensor]]:
        size = self.reference.batch_size
        many = sum(self.reference.ranks) or self.reference.micro_batches
        if self.reference.weight_by == "samples":
            return [(torch.randn(size, 12), torch.randint(5, (size,))) for _ in range(many)]
        batches = []
        for number in range(many):
            longest = 3 + (5 * number) % (_LONGEST - 2)  # unequal, from batch to batch and inside one
            words = torch.randint(_WORDS, (size, longest + 1))
            lengths = torch.randint(1, longest + 1, (size, 1))
            targets = words[:, 1:].masked_fill(torch.arange(longest) >= lengths, -100)
            batches.append((words[:, :-1], targets))
        return batches


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it torch's random numbers start from a seed; afterwards they go on as if nothing had been."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)  # of the CPU alone: torch.manual_seed seeds cards too
    try:
        yield
    finally:
        torch.set_rng_state(before)


def as_double(batch: Any) -> Any:
    """The batch with its floating-point tensors in float64, on the CPU."""
    if isinstance(batch, Tensor):
        return batch.detach().cpu().double() if batch.is_floating_point() else batch.detach().cpu()
    if isinstance(batch, Mapping):
        return {key: as_double(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(as_double(part) for part in batch)
    return batch


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """The tensors of a batch, in their order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        yield from tensors_in(tuple(batch.values()))
    elif isinstance(batch, (tuple, list)):
        for part in batch:
            yield from tensors_in(part)


def rows_of(batch: Any, chosen: Tensor) -> Any:
    """Some samples of a batch, by their numbers."""
    if isinstance(batch, Tensor):
        return batch[chosen]
    if isinstance(batch, Mapping):
        return {key: rows_of(value, chosen) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(rows_of(part, chosen) for part in batch)
    return batch


def joined(batches: list[Any]) -> Any:
    """Batches put together along their first dimension; None where their shapes differ otherwise."""
    first = batches[0]
    if isinstance(first, Tensor):
        fit = all(b.shape[1:] == first.shape[1:] for b in batches) and first.ndim > 0
        return torch.cat(batches) if fit else None
    if isinstance(first, dict):
        parts = {key: joined([batch[key] for batch in batches]) for key in first}
        return None if any(part is None for part in parts.values()) else parts
    if isinstance(first, tuple):
        pieces = [joined([batch[at] for batch in batches]) for at in range(len(first))]
        return None if any(piece is None for piece in pieces) else tuple(pieces)
    return None


def _sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9)
