"""Lab of lesson 06: what does a training step of ResNet-50 need, and which card is large enough?

`memory_of` plans one setting from saved traces, in a fiftieth of a second; the lab puts controls over it and
keeps the bars of the last settings. `your_model_lab` does the same for a model of the learner's own, which
is traced when its button is pressed. `rule_of_thumb` holds the guide's first step against twenty models.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.accelerators import accelerators, find_accelerator
from course_lib.bounds import whole_in
from course_lib.claims import claim
from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.plan.batch_size import BatchTraces
from course_lib.plan.memory import MemoryPlan, plan_memory
from course_lib.plan.step_trace import StepTrace, load_trace
from course_lib.teach.labs.frame import Lab, MeasuringLab, Progress, choices, menu
from course_lib.teach.plots_oom import plot_memory

if TYPE_CHECKING:
    from course_lib.plan.workload import Precision, Workload

IMAGE_SIZES = (128, 224, 384)
PRECISIONS = ("fp32", "bf16")
OPTIMIZERS = ("sgd-plain", "sgd", "adamw")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SAVED_BATCHES = (4, 8)  # the others lie on the straight line through these
USUAL_CARD = "RTX 3060 12GB"
CARDS = (USUAL_CARD, "T4", "RTX 3090", "A100 80GB")
TABLE_PRECISION, TABLE_OPTIMIZER = "fp32", "adamw"


@dataclass(frozen=True)
class MemoryOfStep:
    """One setting of the lab: its plan on the learner's card, and whether the other card is enough too."""

    setting: str
    plan: MemoryPlan
    other: MemoryPlan

    def __str__(self) -> str:
        return (
            f"{self.setting}: {self.plan.verdict} on {self.plan.card}, {self.other.verdict} on "
            f"{self.other.card}"
        )


def memory_of(
    batch_size: int = 32,
    image_size: int = 224,
    *,
    precision: str = "fp32",
    optimizer: str = "sgd",
    checkpointing: bool = False,
    card: str = USUAL_CARD,
    other: str = "A100 80GB",
) -> MemoryOfStep:
    """The memory of one training step of ResNet-50, predicted for two cards from saved traces.

    Raises CourseError for an image size, a precision or a card that is not there, and for a batch of none.
    """
    if image_size not in IMAGE_SIZES or precision not in PRECISIONS:
        raise CourseError(
            f"There are saved traces for images of {', '.join(map(str, IMAGE_SIZES))} pixels in "
            f"{' and '.join(PRECISIONS)}, not for {image_size} in {precision}."
        )
    whole_in(batch_size, "The batch size", 1, 65_536)
    trace = _saved(image_size, precision, bool(checkpointing)).at(batch_size)
    plans = [plan_memory(trace, find_accelerator(name), optimizer=optimizer) for name in (card, other)]
    said = f"batch {batch_size}, {image_size} px, {precision}, {optimizer}"
    said += ", checkpointed" if checkpointing else ""
    return MemoryOfStep(said, *plans)


def own_card() -> str:
    """The name of this machine's card where the table knows it, else that of a usual one."""
    import torch

    if torch.cuda.is_available():
        with suppress(CourseError):
            return find_accelerator(torch.cuda.get_device_name(0)).name
    return USUAL_CARD


def resnet50_trace(batch_size: int = 32, image_size: int = 224, *, checkpointing: bool = False) -> StepTrace:
    """The saved trace of one training step of ResNet-50 in float32."""
    return _saved(image_size, "fp32", checkpointing).at(batch_size)


def lab(card: str | None = None) -> Lab:
    """Controls over `memory_of`; ``card`` is the learner's, this machine's if none is given."""
    names = [one.name for one in accelerators() if one.vendor == "NVIDIA" and one.usable_mib is not None]
    return Lab(
        memory_of,
        {
            "batch_size": choices("batch size", BATCHES, 32),
            "image_size": choices("image size, px", IMAGE_SIZES, 224),
            "precision": choices("precision", PRECISIONS, "fp32"),
            "optimizer": choices("optimizer", OPTIMIZERS, "sgd"),
            "checkpointing": menu("checkpointing", (False, True), False),
            "card": menu("your card", names, card if card in names else own_card()),
            "other": menu("another card", names, "A100 80GB"),
        },
        show=lambda answers: plot_memory({one.result.setting: one.result.plan for one in answers},
                                         other=answers[-1].result.other),
        keep=3,
    )  # fmt: skip


