"""Lesson 03, precision: what does a number format hold, and in which order is a step in fp16 done?

The learner writes:

    def scale_that_saves(gradient: float) -> float
        the smallest power of two, 1 or more, with which fp16 holds the gradient in full: 2**-14 or more

    def update_in_bf16(weight: float, update: float) -> str
        "changes" or "stays": what becomes of a weight kept in bf16 when the update is added to it

    def training_bytes(parameters: int, activations: int) -> int
        AdamW under autocast: float32 weights, gradients and two moments; the activations in 16 bits

    def mended_step(model, optimizer, scaler, inputs, targets, max_norm) -> None
        one training step in fp16, with gradients clipped to max_norm

The lesson hands them in as

    check("precision.scale", scale_that_saves)
    check("precision.small_update", update_in_bf16)
    check("precision.bytes", training_bytes)
    check("precision.mended_step", mended_step)
"""

from __future__ import annotations

import math

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import NumericFunction, WordFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer
from course_lib.teach.exercises.step_checker import STEP_RIGHT, STEP_WRONG, StepChecker

SMALLEST_NORMAL = 2.0**-14


def scale_that_saves(gradient: float) -> float:
    """The smallest power of two, 1 at least, that lifts the gradient to fp16's smallest full number."""
    return float(2.0 ** max(0, math.ceil(-14 - math.log2(gradient))))


def _right_by_doubling(gradient: float) -> float:
    scale = 1.0
    while gradient * scale < 2**-14:
        scale *= 2
    return scale


def _no_power_of_two(gradient: float) -> float:
    return max(1.0, SMALLEST_NORMAL / gradient)


def _no_power_of_two_nor_limit(gradient: float) -> float:
    return SMALLEST_NORMAL / gradient


def _by_smallest(gradient: float) -> float:
    return float(2.0 ** max(0, math.ceil(-24 - math.log2(gradient))))


def _below_one(gradient: float) -> float:
    return float(2.0 ** math.ceil(-14 - math.log2(gradient)))


SCALE = Exercise(
    id="precision.scale",
    title="The scale that saves a gradient",
    difficulty=2,
    minutes=5,
    hints=(
        "Is the gradient large enough for fp16 as it is? If not, what does a GradScaler do with its scale?",
        "Double the scale in a loop until gradient × scale is large enough.",
        "The loop goes on while gradient × scale is below 2**-14.",
    ),
    checker=NumericFunction(
        reference=scale_that_saves,
        cases=(
            Case({"gradient": 1e-7}),
            Case({"gradient": 3e-6}),
            Case({"gradient": 2.0**-30}, "The gradient is a power of two: the limit is reached exactly."),
            Case({"gradient": 0.25}, "This gradient is large enough as it is."),
            Case({"gradient": 2.0**-14}, "This gradient is large enough as it is, just so."),
            Case({"gradient": 5e-12}),
        ),
        diagnoses=(
            Diagnosis(_no_power_of_two, "The size is right, but a GradScaler's scale is a power of two."),
            Diagnosis(
                _no_power_of_two_nor_limit,
                "That lifts it just so far, but a GradScaler's scale is a power of two and never below one.",
            ),
            Diagnosis(
                _by_smallest,
                "You lift it to the smallest number that is not zero. There hardly any bits of it are left: "
                "it should be held in full.",
            ),
            Diagnosis(_below_one, "For a large gradient you make it smaller. There, no scale is needed."),
        ),
    ),
    right_answers=(_right_by_doubling, scale_that_saves),
    wrong_answers=(
        WrongAnswer(lambda gradient: 65536.0, "too"),
        WrongAnswer(lambda gradient: 2**-14 / gradient, "a power of two and never"),
        WrongAnswer(print, "a `return` missing"),
    ),
)

CHANGES, STAYS = "changes", "stays"


def _bf16(number: float) -> float:
    """The number as bfloat16 holds it: 8 significant bits, the nearest, ties to even."""
    fraction, exponent = math.frexp(number)
    return math.ldexp(round(fraction * 2**8), exponent - 8)


def update_in_bf16(weight: float, update: float) -> frozenset[str]:
    """Whether a weight in bf16 is another one after the update."""
    held = _bf16(weight)
    return frozenset((STAYS if _bf16(held + _bf16(update)) == held else CHANGES,))


def _right_by_rounding(weight: float, update: float) -> str:
    before = _bf16(weight)
    after = _bf16(before + _bf16(update))
    return "stays" if after == before else "changes"


def _right_by_half_a_step(weight: float, update: float) -> str:
    step = 2.0 ** (math.floor(math.log2(abs(weight))) - 7) if weight else 0.0
    return "changes" if abs(update) > step / (2 if update * weight > 0 else 4) else "stays"


def _in_float32(weight: float, update: float) -> str:
    return CHANGES if weight + update != weight else STAYS


def _absolute(weight: float, update: float) -> str:
    return STAYS if abs(update) < 2**-8 else CHANGES


def _absolute_step(weight: float, update: float) -> str:
    return STAYS if abs(update) < 2**-7 else CHANGES


def _whole_step(weight: float, update: float) -> str:
    return STAYS if abs(update) < 2**-7 * abs(weight) else CHANGES


def _half_a_step_at_one(weight: float, update: float) -> str:
    return STAYS if abs(update) < 2**-8 * abs(weight) else CHANGES


