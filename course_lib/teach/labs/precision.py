"""Lab of lesson 03: which numbers of a training step does a format lose, and at which scale?

`digits_ranges` looks at a step of the course's network, after it has been trained for a while. The lab puts
a format, a kind of number and a scale over the histogram.
"""

from __future__ import annotations

from functools import lru_cache, partial, update_wrapper

from course_lib.errors import CourseError
from course_lib.teach.labs.frame import Lab, choices, menu, whole_numbers
from course_lib.teach.picture import Picture
from course_lib.teach.plots_precision import plot_exponents
from course_lib.train.number_formats.float_formats import Format
from course_lib.train.number_formats.value_ranges import KINDS, Kind, ValueRanges

LEAST, MOST = -8, 40  # powers of two that the slider reaches
FARTHEST = 200  # and what may be asked for in code: beyond, everything is zero or infinite in any format


@lru_cache(maxsize=2)
def digits_ranges(epochs: int = 3) -> ValueRanges:
    """The sizes of all numbers in one step of the digits network, after `epochs` of training from seed 0."""
    import torch
    from torch.utils.data import DataLoader

    from course_lib.models.zoo import DigitsCNN
    from course_lib.train.data import Digits
    from course_lib.train.loop import train
    from course_lib.train.number_formats.value_ranges import value_ranges

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, loader = DigitsCNN(), DataLoader(Digits("train"), batch_size=64, shuffle=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        train(model, loader, optimizer, epochs=epochs, progress=False)
        return value_ranges(model, next(iter(loader)))


def survivors(
    format: Format = "fp16",
    power: int = 0,
    kind: Kind = "activation gradients",
    *,
    ranges: ValueRanges | None = None,
) -> Picture:
    """The numbers of this kind, multiplied by 2^power, against the range of a format.

    `ranges` are those of a step of your own model; left out, of the digits network. Raises CourseError for an
    unknown format or kind, and for a power that is no whole number from -200 to 200.
    """
    if kind not in KINDS:
        raise CourseError(f"{kind!r} is no kind of number here: choose one of {', '.join(KINDS)}.")
    if not isinstance(power, int) or abs(power) > FARTHEST:
        raise CourseError(
            f"The power of two is a whole number from -{FARTHEST} to {FARTHEST}, not {power!r}."
        )
    taken = digits_ranges() if ranges is None else ranges
    if not hasattr(taken, "of"):
        raise CourseError(f"{ranges!r:.60} holds no sizes: give what value_ranges(model, batch) returned.")
    counted = taken.of(kind)
    return plot_exponents(counted, format, 2.0**power, what=kind)


def lab(ranges: ValueRanges | None = None) -> Lab:
    """A format, a scale and a kind of number over the histogram; of the digits network without `ranges`."""

    return Lab(
        survivors if ranges is None else update_wrapper(partial(survivors, ranges=ranges), survivors),
        {
            "format": choices("format", ("fp32", "tf32", "bf16", "fp16"), "fp16"),
            "power": whole_numbers("scale, 2 to the", LEAST, MOST, 0),
            "kind": menu("numbers", KINDS, "activation gradients"),
        },
    )
