"""In which number format should this device train, and what does PyTorch need for it?

    precision = choose(device)
    step = TrainingStep(model, optimizer, precision=precision)

Four formats. The weights stay float32 in all of them; what changes is the arithmetic:

    fp32   float32 throughout
    tf32   float32 in memory; the multiplications of NVIDIA cards since Ampere round their inputs to 10 bits
    bf16   autocast to bfloat16: the range of float32, 7 bits after the point
    fp16   autocast to float16: 10 bits after the point, a small range, and therefore a GradScaler

A device that *holds* a format need not be *fast* in it: bf16 is emulated on a T4, fp16 on most processors. So
`choose` goes by speed, measured here (``format_speed.matmul_speedups``) or passed in for another card.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from course_lib.accelerators import Accelerator
from course_lib.errors import CourseError
from course_lib.train.number_formats.float32_products import float32_products
from course_lib.train.number_formats.float_formats import FLOAT_FORMATS, Format
from course_lib.train.number_formats.format_speed import matmul_speedups
from course_lib.train.preformatted import preformatted

FORMATS: tuple[Format, ...] = tuple(FLOAT_FORMATS)

WORTHWHILE = 1.15
"""A format must be this many times as fast as fp32 in a matrix product before it is chosen. A training step
gains less than its products do, and below this next to nothing."""

NEARLY = 0.8
"""bf16 is preferred to fp16 from this part of fp16's speed on: it needs no scaling and does not overflow."""


