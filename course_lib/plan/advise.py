"""Which card should run this job: what fits, how long it takes, what it costs to own and to rent there?

``advise`` asks the memory plan, the speed prediction and the dated prices about every card of the catalogue.
It picks nothing for the learner: it says what is out and why, and which of the rest no other beats in both
hours and money (the Pareto front).
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from course_lib.accelerators import Accelerator, accelerators
from course_lib.bounds import whole_in
from course_lib.errors import CourseError
from course_lib.plan.job import Assumptions, Job, job_on
from course_lib.plan.memory import largest_batch_that, plan_memory
from course_lib.plan.speed import StepWork, predict, step_work
from course_lib.plan.step_time import StepTime
from course_lib.units import Money, format_bytes, format_seconds

if TYPE_CHECKING:
    from course_lib.plan.batch_size import BatchTraces
    from course_lib.plan.optimizers import OptimizerRule

_NO_LIMIT_MIB = 1 << 30  # more than any card has


@dataclass(frozen=True)
class Choice:
    """What the advice says of one card. ``job`` is None where the card is out; ``why_out`` says why.

    ``batch_size``: the micro-batch that the time is for: the one asked for, or the largest that fits if that
    is smaller. ``largest_batch``: the largest that the safe figure of the memory plan lets in, rounded down
    to five binary digits (of 100 to 127, a multiple of 4).
    """

    card: Accelerator
    batch_size: int
    largest_batch: int
    time: StepTime | None
    job: Job | None
    why_out: str = ""
    on_front: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the hours and the money."""
        return {
            "card": self.card.name,
            "batch_size": self.batch_size,
            "largest_batch": self.largest_batch,
            "why_out": self.why_out,
            "on_front": self.on_front,
            "samples_per_second": self.time.samples_per_second if self.time else None,
            "bound": self.time.bound if self.time else None,
            **(self.job.to_json() if self.job else {"hours": None, "cost": None}),
        }


@dataclass(frozen=True)
class Advice:
    """Every card, for one job: first those that can do it, by hours, then those that are out."""

    model: str
    batch_size: int
    samples: int
    epochs: float
    choices: tuple[Choice, ...]
    assumed: Assumptions

    @property
    def possible(self) -> tuple[Choice, ...]:
        """The cards that can do it."""
        return tuple(choice for choice in self.choices if choice.job)

    @property
    def front(self) -> tuple[Choice, ...]:
        """The cards that no other beats in both hours and money, the fastest first."""
        return tuple(choice for choice in self.choices if choice.on_front)

    @property
    def out(self) -> tuple[Choice, ...]:
        """The cards that cannot do it."""
        return tuple(choice for choice in self.choices if not choice.job)

    def within(self, *, hours: float | None = None, budget: Money | None = None) -> tuple[Choice, ...]:
        """The cards that stay within so many hours and so much money, the cheapest first."""
        kept = [
            choice
            for choice in self.possible
            if choice.job
            and (hours is None or choice.job.hours <= hours)
            and (budget is None or (choice.job.cheapest and choice.job.cheapest.amount <= budget.amount))
        ]
        return tuple(sorted(kept, key=_by_cost))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        assumed = {**asdict(self.assumed), "tariff": str(self.assumed.tariff)}
        return {
            "model": self.model,
            "batch_size": self.batch_size,
            "samples": self.samples,
            "epochs": self.epochs,
            "assumed": assumed,
            "choices": [choice.to_json() for choice in self.choices],
        }

    @property
    def _subject(self) -> str:
        return (
            f"{self.model}, batch {self.batch_size}, {self.samples:,} samples x {self.epochs:g} epochs: "
            f"{len(self.possible)} cards can do it, {len(self.out)} cannot or are not known well enough"
        )

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                choice.card.name + (" *" if choice.on_front else ""),
                f"{choice.batch_size}",
                format_seconds(choice.job.hours * 3600),
                "-" if choice.job.energy_kwh is None else f"{choice.job.energy_kwh:,.1f}",
                "-" if choice.job.own is None else f"{choice.job.own.total.amount:,.2f}",
                "-" if choice.job.rent is None else f"{choice.job.rent.total.amount:,.2f}",
            )
            for choice in self.possible
            if choice.job
        ]

    @property
    def _heads(self) -> tuple[str, ...]:
        currency = self.assumed.tariff.currency
        return ("card", "batch", "time", "kWh", f"own, {currency}", f"rented, {currency}")

    def __str__(self) -> str:
        lines = [self._subject, ""]
        for name, *cells in (self._heads, *self._rows()):
            lines.append(f"{name:<26}" + "".join(f"{cell:>14}" for cell in cells))
        return "\n".join([*lines, "", "*: no card is both faster and cheaper.", str(self.assumed)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self._heads)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._rows()
        )
        return (
            f"{html.escape(self._subject)}<table><tr>{head}</tr>{rows}</table>"
            f"*: no card is both faster and cheaper. {html.escape(str(self.assumed))}"
        )


