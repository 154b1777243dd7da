"""Lesson 06, oom: how much memory does training need, which batch fits, and what does a message ask for?

The learner writes:

    def training_bytes(parameters: int, states: int) -> int
        parameters: numbers that are trained, in float32
        states: numbers that the optimizer keeps for each of them (0 SGD, 1 momentum, 2 AdamW)
        returns the bytes of parameters, gradients and states together

    def largest_batch(batch_a: int, mib_a: float, batch_b: int, mib_b: float, limit_mib: float) -> int
        two batch sizes with the memory that a step took, and a limit; memory is a straight line in the batch
        returns the largest batch size within the limit; 0 if not even one sample fits

    def accumulation_steps(global_batch: int, fits: int) -> int
        returns the fewest micro-batches of equal size, each of at most `fits` samples, that make the global
        batch

and reads a message. The lesson hands them in as

    check("oom.training_bytes", training_bytes)
    check("oom.largest_batch", largest_batch)
    check("oom.accumulation_steps", accumulation_steps)
    check("oom.first_remedy", "b")
"""

from __future__ import annotations

import math

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import Choice, NumericFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer


def training_bytes(parameters: int, states: int) -> int:
    """Bytes of float32 parameters, gradients and optimizer states."""
    return 4 * parameters * (2 + states)


def _right_part_by_part(parameters: int, states: int) -> int:
    weights = gradients = 4 * parameters
    return weights + gradients + states * 4 * parameters


TRAINING_BYTES = Exercise(
    id="oom.training_bytes",
    title="What the model itself needs",
    difficulty=1,
    minutes=4,
    hints=(
        "Which three things are as large as the model, or a multiple of it?",
        "A number in float32 has 32 bits. How many bytes is that?",
        "Count the numbers that stand in memory for one parameter: itself, its gradient, its states.",
    ),
    checker=NumericFunction(
        reference=training_bytes,
        cases=(
            Case({"parameters": 1_000_000, "states": 2}),
            Case({"parameters": 25_557_032, "states": 1}, "This is ResNet-50 with momentum."),
            Case({"parameters": 1_000, "states": 0}, "Plain SGD keeps nothing. What is left?"),
            Case({"parameters": 7_000_000_000, "states": 2}, "Seven billion parameters."),
        ),
        diagnoses=(
            Diagnosis(
                lambda n, states: 4 * n * (1 + states),
                "One of the three is left out: what does backward make?",
            ),
            Diagnosis(
                lambda n, states: 16 * n,
                "That is right for AdamW alone. What with an optimizer that keeps fewer numbers?",
            ),
            Diagnosis(lambda n, states: n * (2 + states), "You count numbers. How many bytes has each?"),
            Diagnosis(
                lambda n, states: 2 * n * (2 + states), "You count two bytes a number. That would be 16 bits."
            ),
            Diagnosis(
                lambda n, states: 8 * n * (2 + states),
                "You count eight bytes a number. That would be 64 bits.",
            ),
            Diagnosis(
                lambda n, states: 4 * n * 2, "The optimizer makes no difference to your answer. Should it?"
            ),
            Diagnosis(
                lambda n, states: 4 * n * states, "You count the optimizer's states alone. What else is kept?"
            ),
            Diagnosis(lambda n, states: 4 * n, "Those are the parameters alone. Training keeps more."),
            Diagnosis(
                lambda n, states: 32 * n * (2 + states), "Those are bits. The answer is wanted in bytes."
            ),
        ),
    ),
    right_answers=(
        training_bytes,
        _right_part_by_part,
        lambda parameters, states: sum(4 * parameters for _ in range(states + 2)),
    ),
    wrong_answers=(
        WrongAnswer(lambda n, states: 16 * n, "right for AdamW alone"),
        WrongAnswer(lambda n, states: 4 * n * (2 + states) / 2**20, "off by one factor"),
        WrongAnswer(lambda n, states: 4 * n * (3 + states), "too large"),
        WrongAnswer(lambda n: 16 * n, "it must take parameters, states"),
        WrongAnswer(lambda n, states: print(4 * n * (2 + states)), "a `return` missing"),
        WrongAnswer(16_000_000, "without parentheses"),
    ),
)


def largest_batch(batch_a: int, mib_a: float, batch_b: int, mib_b: float, limit_mib: float) -> int:
    """The largest batch on the line through two measurements that stays within the limit; 0 for none."""
    per_sample = (mib_b - mib_a) / (batch_b - batch_a)
    fixed = mib_a - per_sample * batch_a
    return max(0, math.floor((limit_mib - fixed) / per_sample + 1e-9))


def _right_with_a_loop(batch_a: int, mib_a: float, batch_b: int, mib_b: float, limit_mib: float) -> int:
    per_sample = (mib_b - mib_a) / (batch_b - batch_a)
    fixed = mib_a - per_sample * batch_a
    size = 0
    while fixed + per_sample * (size + 1) <= limit_mib:
        size += 1
    return size


