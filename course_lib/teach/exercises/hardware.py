"""Lesson 01, hardware: the roof, the hours, and what is wrong with a published number.

The learner writes:

    def training_hours(samples: int, epochs: int, samples_per_second: float) -> float
        the hours of a whole training

    def attainable(peak_tflops: float, bandwidth_gb_s: float, flops_per_byte: float) -> float
        the most TFLOPS that an operation of this intensity can reach on the card

    def how_counted(published_tflops: float, sm_count: int, boost_mhz: float, flops_per_clock: int) -> str
        "dense" if the published peak follows from the chip, "doubled" if it is twice that, else "wrong"
        flops_per_clock: operations that one SM does in one clock, dense, with FP32 accumulation

and names the number that cannot be right. The lesson hands them in as

    check("hardware.hours", training_hours)
    check("hardware.attainable", attainable)
    check("hardware.how_counted", how_counted)
    check("hardware.odd_one", "c")
"""

from __future__ import annotations

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import Choice, NumericFunction, WordFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer


def attainable(peak_tflops: float, bandwidth_gb_s: float, flops_per_byte: float) -> float:
    """The roofline: the lower of the peak and of what the memory can feed, in TFLOPS."""
    return min(peak_tflops, bandwidth_gb_s * flops_per_byte / 1000)


def _with_if(peak_tflops: float, bandwidth_gb_s: float, flops_per_byte: float) -> float:
    fed = bandwidth_gb_s * 1e9 * flops_per_byte / 1e12
    if fed < peak_tflops:
        return fed
    return peak_tflops


ATTAINABLE = Exercise(
    id="hardware.attainable",
    title="The roof over an operation",
    difficulty=2,
    minutes=6,
    hints=(
        "Two things limit an operation. Which of them wins: the higher or the lower limit?",
        "The memory brings so many bytes a second. How many operations can be done with that many bytes?",
        "GB/s times operations for each byte is GFLOP/s. Mind the step from giga to tera.",
    ),
    checker=NumericFunction(
        reference=attainable,
        cases=(
            Case(
                {"peak_tflops": 70.0, "bandwidth_gb_s": 900.0, "flops_per_byte": 0.25},
                "This operation computes little for each byte.",
            ),
            Case(
                {"peak_tflops": 70.0, "bandwidth_gb_s": 900.0, "flops_per_byte": 400.0},
                "This operation computes much for each byte.",
            ),
            Case({"peak_tflops": 300.0, "bandwidth_gb_s": 2000.0, "flops_per_byte": 100.0}),
            Case({"peak_tflops": 65.0, "bandwidth_gb_s": 320.0, "flops_per_byte": 250.0}),
            Case({"peak_tflops": 1.0, "bandwidth_gb_s": 40.0, "flops_per_byte": 0.02}, "A processor."),
        ),
        diagnoses=(
            Diagnosis(
                lambda peak, gb, intensity: max(peak, gb * intensity / 1000),
                "No operation gets above its lower limit. You take the higher one.",
            ),
            Diagnosis(
                lambda peak, gb, intensity: min(peak, gb * intensity),
                "You compare TFLOPS with GFLOP/s. Bring both to the same unit.",
            ),
            Diagnosis(
                lambda peak, gb, intensity: min(peak, gb / intensity / 1000),
                "The more is computed for each byte, the *more* the memory can feed. Yours falls.",
            ),
            Diagnosis(
                lambda peak, gb, intensity: gb * intensity / 1000,
                "That is what the memory can feed. Can the card also compute so fast?",
            ),
            Diagnosis(
                lambda peak, gb, intensity: peak,
                "That is the peak of the data sheet. Does each operation get there, whatever it moves?",
            ),
        ),
    ),
    right_answers=(attainable, _with_if),
    wrong_answers=(
        WrongAnswer(lambda peak, gb, intensity: min(peak * 1000, gb * intensity), "which unit"),
        WrongAnswer(lambda peak, gb, intensity: print(attainable(peak, gb, intensity)), "a `return` missing"),
        WrongAnswer(lambda peak, gb, intensity: (peak, gb), "a tuple"),
        WrongAnswer(70, "without parentheses"),
    ),
)


