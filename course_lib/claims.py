"""What does the guide say, as claims that a lesson can put to the test?

The guide is a short text for beginners of 2023. Each of its rules of thumb is one Claim here, in the guide's
sense and with the guide's own numbers and formulas. Nothing here says whether a claim is true: that is
what a lesson finds out on the learner's machine (``course_lib.teach.verdicts``).
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from course_lib.errors import CourseError


@dataclass(frozen=True)
class Figure:
    """A number in a claim: ``claim("health.util").figure("utilisation")`` is 60 "%"."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Claim:
    """One rule of the guide: what it says, the words of the lessons that test it, its numbers and formula."""

    id: str
    statement: str
    lessons: tuple[str, ...]
    figures: tuple[Figure, ...] = ()
    formula: Callable[..., float | str] | None = None

    def figure(self, name: str) -> Figure:
        """The figure of that name. Raises CourseError for a name the claim does not have."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        known = ", ".join(figure.name for figure in self.figures) or "none"
        raise CourseError(f"The claim {self.id} has no figure {name!r}; its figures are: {known}.")


# The guide's formulas, as it states them: without checks, and with whatever is wrong about them. Lessons show
# what they give for 0 GPUs or a small card, so no input is refused here.


def best_num_workers(cores: int, gpus: int) -> int:
    """loading.workers: ``DataLoader(num_workers=...)`` from the number of CPU cores and GPUs."""
    return min(cores, gpus * 4)


def global_batch_size(batch_size: int, accumulation_steps: int) -> int:
    """accumulation.recipe: examples per optimizer step."""
    return batch_size * accumulation_steps


def starting_batch_size(memory_gb: float) -> float:
    """oom.batch: the batch size to begin with, from the card's memory in GB."""
    return memory_gb * 0.25


def card_for_images(images: int) -> str:
    """hardware.cv: which hardware to take for a data set of so many images."""
    if images < 100_000:
        return "RTX 3060"
    return "RTX 3090" if images <= 1_000_000 else "cloud TPU"


def card_for_sequence_length(tokens: int) -> str:
    """hardware.nlp: which hardware to take for sequences of so many tokens."""
    return "RTX 3090" if tokens < 512 else "cloud TPU"


def total_cost(
    *,
    price: float,
    depreciation: float,
    power: float,
    tariff: float,
    hours: float,
    cloud_fee: float,
    instances: float,
) -> float:
    """cost.formula: the guide names no units for its terms, so this has none either."""
    return price / depreciation + power * tariff * hours + cloud_fee * instances