def _through_the_origin(batch_a: int, mib_a: float, batch_b: int, mib_b: float, limit_mib: float) -> int:
    return int(limit_mib / (mib_b / batch_b))


def _without_zero(batch_a: int, mib_a: float, batch_b: int, mib_b: float, limit_mib: float) -> int:
    per_sample = (mib_b - mib_a) / (batch_b - batch_a)
    return math.floor((limit_mib - (mib_a - per_sample * batch_a)) / per_sample)


def _case(*numbers: float, remark: str = "") -> Case:
    names = ("batch_a", "mib_a", "batch_b", "mib_b", "limit_mib")
    return Case(dict(zip(names, numbers, strict=True)), remark)


_SHARED_BY_SAMPLES = "You share all the memory among the samples. What stays when the batch has none?"

LARGEST_BATCH = Exercise(
    id="oom.largest_batch",
    title="The largest batch from two measurements",
    difficulty=2,
    minutes=8,
    hints=(
        "From one measurement to the other the batch grew by some samples, and the memory by some MiB. What "
        "does one sample take?",
        "A batch of no samples would still need something: parameters, gradients, states. How much is it?",
        "Take the fixed part off the limit. How many samples does the rest hold, whole ones?",
    ),
    checker=NumericFunction(
        reference=largest_batch,
        cases=(
            _case(4, 1300.0, 8, 1600.0, 4000.0),
            _case(8, 640.0, 24, 896.0, 1024.0),
            _case(10, 2500.0, 20, 4000.0, 9999.0, remark="The last sample does not fit as a whole here."),
            _case(16, 900.0, 32, 1700.0, 400.0, remark="The limit is below both measurements here."),
            _case(
                2,
                7000.0,
                4,
                8000.0,
                5100.0,
                remark="Not even one sample fits here.",
            ),
        ),
        diagnoses=(
            Diagnosis(_through_the_origin, _SHARED_BY_SAMPLES),
            Diagnosis(lambda a, mib_a, b, mib_b, limit: int(limit / (mib_a / a)), _SHARED_BY_SAMPLES),
            Diagnosis(lambda a, mib_a, b, mib_b, limit: limit * a / mib_a, _SHARED_BY_SAMPLES),
            Diagnosis(lambda a, mib_a, b, mib_b, limit: limit * b / mib_b, _SHARED_BY_SAMPLES),
            Diagnosis(
                lambda a, mib_a, b, mib_b, limit: (
                    (limit - (mib_a - (mib_b - mib_a) / (b - a) * a)) / ((mib_b - mib_a) / (b - a))
                ),
                "That is the point where the line meets the limit. How many whole samples fit below it?",
            ),
            *(
                Diagnosis(
                    lambda a, mib_a, b, mib_b, limit, whole=whole: whole(limit / ((mib_b - mib_a) / (b - a))),
                    "You leave out what a step needs whatever the batch is.",
                )
                for whole in (int, float)
            ),
            *(
                Diagnosis(
                    lambda a, mib_a, b, mib_b, limit, whole=whole: whole(
                        (limit - mib_a) / ((mib_b - mib_a) / (b - a))
                    ),
                    "You count how many samples can be added to the first batch. Which batch is that in all?",
                )
                for whole in (int, math.floor)  # they differ where the limit is below the first measurement
            ),
            Diagnosis(
                lambda a, mib_a, b, mib_b, limit: math.ceil(
                    (limit - (mib_a - (mib_b - mib_a) / (b - a) * a)) / ((mib_b - mib_a) / (b - a))
                ),
                "You round up. Then the last sample does not fit.",
            ),
            Diagnosis(_without_zero, "What does your function say where not even one sample fits?"),
        ),
    ),
    right_answers=(largest_batch, _right_with_a_loop),
    wrong_answers=(
        WrongAnswer(
            lambda batch_a, mib_a, batch_b, mib_b, limit_mib: int(batch_b * limit_mib / mib_b),
            "share all the memory",
        ),
        WrongAnswer(
            lambda batch_a, mib_a, batch_b, mib_b, limit_mib: limit_mib / (mib_a / batch_a),
            "share all the memory",
        ),
        WrongAnswer(
            lambda batch_a, mib_a, batch_b, mib_b, limit_mib: (
                limit_mib / ((mib_b - mib_a) / (batch_b - batch_a))
            ),
            "leave out what a step needs",
        ),
        WrongAnswer(_without_zero, "not even one sample"),
        WrongAnswer(
            lambda batch_a, mib_a, batch_b, mib_b, limit_mib: (
                (limit_mib - mib_a) // ((mib_b - mib_a) / (batch_b - batch_a))
            ),
            "can be added to the first batch",
        ),
        WrongAnswer(lambda batch_a, mib_a, batch_b, mib_b, limit_mib: batch_b, "too small"),
        WrongAnswer(lambda batch_a, mib_a, batch_b, mib_b, limit_mib: "many", "without quotes"),
        WrongAnswer(lambda a, b: 1, "it must take batch_a"),
    ),
)