@dataclass(frozen=True)
class Precision:
    """A number format to train in on one kind of device, and how PyTorch is told.

    `device` is a device's type: "cuda", "mps", "cpu". `speedups` are how many times as fast as fp32 a matrix
    product is in each format, where known; `reason` says why this one was chosen. Raises CourseError for a
    format that is not known, and for tf32 on a device that has none.
    """

    format: Format
    device: str = "cpu"
    speedups: Mapping[Format, float] = field(default_factory=dict, compare=False)
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise CourseError(f"Precision {self.format!r} is not known: choose one of {', '.join(FORMATS)}.")
        object.__setattr__(self, "device", _device(self.device).type)
        if self.format == "tf32" and self.device != "cuda":
            raise CourseError(
                f"tf32 is a way of multiplying that only NVIDIA cards have, not {self.device}: take fp32, or "
                "bf16 where it is fast."
            )

    @property
    def dtype(self) -> torch.dtype | None:
        """What autocast turns the large products into; None where autocast stays off."""
        return FLOAT_FORMATS[self.format].dtype if self.format in ("bf16", "fp16") else None

    @property
    def needs_scaling(self) -> bool:
        """Whether small gradients would vanish without a GradScaler: in fp16, and only there."""
        return self.format == "fp16"

    def autocast(self) -> AbstractContextManager[Any]:
        """Around forward pass and loss, not around the backward pass. May be entered again and again."""
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device, dtype=self.dtype)

    def float32_products(self) -> AbstractContextManager[None]:
        """Around forward *and* backward pass: how a CUDA card multiplies float32 tensors there.

        PyTorch's own setting differs by operation (TF32 in convolutions, none in matrix products), so fp32
        and tf32 both say what they mean. The settings of before come back at the end.
        """
        if self.device != "cuda" or self.dtype is not None:
            return nullcontext()
        return float32_products("tf32" if self.format == "tf32" else "ieee")

    def grad_scaler(self, **settings: Any) -> torch.amp.GradScaler | None:
        """A GradScaler where one is needed, else None. `settings` are those of torch.amp.GradScaler."""
        return torch.amp.GradScaler(self.device, **settings) if self.needs_scaling else None

    def __str__(self) -> str:
        scaling = ", with a GradScaler" if self.needs_scaling else ""
        lines = [f"{self.format} on {self.device}{scaling}"]
        if self.reason:
            lines += self.reason.split("; ")
        for name, speedup in self.speedups.items():
            lines.append(f"  {name:5} {_times(speedup)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def precision_for(precision: "Precision | str | None", device: str | torch.device) -> Precision | None:
    """A Precision from what a caller may give: one, the name of a format, or None for "leave all as it is".

    Raises CourseError for an unknown name, and for a Precision that is for another kind of device.
    """
    where = torch.device(device).type
    if precision is None:
        return None
    if isinstance(precision, str):
        return Precision(precision, where)  # type: ignore[arg-type]  # checked there
    if precision.device != where:
        raise CourseError(
            f"The precision is for {precision.device} and the model is on {where}: build it as "
            f'Precision("{precision.format}", "{where}"), or choose("{where}").'
        )
    return precision


def peak_speedups(card: Accelerator) -> dict[Format, float]:
    """How many times as fast as fp32 a card's peak rate is in each format, from the catalogue.

    A format for which the card has no fast circuits, or of which no source tells, is left out. These are
    peaks: a training step gains less. Raises CourseError when the card's fp32 rate is not known.
    """
    if card.fp32_tflops is None:
        raise CourseError(f"The catalogue does not know the fp32 rate of {card.name}: choose another card.")
    rates: dict[Format, float | None] = {
        "tf32": card.tf32_tflops,
        "bf16": card.bf16_tflops,
        "fp16": card.fp16_tflops,
    }
    return {name: rate / card.fp32_tflops for name, rate in rates.items() if rate is not None}


def choose(device: str | torch.device, speedups: Mapping[Format, float] | None = None) -> Precision:
    """The format that is fast on this device, not merely one that it can hold.

    `speedups` says how many times as fast as fp32 a matrix product is in each format, for a card that is
    elsewhere (`peak_speedups`, for one); left out, it is measured here, within a second. bf16 is chosen where
    it is worthwhile and nearly as fast as fp16, else fp16, else tf32, else fp32. Raises CourseError for a
    speed-up that is not a positive number, and for a device that is none or, to be measured, not here.
    """
    device = _device(device)
    if speedups is None:
        speedups, whose = matmul_speedups(device), "measured here"
    else:
        whose = "as given"
    for name, speedup in speedups.items():
        if name not in FORMATS or not isinstance(speedup, int | float) or not 0 < speedup < math.inf:
            raise CourseError(
                f"A speed-up is a positive number for one of {', '.join(FORMATS)}, not {name!r}: {speedup!r}."
            )
    bf16, fp16, tf32 = (speedups.get(name, 0.0) for name in ("bf16", "fp16", "tf32"))
    chosen: Format = "fp32"
    if bf16 >= WORTHWHILE and bf16 >= NEARLY * fp16:
        chosen = "bf16"
    elif fp16 >= WORTHWHILE:
        chosen = "fp16"
    elif tf32 >= WORTHWHILE:
        chosen = "tf32"
    return Precision(chosen, device.type, dict(speedups), _reason(chosen, speedups, whose))


def _device(name: str | torch.device) -> torch.device:
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise CourseError(f"{name!r} is no device of torch: use cuda, mps or cpu.") from error


def _reason(chosen: Format, speedups: Mapping[Format, float], whose: str) -> str:
    if chosen == "fp32":
        reason = f"no shorter format makes a matrix product {WORTHWHILE} times as fast as fp32 ({whose})"
    else:
        reason = f"a matrix product in {chosen} is {_times(speedups[chosen])} ({whose})"
    slow = [name for name in ("bf16", "fp16") if 0 < speedups.get(name, 1.0) < 1 / WORTHWHILE]
    told = [f"{name} can be held here but is {_times(speedups[name])}" for name in slow]  # type: ignore[index]
    unknown = [name for name in ("bf16", "fp16") if name not in speedups]
    told += [f"no fast circuits for {name} are known, so it is not counted on" for name in unknown]
    return "; ".join([reason, *told])


def _times(speedup: float) -> str:
    if speedup < 1 / WORTHWHILE:
        return f"{1 / speedup:.3g} times as slow as fp32"
    return f"{speedup:.3g} times as fast as fp32"