def example_cost(price: float, years: float, power_kw: float, tariff: float, hours: float) -> float:
    """cost.example: the sum as written: price / years / 365 x hours + power x tariff x hours."""
    return price / years / 365 * hours + power_kw * tariff * hours


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "start.compute",
        "A laptop needs 10 minutes for one epoch of a small CNN. VGG-16 would need 3 days.",
        ("start", "hardware"),
        (Figure("epoch", 10, "min"), Figure("vgg16", 3, "d")),
    ),
    Claim("start.memory", 'A beginner\'s most frequent error is "CUDA out of memory".', ("start", "oom")),
    Claim(
        "start.idle",
        "A beginner's GPU is used for less than 30 % of the time, "
        "and loading a batch takes longer than its forward pass.",
        ("start", "loading"),
        (Figure("utilisation", 30, "%"),),
    ),
    Claim(
        "start.causes",
        "Training is slow for three reasons: the hardware does not match the model, "
        "the API is used naively, the pipeline is badly designed.",
        ("start", "capstone"),
    ),
    Claim(
        "hardware.table",
        "A table of price and performance tells which card is the best buy.",
        ("hardware",),
    ),
    Claim(
        "hardware.cv",
        "For images, the data set chooses the hardware: an RTX 3060 under 100 000 images, an RTX 3090 up to "
        "1 million, a cloud TPU above.",
        ("hardware",),
        (Figure("small", 100_000, "images"), Figure("large", 1_000_000, "images")),
        card_for_images,
    ),
    Claim(
        "hardware.nlp",
        "For text, the sequence length chooses the hardware: "
        "an RTX 3090 under 512 tokens, a cloud TPU for long text.",
        ("hardware",),
        (Figure("sequence", 512, "tokens"),),
        card_for_sequence_length,
    ),
    Claim(
        "ddp.template",
        "One listing is enough for training on several cards: init_process_group, "
        "a DistributedSampler with set_epoch, the model on the rank's device, DDP(device_ids=[rank]), "
        "then epochs over batches.",
        ("ddp",),
    ),
    Claim("ddp.backend", "The backend is nccl, or another one where the environment asks for it.", ("ddp",)),
    Claim(
        "precision.recipe",
        "Mixed precision is autocast around forward and loss, "
        "and a GradScaler that scales, steps and updates; its scale adapts by itself.",
        ("precision",),
    ),
    Claim(
        "loading.workers",
        "The best num_workers is the smaller of the CPU cores and 4 times the GPUs.",
        ("loading",),
        (Figure("workers_per_gpu", 4, "workers"),),
        best_num_workers,
    ),
    Claim(
        "accumulation.recipe",
        "Divide the loss by accum_steps, and step and zero_grad every accum_steps: "
        "the global batch is the batch times accum_steps.",
        ("accumulation",),
        formula=global_batch_size,
    ),
    Claim(
        "oom.batch",
        "Out of memory, step 1: lower the batch size; begin at a quarter of the card's memory in GB.",
        ("oom",),
        (Figure("batch_per_gb", 0.25, "examples/GB"),),
        starting_batch_size,
    ),
    Claim("oom.checkpoint", "Out of memory, step 2: use gradient checkpointing.", ("oom",)),
    Claim("oom.cache", "Out of memory, step 3: call torch.cuda.empty_cache() before the loop.", ("oom",)),
    Claim(
        "oom.slim",
        "Out of memory, step 4: take smaller fully connected layers, and depthwise separable convolutions "
        "instead of plain ones.",
        ("oom",),
    ),
    Claim("oom.monitor", "Out of memory, step 5: print torch.cuda.memory_summary().", ("oom",)),
    Claim(
        "health.util",
        "Training is healthy when nvidia-smi shows a GPU-Util of at least 60 %.",
        ("health",),
        (Figure("utilisation", 60, "%"),),
    ),
    Claim(
        "health.balance",
        "Training on several cards is healthy when their used memory differs by at most 15 %.",
        ("health",),
        (Figure("difference", 15, "%"),),
    ),
    Claim(
        "health.comm",
        "With DDP, communication takes under 20 % of the step time.",
        ("ddp", "health"),
        (Figure("communication", 20, "%"),),
    ),
    Claim(
        "curves.ideal",
        "In a healthy run the validation loss falls steadily, "
        "and the training loss fluctuates by less than 10 %.",
        ("curves",),
        (Figure("fluctuation", 10, "%"),),
    ),
    Claim(
        "curves.slow",
        "A run needs more compute when its training loss falls by less than 0.01 a day.",
        ("curves",),
        (Figure("fall", 0.01, "loss/day"),),
    ),
    Claim(
        "curves.plateau",
        "A run needs more compute when its validation accuracy has not moved for more than 3 epochs.",
        ("curves",),
        (Figure("patience", 3, "epochs"),),
    ),
    Claim(
        "cost.formula",
        "The total cost is price / depreciation + power x tariff x hours + cloud fee x instances.",
        ("cost",),
        formula=total_cost,
    ),
    Claim(
        "cost.example",
        "An RTX 3090 costs 10000 / 3 / 365 x 100 + 0.35 x 0.6 x 100 = 9.13 + 21 = 30.13 CNY for 100 hours.",
        ("cost",),
        (
            Figure("price", 10_000, "CNY"),
            Figure("years", 3, "years"),
            Figure("power", 0.35, "kW"),
            Figure("tariff", 0.6, "CNY/kWh"),
            Figure("hours", 100, "h"),
            Figure("stated_depreciation", 9.13, "CNY"),
            Figure("stated_electricity", 21, "CNY"),
            Figure("stated_total", 30.13, "CNY"),
        ),
        example_cost,
    ),
    Claim(
        "capstone.pipeline",
        "80 % of performance problems are solved in the data pipeline.",
        ("loading", "capstone"),
        (Figure("share", 80, "%"),),
    ),
    Claim(
        "capstone.single",
        "Take no second GPU before one card trains with a batch of 256.",
        ("ddp", "capstone"),
        (Figure("batch_size", 256, "examples"),),
    ),
    Claim(
        "capstone.small",
        "Begin with small Kaggle data sets and master one card first: the right set-up beats more hardware.",
        ("capstone",),
    ),
)


def claim(claim_id: str) -> Claim:
    """The claim of that id. Raises CourseError, with the ids that are near it, for an unknown one."""
    by_id = {known.id: known for known in CLAIMS}
    if claim_id in by_id:
        return by_id[claim_id]
    near = difflib.get_close_matches(str(claim_id), by_id, n=3)
    advice = f"did you mean {' or '.join(near)}?" if near else f"the claims are {', '.join(by_id)}."
    raise CourseError(f"There is no claim {claim_id!r}: {advice}")