SMALL_UPDATE = Exercise(
    id="precision.small_update",
    title="A weight that cannot move",
    difficulty=2,
    minutes=5,
    hints=(
        "Make the weight a tensor with dtype=torch.bfloat16 and add the update. What do you get?",
        "Compare the weight before and after: the same number, or another?",
        "Both the weight and the sum must be bfloat16. Then == tells.",
    ),
    checker=WordFunction(
        reference=update_in_bf16,
        words=(CHANGES, STAYS),
        cases=(
            Case({"weight": 1.0, "update": 0.001}),
            Case({"weight": 1.0, "update": 0.01}),
            Case({"weight": 0.01, "update": 0.001}, "The update is a tenth of the weight."),
            Case({"weight": 100.0, "update": 0.1}, "The larger the weight, the wider its numbers lie apart."),
            Case({"weight": 0.5, "update": -0.0001}),
            Case({"weight": 0.0, "update": 1e-6}, "Near zero, the numbers lie close together."),
            Case({"weight": 1.0, "update": 0.005}, "The sum is rounded to the nearest number, not down."),
            Case({"weight": 1.9, "update": 0.005}, "From 1 to 2 the numbers lie equally far apart."),
        ),
        diagnoses=(
            Diagnosis(_absolute, "A fixed limit does not fit: it depends on how large the weight is."),
            Diagnosis(_absolute_step, "A fixed limit does not fit: it depends on how large the weight is."),
            Diagnosis(
                _whole_step,
                "You take a whole step to the next number as the limit. The sum is rounded to the nearest "
                "one: which updates does that carry over?",
            ),
            Diagnosis(
                _half_a_step_at_one,
                "Your limit grows with the weight. The steps do not: from 1 to 2 all are equally wide.",
            ),
            Diagnosis(lambda weight, update: STAYS, "You always say that it stays. Try 1 and 0.01."),
            Diagnosis(
                _in_float32,
                "You say it always changes. So it is in float32; what comes out when the weight is bf16?",
            ),
        ),
        other_words={"change": "The word ends with an s.", "stay": "The word ends with an s."},
    ),
    right_answers=(_right_by_rounding, _right_by_half_a_step),
    wrong_answers=(
        WrongAnswer(lambda weight, update: _right_by_rounding(weight, update) == CHANGES, "a word is wanted"),
        WrongAnswer(
            lambda weight, update: STAYS if abs(update) < 0.0078 * abs(weight) else CHANGES, "a whole step"
        ),
        WrongAnswer(lambda weight, update: _right_by_rounding(weight, update)[:-1], "ends with an s"),
    ),
)


def training_bytes(parameters: int, activations: int) -> int:
    """Bytes of a step with AdamW under autocast, copies and temporaries left aside."""
    return 4 * 4 * parameters + 2 * activations


def _all_short(parameters: int, activations: int) -> int:
    return 2 * 4 * parameters + 2 * activations


def _all_long(parameters: int, activations: int) -> int:
    return 4 * 4 * parameters + 4 * activations


def _one_moment(parameters: int, activations: int) -> int:
    return 4 * 3 * parameters + 2 * activations


def _weights_short(parameters: int, activations: int) -> int:
    return (2 + 4 + 8) * parameters + 2 * activations


BYTES = Exercise(
    id="precision.bytes",
    title="What is halved, and what is not?",
    difficulty=1,
    minutes=4,
    hints=(
        "Four things are kept for each weight. Which are they, and in which type are they under autocast?",
        "The weight, its gradient and the two moments of AdamW are float32, 4 bytes each.",
        "Only the activations take 2 bytes each. Add both parts.",
    ),
    checker=NumericFunction(
        reference=training_bytes,
        cases=(
            Case({"parameters": 1_000_000, "activations": 5_000_000}),
            Case(
                {"parameters": 57_000, "activations": 0},
                "Without activations, only what belongs to weights is left.",
            ),
            Case({"parameters": 0, "activations": 100}),
            Case({"parameters": 124_000_000, "activations": 2_000_000_000}),
        ),
        diagnoses=(
            Diagnosis(
                _all_short,
                "Of what belongs to the weights, half is missing. Is any of it in 16 bits, or forgotten?",
            ),
            Diagnosis(_all_long, "You halve nothing: the activations are in 16 bits."),
            Diagnosis(_one_moment, "AdamW remembers more than one number of each weight."),
            Diagnosis(_weights_short, "Autocast leaves the weights themselves as they are."),
        ),
    ),
    right_answers=(training_bytes, lambda parameters, activations: parameters * 16 + activations * 2),
    wrong_answers=(
        WrongAnswer(
            lambda parameters, activations: str(training_bytes(parameters, activations)), "number is wanted"
        ),
    ),
)

MENDED_STEP = Exercise(
    id="precision.mended_step",
    title="Mend a step in fp16",
    difficulty=3,
    minutes=8,
    hints=(
        "Ask of each line: are the gradients scaled at this moment, or not? In which state must they be?",
        "The bound is meant for the true gradients. So they are unscaled before they are clipped.",
        "After backward: unscale_, clip, the scaler's step in place of the optimizer's, update. Each once.",
    ),
    checker=StepChecker(),
    right_answers=STEP_RIGHT,
    wrong_answers=STEP_WRONG,
)

EXERCISES = (SCALE, SMALL_UPDATE, BYTES, MENDED_STEP)