def your_model_lab(workload: Workload, card: str = USUAL_CARD) -> MeasuringLab:
    """Controls over the memory plan of a workload of one's own, which is traced when Measure is pressed."""
    made: dict[tuple[Any, ...], BatchTraces] = {}

    def memory_of_yours(
        batch_size: int,
        precision: Precision,
        optimizer: str,
        checkpointing: bool,
        progress: Progress | None = None,
    ) -> MemoryOfStep:
        from course_lib.plan.batch_size import traces_of
        from course_lib.plan.optimizers import optimizer_rule

        tell: Callable[[float, str], None] = progress or (lambda share, doing: None)
        variant = replace(workload, precision=precision, checkpointing=checkpointing)
        traces = made.setdefault((precision, checkpointing), traces_of(variant))
        for number, size in enumerate(SAVED_BATCHES):
            tell(number / len(SAVED_BATCHES), f"tracing a batch of {size}")
            traces.exact(size)
        plan = plan_memory(traces.at(batch_size), find_accelerator(card), optimizer=optimizer_rule(optimizer))
        said = f"batch {batch_size}, {precision}, {optimizer}{', checkpointed' * checkpointing}"
        return MemoryOfStep(said, plan, plan)

    return MeasuringLab(
        memory_of_yours,
        {
            "batch_size": choices("batch size", BATCHES, 32),
            "precision": choices("precision", PRECISIONS, "fp32"),
            "optimizer": choices("optimizer", OPTIMIZERS, "adamw"),
            "checkpointing": menu("checkpointing", (False, True), False),
        },
        show=lambda answers: plot_memory({one.result.setting: one.result.plan for one in answers}),
        keep=3,
    )


@dataclass(frozen=True)
class RuleOfThumb:
    """The guide's first batch size against the largest that is predicted to fit, for each model and card.

    ``largest`` by model, then by card (0: not even one sample fits); ``rule`` by card.
    """

    largest: dict[str, dict[str, int]]
    rule: dict[str, float]

    @property
    def factors(self) -> list[float]:
        """How many times the rule's batch would have fitted, for each model and card; below 1 it is too
        large.
        """
        return [fits / self.rule[card] for row in self.largest.values() for card, fits in row.items()]

    @property
    def too_small(self) -> float:
        """The largest factor by which more would have fitted."""
        return max(self.factors)

    @property
    def failures(self) -> int:
        """Model and card pairs that run out of memory at the rule's batch."""
        return sum(factor < 1 for factor in self.factors)

    @property
    def within_two(self) -> int:
        """Pairs for which the rule is within a factor of two below the largest."""
        return sum(1 <= factor <= 2 for factor in self.factors)

    def _rows(self) -> list[tuple[str, ...]]:
        head = ("largest batch", *self.rule)
        guide = ("the guide says", *(f"{size:g}" for size in self.rule.values()))
        return [head, guide, *((model, *map(str, row.values())) for model, row in self.largest.items())]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._rows(), strict=True)]
        return "\n".join(
            "  ".join(
                f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}"
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in self._rows()
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def rule_of_thumb() -> RuleOfThumb:
    """The guide's rule (memory in GB times 0.25) beside the saved predictions for twenty models, four
    cards.
    """
    formula = claim("oom.batch").formula
    assert formula is not None
    rule = {name: float(formula(find_accelerator(name).advertised_gb)) for name in CARDS}
    with data_path("largest_batches.csv").open(encoding="utf-8", newline="") as stream:
        rows = {row["model"]: {name: int(row[name]) for name in CARDS} for row in csv.DictReader(stream)}
    return RuleOfThumb(rows, rule)


def trace_path(image_size: int, precision: str, checkpointing: bool, batch_size: int) -> Path:
    """Where the saved trace of ResNet-50 with these settings is."""
    kind = "checkpointed" if checkpointing else "plain"
    return data_path("traces") / f"resnet50/{image_size}_{precision}_{kind}_b{batch_size}.json.gz"


@lru_cache(maxsize=32)
def _saved(image_size: int, precision: str, checkpointing: bool) -> BatchTraces:
    return BatchTraces(lambda size: load_trace(trace_path(image_size, precision, checkpointing, size)))
