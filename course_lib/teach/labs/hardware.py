"""Lab of lesson 01: which card for this job, at what hours and money?

`which_card` asks twenty cards about one of the saved networks; the lab puts controls over network, size,
batch, precision, samples, epochs and budget. `price_table` is the guide's lost table of 2023, rebuilt from
dated sources.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from course_lib.accelerators import Accelerator, find
from course_lib.bounds import whole_in
from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.advise import Advice, Choice, price, time_on_cards
from course_lib.plan.speed import predict
from course_lib.plan.transfer import fit_costs, speed_on
from course_lib.teach.labs.frame import Lab, choices, menu
from course_lib.teach.plots_front import plot_front
from course_lib.teach.saved_jobs import PRECISIONS, SIZES, job_traces
from course_lib.units import Money, format_seconds

CARDS = (
    "RTX 2080 Ti", "RTX 3060 12GB", "RTX 3070", "RTX 3080 10GB", "RTX 3090", "RTX 4060 Ti 16GB", "RTX 4070",
    "RTX 4080", "RTX 4090", "RTX 5080", "RTX 5090", "RTX A6000", "V100 16GB", "T4", "L4", "L40S",
    "A100 40GB PCIe", "A100 80GB PCIe", "H100 80GB", "H200 141GB",
)  # fmt: skip
BATCHES = tuple(2**power for power in range(10))  # few, so that an answer takes a fraction of a second
IMAGENET_IMAGES = 1_281_167
EPOCHS_OF_THE_TABLE = 90


@dataclass(frozen=True)
class PriceRow:
    """One card of 2023: its price, and its images a second of ResNet-50 with autocast, as published.

    ``predicted``: what the course computes for this card from the published rates of the *others*.
    """

    card: Accelerator
    price: Money
    basis: str
    measured: float
    predicted: float

    @property
    def price_per_rate(self) -> float:
        """Money for each image a second, by the measured rate."""
        return self.price.amount / self.measured

    @property
    def images_per_joule(self) -> float:
        """Images for each joule, at the card's TDP."""
        return self.measured / (self.card.tdp_w or float("nan"))

    @property
    def hours(self) -> float:
        """Hours for 90 epochs of ImageNet, by the measured rate."""
        return IMAGENET_IMAGES * EPOCHS_OF_THE_TABLE / self.measured / 3600


@dataclass(frozen=True)
class PriceTable:
    """The table of price and performance, with what the other rows foretell beside the measured rate."""

    rows: tuple[PriceRow, ...]

    @property
    def median_error(self) -> float:
        """The median of how far the predicted rates are from the measured ones, as a share."""
        errors = sorted(abs(row.predicted / row.measured - 1) for row in self.rows)
        return errors[len(errors) // 2]

    def best(self, by: str) -> PriceRow:
        """The best card by "price", "energy" or "hours".

        Raises CourseError for another word.
        """
        if by not in ("price", "energy", "hours"):
            raise CourseError(f"A card can be the best by price, energy or hours, not by {by!r}.")
        keys = {
            "price": lambda row: row.price_per_rate,
            "energy": lambda row: -row.images_per_joule,
            "hours": lambda row: row.hours,
        }
        return min(self.rows, key=keys[by])

    _HEADS = ("card", "USD, 2023", "img/s", "predicted", "USD per img/s", "img/J", "90 epochs")

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.card.name,
                f"{row.price.amount:,.0f} {row.basis}",
                f"{row.measured:,.0f}",
                f"{row.predicted:,.0f}",
                f"{row.price_per_rate:.2f}",
                f"{row.images_per_joule:.1f}",
                format_seconds(3600 * row.hours),
            )
            for row in self.rows
        ]

    def __str__(self) -> str:
        lines = [
            f"{name:<18}" + "".join(f"{c:>14}" for c in rest) for name, *rest in (self._HEADS, *self._cells())
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self._HEADS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self._cells()
        )
        return f"<table><tr>{head}</tr>{rows}</table>"