def accumulation_steps(global_batch: int, fits: int) -> int:
    """The fewest equal micro-batches of at most ``fits`` samples that make ``global_batch``."""
    return next(n for n in range(1, global_batch + 1) if global_batch % n == 0 and global_batch // n <= fits)


def _right_by_counting_down(global_batch: int, fits: int) -> int:
    size = min(global_batch, fits)
    while global_batch % size:
        size -= 1
    return global_batch // size


_UNEQUAL = "Your micro-batches are not all of one size: the last one would be smaller, and count too much."

ACCUMULATION_STEPS = Exercise(
    id="oom.accumulation_steps",
    title="The same batch, in parts",
    difficulty=3,
    minutes=6,
    hints=(
        "Try a global batch of 12 of which 5 samples fit. Write down micro-batches that are all of one size.",
        "Two conditions at once: the parts are equal, and none is too large.",
        "Look at 1, 2, 3 ... parts in turn. Which is the first number of parts that meets both?",
    ),
    checker=NumericFunction(
        reference=accumulation_steps,
        cases=(
            Case({"global_batch": 256, "fits": 64}),
            Case({"global_batch": 32, "fits": 100}, "All of it fits at once here."),
            Case({"global_batch": 12, "fits": 5}, _UNEQUAL),
            Case({"global_batch": 96, "fits": 36}, _UNEQUAL),
            Case({"global_batch": 7, "fits": 3}, "Seven can be parted equally in two ways only."),
            Case({"global_batch": 512, "fits": 1}, "One sample at a time here."),
        ),
        diagnoses=(
            Diagnosis(lambda whole, fits: math.ceil(whole / fits), _UNEQUAL),
            Diagnosis(
                lambda whole, fits: whole // fits,
                "Your parts together are not the whole batch, or too large.",
            ),
            Diagnosis(lambda whole, fits: whole / fits, "A number of micro-batches is a whole number."),
            Diagnosis(
                lambda whole, fits: whole // _right_by_counting_down(whole, fits),
                "That is the size of a micro-batch. How many of them are there?",
            ),
            Diagnosis(
                lambda whole, fits: whole, "One sample at a time works, and is slow. What is the fewest?"
            ),
        ),
    ),
    right_answers=(
        accumulation_steps,
        _right_by_counting_down,
        lambda global_batch, fits: min(
            n for n in range(1, global_batch + 1) if global_batch % n == 0 and n * fits >= global_batch
        ),
    ),
    wrong_answers=(
        WrongAnswer(lambda global_batch, fits: -(-global_batch // fits), "not all of one size"),
        WrongAnswer(lambda global_batch, fits: max(1, global_batch // fits), "too small"),
        WrongAnswer(lambda global_batch, fits: fits, "too large"),
        WrongAnswer(lambda global_batch, fits: math.ceil(math.log2(global_batch)), "too"),
        WrongAnswer(lambda global_batch, fits: None, "a `return` missing"),
    ),
)

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
    "23.64 GiB of which 11.06 MiB is free. Process 4711 has 19.80 GiB memory in use. Including non-PyTorch "
    "memory, this process has 3.82 GiB memory in use. Of the allocated memory 3.21 GiB is allocated by "
    "PyTorch, and 118.44 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
"""The message of the last exercise."""

FIRST_REMEDY = Exercise(
    id="oom.first_remedy",
    title="What does this message ask for?",
    difficulty=2,
    minutes=4,
    hints=(
        "Add up: who holds how much of the card?",
        "The size that was asked for is only the last straw. The hint at the end stands in every message.",
        "Compare what this process has in use with the whole card. Where is the rest?",
    ),
    checker=Choice(
        right="c",
        wrong={
            "a": "How much of the card does this process hold? Could a smaller batch give it the rest?",
            "b": "The hint stands in every such message. Compare what is reserved and unallocated with it.",
            "d": "That would give back what is cached and unused: read how much that is.",
            "e": "Is the card too small? Look at who holds most of it.",
        },
    ),
    right_answers=("c", " C "),
    wrong_answers=(
        WrongAnswer("a", "How much of the card"),
        WrongAnswer("b", "in every such message"),
        WrongAnswer("d", "read how much"),
        WrongAnswer("e", "who holds most"),
        WrongAnswer("f", "not among the options"),
        WrongAnswer(3, "in quotes"),
    ),
)

EXERCISES = (TRAINING_BYTES, LARGEST_BATCH, ACCUMULATION_STEPS, FIRST_REMEDY)