def training_hours(samples: int, epochs: int, samples_per_second: float) -> float:
    """Samples seen in all, over the rate, in hours."""
    return samples * epochs / samples_per_second / 3600


def _in_days(samples: int, epochs: int, samples_per_second: float) -> float:
    epoch_s = samples / samples_per_second
    return epochs * epoch_s / 60 / 60


HOURS = Exercise(
    id="hardware.hours",
    title="Hours of a training",
    difficulty=1,
    minutes=3,
    hints=(
        "How many samples does the model see in the whole training?",
        "So many samples at so many a second: how many seconds?",
        "An hour has 60 minutes of 60 seconds.",
    ),
    checker=NumericFunction(
        reference=training_hours,
        cases=(
            Case({"samples": 100_000, "epochs": 90, "samples_per_second": 500.0}),
            Case({"samples": 1_281_167, "epochs": 90, "samples_per_second": 905.0}),
            Case({"samples": 50_000, "epochs": 1, "samples_per_second": 2.5}, "A slow computer."),
        ),
        diagnoses=(
            Diagnosis(lambda n, e, r: n * e / r, "Those are seconds. Hours are wanted."),
            Diagnosis(lambda n, e, r: n * e / r / 60, "Those are minutes. Hours are wanted."),
            Diagnosis(lambda n, e, r: n / r / 3600, "That is one epoch. How often is the data set seen?"),
            Diagnosis(
                lambda n, e, r: n * e * r / 3600,
                "Your training gets longer when the rate goes up. Should it?",
            ),
            Diagnosis(lambda n, e, r: n * e / r / 86_400, "Those are days. Hours are wanted."),
        ),
    ),
    right_answers=(training_hours, _in_days),
    wrong_answers=(
        WrongAnswer(lambda n, e, r: round(n * e / r / 3600, 1), "rounded"),
        WrongAnswer(lambda n, e, r: int(n * e / r // 3600), "too small"),
        WrongAnswer(lambda n, e, r: f"{n * e / r / 3600} h", "without quotes"),
        WrongAnswer(35.4, "without parentheses"),
    ),
)

DENSE, DOUBLED, WRONG = "dense", "doubled", "wrong"


def how_counted(
    published_tflops: float, sm_count: int, boost_mhz: float, flops_per_clock: int
) -> frozenset[str]:
    """Compare with SMs x clock x operations a clock, with 5 % of tolerance."""
    dense = sm_count * boost_mhz * 1e6 * flops_per_clock / 1e12
    ratio = published_tflops / dense
    if abs(ratio - 1) <= 0.05:
        return frozenset((DENSE,))
    return frozenset((DOUBLED if abs(ratio / 2 - 1) <= 0.05 else WRONG,))


def _by_ratio(published_tflops: float, sm_count: int, boost_mhz: float, flops_per_clock: int) -> str:
    ratio = published_tflops * 1e12 / (sm_count * boost_mhz * 1e6 * flops_per_clock)
    if 0.95 < ratio < 1.05:
        return "dense"
    if 1.9 < ratio < 2.1:
        return "doubled"
    return "wrong"


def _by_rounding(published_tflops: float, sm_count: int, boost_mhz: float, flops_per_clock: int) -> str:
    dense = sm_count * boost_mhz * flops_per_clock / 1e6
    for word, times in (("dense", 1), ("doubled", 2)):
        if abs(published_tflops - times * dense) < 0.05 * times * dense:
            return word
    return "wrong"


def _exactly(published_tflops: float, sm_count: int, boost_mhz: float, flops_per_clock: int) -> str:
    dense = sm_count * boost_mhz * flops_per_clock / 1e6
    return DENSE if published_tflops == dense else DOUBLED if published_tflops == 2 * dense else WRONG


def _no_wrong(published_tflops: float, sm_count: int, boost_mhz: float, flops_per_clock: int) -> str:
    dense = sm_count * boost_mhz * flops_per_clock / 1e6
    return DOUBLED if published_tflops > 1.5 * dense else DENSE


HOW_COUNTED = Exercise(
    id="hardware.how_counted",
    title="Is this peak honest?",
    difficulty=3,
    minutes=8,
    hints=(
        "A chip can do: SMs x clock x operations in a clock. Compute that first, in TFLOPS.",
        "A megahertz is a million clocks a second; a TFLOPS is a million million operations a second.",
        "Divide the published number by yours. Near 1, near 2, or neither? Data sheets round: allow 5 %.",
    ),
    checker=WordFunction(
        reference=how_counted,
        words=(DENSE, DOUBLED, WRONG),
        cases=(
            Case({"published_tflops": 312.0, "sm_count": 108, "boost_mhz": 1410.0, "flops_per_clock": 2048}),
            Case(
                {"published_tflops": 330.3, "sm_count": 128, "boost_mhz": 2520.0, "flops_per_clock": 512},
                "An RTX 4090, as an advertisement counts.",
            ),
            Case({"published_tflops": 50.0, "sm_count": 100, "boost_mhz": 1000.0, "flops_per_clock": 500}),
            Case({"published_tflops": 71.2, "sm_count": 82, "boost_mhz": 1695.0, "flops_per_clock": 512}),
            Case(
                {"published_tflops": 624.0, "sm_count": 108, "boost_mhz": 1410.0, "flops_per_clock": 2048},
                "An A100, in the column for sparse matrices.",
            ),
            Case(
                {"published_tflops": 125.0, "sm_count": 28, "boost_mhz": 1777.0, "flops_per_clock": 512},
                "Somebody copied another card's number.",
            ),
            Case(
                {"published_tflops": 50.0, "sm_count": 82, "boost_mhz": 1695.0, "flops_per_clock": 512},
                "This number is too low for that chip.",
            ),
        ),
        diagnoses=(
            Diagnosis(_exactly, "Nothing agrees to the last digit: data sheets round. Allow a few percent."),
            Diagnosis(
                _no_wrong, "Some numbers are neither right nor doubled. Which ones fall between your rules?"
            ),
            Diagnosis(lambda *chip: DENSE, "You trust every number."),
            Diagnosis(lambda *chip: WRONG, "You trust no number. Is the unit of your own one right?"),
        ),
        other_words={"sparse": "The word is another one: it may also be counted with FP16 accumulation."},
    ),
    right_answers=(_by_ratio, _by_rounding),
    wrong_answers=(
        WrongAnswer(lambda t, sm, mhz, per: _by_ratio(t, sm, mhz * 1e6, per), "you trust no number"),
        WrongAnswer(lambda t, sm, mhz, per: _by_ratio(t, sm, mhz, per) == DENSE, "a word is wanted"),
        WrongAnswer(lambda t, sm, mhz, per: print(DENSE), "a `return` missing"),
        WrongAnswer("dense", "in text"),
    ),
)

ODD_ONE = Exercise(
    id="hardware.odd_one",
    title="One of these cannot be",
    difficulty=2,
    minutes=5,
    hints=(
        "Four of the lines are true, or at least meant so. Compare each with its card: `!course cards L4`.",
        "Think of the price and the watts of each card. Who would sell such a memory on a card of 72 W?",
        "One bandwidth belongs to a card that costs fifty times as much.",
    ),
    checker=Choice(
        right="c",
        wrong={
            "a": "1,979 is twice the dense 989.5: with 2:4 sparsity. Printed so; no training reaches it.",
            "b": "330 counts FP16 accumulation, which no training uses: twice too much, but no slip.",
            "d": "A GB is smaller than a GiB, and error correction takes some: 22 GiB are what is left.",
            "e": "Look it up: 936 GB/s is what the maker says, and what others have measured from below.",
        },
    ),
    right_answers=("c", " C "),
    wrong_answers=(WrongAnswer("L4", "not among the options"), WrongAnswer(3, "in quotes")),
)

EXERCISES = (HOURS, ATTAINABLE, HOW_COUNTED, ODD_ONE)