def _by_cost(choice: Choice) -> tuple[float, float]:
    assert choice.job
    cheapest = choice.job.cheapest
    return (cheapest.amount if cheapest else float("inf"), choice.job.hours)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The indices of the points that no other point beats: less or equal in both, and less in one."""
    return [
        index
        for index, (x, y) in enumerate(points)
        if not any(u <= x and v <= y and (u < x or v < y) for u, v in points)
    ]


def advise(
    traces: BatchTraces,
    *,
    batch_size: int,
    samples: int,
    epochs: float,
    optimizer: str | OptimizerRule = "sgd",
    accumulate: int = 1,
    cards: Iterable[Accelerator] | None = None,
    assumed: Assumptions | None = None,
) -> Advice:
    """Every card for one job: whether it fits, how long, how much, and which are on the Pareto front.

    A card whose memory is too small for ``batch_size`` is timed at the largest batch that fits. ``traces``
    come from ``batch_size.traces_of(workload)``, or from saved traces: nothing here needs torch.
    Raises CourseError for samples, epochs or a batch size that are not above 0, and where there are no cards.
    """
    timed = time_on_cards(
        traces, batch_size=batch_size, optimizer=optimizer, accumulate=accumulate, cards=cards
    )
    return price(timed, traces.at(1).model, batch_size, samples, epochs, assumed)


def time_on_cards(
    traces: BatchTraces,
    *,
    batch_size: int,
    optimizer: str | OptimizerRule = "sgd",
    accumulate: int = 1,
    cards: Iterable[Accelerator] | None = None,
    batches: Iterable[int] | None = None,
) -> tuple[Choice, ...]:
    """The first half of :func:`advise`: memory and step time of every card, without hours and money.

    ``batches``: the only ones that a card may take, besides ``batch_size``. A few save most of the time.
    """
    whole_in(batch_size, "The batch size", 1, _MOST_IN_A_BATCH)
    chosen = tuple(accelerators() if cards is None else cards)
    if not chosen:
        raise CourseError("There is no card to choose from: name one at least, or leave cards out for all.")
    tried = None if batches is None else sorted({*batches, batch_size})
    fitting = _Fitting(traces, optimizer, accumulate, tried)
    works: dict[int, StepWork] = {}
    choices = []
    for card in chosen:
        largest = fitting.largest(card.usable_bytes)
        if largest < batch_size and fitting.safe(batch_size) <= card.usable_bytes:
            largest = batch_size  # it lies between two of the batches that are tried
        size = min(batch_size, largest)
        if size == 0:
            need = format_bytes(fitting.safe(1))
            why = f"not even one sample fits: it needs {need}, the card has {format_bytes(card.usable_bytes)}"
            choices.append(Choice(card, 0, 0, None, None, why))
            continue
        if size not in works:
            works[size] = step_work(traces.at(size))
        try:
            time = predict(works[size], card, optimizer=optimizer, accumulate=accumulate)
        except CourseError as error:
            choices.append(Choice(card, size, largest, None, None, str(error)))
        else:
            choices.append(Choice(card, size, largest, time, None))
    return tuple(choices)


def price(  # noqa: PLR0917
    timed: Iterable[Choice],
    model: str,
    batch_size: int,
    samples: int,
    epochs: float,
    assumed: Assumptions | None = None,
) -> Advice:
    """The second half of :func:`advise`: the hours and the money of cards whose step times are known."""
    assumed = assumed or Assumptions()
    priced = [
        replace(choice, job=job_on(choice.card, choice.time, samples, epochs, assumed))
        if choice.time
        else choice
        for choice in timed
    ]
    return Advice(model, batch_size, samples, epochs, _in_order(priced), assumed)


def _in_order(choices: list[Choice]) -> tuple[Choice, ...]:
    possible = sorted((c for c in choices if c.job), key=lambda c: c.job.hours if c.job else 0.0)
    priced = [c for c in possible if c.job and c.job.cheapest]
    points = [(c.job.hours, c.job.cheapest.amount) for c in priced if c.job and c.job.cheapest]
    front = {priced[index].card.name for index in pareto_front(points)}
    marked = [replace(choice, on_front=choice.card.name in front) for choice in possible]
    return (*marked, *(choice for choice in choices if not choice.job))


_MOST_IN_A_BATCH = 1_000_000
_STEPS = 208  # up to a batch of 65,536


def _batch(step: int) -> int:
    """The batch sizes of five binary digits, in order: 1, 2, ... 32, 34, 36, ... 64, 68, ..."""
    doublings = max(0, (step - 16) // 16)
    return (step - 16 * doublings) << doublings


class _Fitting:
    """The safe figure of the memory plan at any batch size, made once for all cards.

    It is planned for a card without a limit. On a card that is nearly full the allocator gives memory back
    and may fit a little more, so this is on the safe side. Batches of five binary digits are tried, so that
    cards of many sizes share their plans. Of given ``batches`` each is tried, from the largest down.
    """

    def __init__(
        self,
        traces: BatchTraces,
        optimizer: str | OptimizerRule,
        accumulate: int,
        batches: Sequence[int] | None = None,
    ) -> None:
        self._batches = batches
        self._traces, self._optimizer, self._accumulate = traces, optimizer, accumulate
        self._boundless = Accelerator("", "", "", "", 0.0, _NO_LIMIT_MIB, False, "")
        self._made: dict[int, int] = {}
        self._largest: dict[int, int] = {}

    def safe(self, batch_size: int) -> int:
        """Bytes that a step of this batch needs, by the safe figure."""
        if batch_size not in self._made:
            made = plan_memory(
                self._traces.at(batch_size),
                self._boundless,
                optimizer=self._optimizer,
                accumulate=self._accumulate,
            )
            self._made[batch_size] = made.safe
        return self._made[batch_size]

    def largest(self, capacity: int) -> int:
        """The largest batch that fits so many bytes; 0 if none does."""
        if capacity not in self._largest:
            self._largest[capacity] = self._search(capacity)
        return self._largest[capacity]

    def _search(self, capacity: int) -> int:
        if self._batches is not None:
            return next((size for size in reversed(self._batches) if self.safe(size) <= capacity), 0)
        step = largest_batch_that(lambda step: self.safe(_batch(step)) <= capacity, most=_STEPS)
        return _batch(step)