@lru_cache(maxsize=1)
def price_table() -> PriceTable:
    """Cards of 2023 with their price then, their published speed, and what the others' speeds foretell."""
    with data_path("measured_resnet50.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    cards = {row["card"]: find(row["card"]) for row in rows}
    rates = {row["card"]: float(row["images_per_second"]) for row in rows}
    made = []
    for row in rows:
        name = row["card"]
        others = {other: rate for other, rate in rates.items() if other != name}
        predicted = speed_on(cards[name], fit_costs(others, cards, "fp16"), "fp16")
        paid = Money(float(row["price_usd"]), "USD")
        made.append(PriceRow(cards[name], paid, row["price_basis"], rates[name], predicted))
    return PriceTable(tuple(made))


@dataclass(frozen=True)
class WhichCard:
    """The advice for one job, and what of it stays within the budget."""

    advice: Advice
    budget: Money

    @property
    def affordable(self) -> tuple[Choice, ...]:
        """The cards within the budget, the cheapest first."""
        return self.advice.within(budget=self.budget)

    def __str__(self) -> str:
        fastest = min(self.affordable, key=lambda c: c.job.hours if c.job else 0.0, default=None)
        if fastest is None or fastest.job is None:
            return f"No card does this for {self.budget}."
        cheapest = self.affordable[0]
        assert cheapest.job is not None
        return (
            f"Within {self.budget}: the fastest is {_told(fastest)}; the cheapest is {_told(cheapest)}. "
            f"{len(self.affordable)} of {len(self.advice.choices)} cards are within it."
        )

    def _repr_html_(self) -> str:
        picture = plot_front(self.advice, budget=self.budget)
        return f"{picture._repr_html_()}<p>{escape(str(self))}</p><p>{escape(str(self.advice.assumed))}</p>"


def _told(choice: Choice) -> str:
    assert choice.job is not None
    smaller = "" if not choice.batch_size else f" at batch {choice.batch_size}"
    return f"{choice.card.name}{smaller} ({format_seconds(3600 * choice.job.hours)}, {choice.job.cheapest})"


def which_card(  # noqa: PLR0917 - a control each
    model: str = "resnet50",
    size: str = "middle",
    precision: str = "fp16",
    batch_size: int = 128,
    samples: int = 1_281_167,
    epochs: int = 90,
    budget: int = 20,
) -> WhichCard:
    """Twenty cards for one job, predicted from saved traces.

    Args:
        model: resnet50, vit_b_16 or gpt.
        size: small, middle or large: 128, 224, 384 pixels, or 128, 512, 2048 tokens.
        precision: fp32 or fp16 (autocast).
        batch_size: samples in a step; a card with too little memory takes the largest power of two that
            fits.
        samples: in one epoch.
        epochs: of the training.
        budget: in US dollars, to own or to rent.

    Raises:
        CourseError: what is not saved, or is not above zero.
    """
    words = ("small", "middle", "large")
    if model not in list(SIZES) or size not in words:
        raise CourseError(
            f"The lab knows {', '.join(SIZES)} in {', '.join(words)}, not {model!r} in {size!r}."
        )
    whole_in(batch_size, "The batch size", 1, 65_536)
    whole_in(samples, "The number of samples", 1, 10**12)
    whole_in(epochs, "The number of epochs", 1, 10**6)
    whole_in(budget, "The budget, in USD,", 1, 10**12)
    timed = _timed(model, SIZES[model][words.index(size)], precision, batch_size)
    advice = price(timed, model, batch_size, samples, epochs)
    return WhichCard(advice, Money(float(budget), "USD"))


@lru_cache(maxsize=64)
def _timed(model: str, size: int, precision: str, batch_size: int) -> tuple[Choice, ...]:
    return time_on_cards(
        job_traces(model, size, precision),
        batch_size=batch_size,
        cards=[find(name) for name in CARDS],
        batches=[size for size in BATCHES if size <= batch_size],
    )


def tokens_per_second(card: str, tokens_in_a_batch: int = 8192) -> dict[int, float]:
    """Tokens a second of the saved GPT on a card, by the length of its texts; each batch has as many.

    Raises CourseError for an unknown card, and for tokens outside 1 to 1e9.
    """
    whole_in(tokens_in_a_batch, "The number of tokens in a batch", 1, 10**9)
    found = {}
    for length in SIZES["gpt"]:
        trace = job_traces("gpt", length, "fp16").at(max(1, tokens_in_a_batch // length))
        found[length] = predict(trace, find(card)).samples_per_second * length
    return found


def lab() -> Lab:
    """Controls over `which_card`."""
    return Lab(
        which_card,
        {
            "model": menu("network", list(SIZES), "resnet50"),
            "size": menu("size", ["small", "middle", "large"], "middle"),
            "precision": menu("precision", list(PRECISIONS), "fp16"),
            "batch_size": choices("batch size", BATCHES[3:], 128),
            "samples": choices(
                "samples", [10_000, 50_000, 100_000, 500_000, 1_281_167, 5_000_000, 20_000_000], 1_281_167
            ),
            "epochs": choices("epochs", [1, 3, 10, 30, 90, 300], 90),
            "budget": choices("budget, USD", [1, 3, 10, 20, 50, 100, 300, 1000, 10_000], 20),
        },
    )
