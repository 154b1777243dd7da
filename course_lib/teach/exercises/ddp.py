"""Lesson 02, ddp: what do several ranks send, see and gain, and whose error is the first?

The learner writes:

    def sent_bytes(tensor_bytes: int, ranks: int) -> float
        bytes that one rank sends in a ring all-reduce

    def steps_per_epoch(samples: int, batch_size: int, ranks: int) -> int
        batch_size is that of one rank; a last step may have smaller shares

    def speedup(compute_s: float, exposed_s: float, ranks: int) -> float
        samples a second with all ranks, over those of one; each rank keeps its batch size

    first_cause: one of the letters "a" to "d"

The lesson hands them in as

    check("ddp.steps_per_epoch", steps_per_epoch)
    check("ddp.sent_bytes", sent_bytes)
    check("ddp.speedup", speedup)
    check("ddp.first_cause", first_cause)
"""

from __future__ import annotations

import math

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import Choice, NumericFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer


def sent_bytes(tensor_bytes: int, ranks: int) -> float:
    """Each of 2 (n - 1) rounds passes on one of n pieces."""
    rounds = 2 * (ranks - 1)
    return rounds * tensor_bytes / ranks


def _right_by_piece(tensor_bytes: int, ranks: int) -> float:
    piece = tensor_bytes / ranks
    total = 0.0
    for _ in range(ranks - 1):
        total += piece  # while they add up
        total += piece  # while the sums go round
    return total


SENT_BYTES = Exercise(
    id="ddp.sent_bytes",
    title="What does one rank send?",
    difficulty=2,
    minutes=6,
    hints=(
        "Look at the ring again: how large is one piece, and how many rounds are there?",
        "There are two loops of rounds. Each loop has one round fewer than there are ranks.",
        "Multiply the rounds by the bytes of one piece. Try it for 2 ranks, and for 1.",
    ),
    checker=NumericFunction(
        reference=sent_bytes,
        cases=(
            Case({"tensor_bytes": 12_000, "ranks": 3}),
            Case({"tensor_bytes": 102_400_000, "ranks": 8}),
            Case({"tensor_bytes": 4_096, "ranks": 2}),
            Case({"tensor_bytes": 102_401, "ranks": 7}),
            Case({"tensor_bytes": 1_000_000, "ranks": 100}),
            Case({"tensor_bytes": 5_000, "ranks": 1}, "A single rank has nobody to send to."),
        ),
        diagnoses=(
            Diagnosis(
                lambda size, n: (n - 1) * size / n,
                "That is one of the two loops. What do the ranks still lack when all pieces are added up?",
            ),
            Diagnosis(
                lambda size, n: 2 * (n - 1) * size,
                "You send the whole tensor in each round, or you count what all ranks send. One rank "
                "sends a part of it each time.",
            ),
            Diagnosis(
                lambda size, n: (n - 1) * size,
                "That is what a rank would send that gives its whole tensor to each other rank. The ring is "
                "thriftier.",
            ),
            Diagnosis(
                lambda size, n: 2 * size,
                "Nearly, with many ranks. With two or three, the number of ranks makes a difference.",
            ),
            Diagnosis(lambda size, n: 2 * size / n, "That is two pieces. How many rounds are there in all?"),
            Diagnosis(lambda size, n: size / n, "That is one piece. How many does a rank send?"),
            Diagnosis(
                lambda size, n: size, "The number of ranks makes no difference to your answer. Should it?"
            ),
        ),
    ),
    right_answers=(sent_bytes, _right_by_piece, lambda size, n: 2 * size * (1 - 1 / n)),
    wrong_answers=(
        WrongAnswer(lambda size, n: 2 * (n - 1) * (size // n), "rounded"),
        WrongAnswer(lambda size, n: 2 * (n - 1) * size / n / 1e6, "which unit"),
        WrongAnswer(lambda size, n: print(size), "a `return` missing"),
        WrongAnswer(lambda size: 2 * size, "it must take tensor_bytes, ranks"),
        WrongAnswer(8_000, "without parentheses"),
    ),
)


def steps_per_epoch(samples: int, batch_size: int, ranks: int) -> int:
    """All ranks together see batch_size x ranks samples a step; a smaller last step counts too."""
    together = batch_size * ranks
    return math.ceil(samples / together)


def _right_by_floor(samples: int, batch_size: int, ranks: int) -> int:
    steps, left_over = divmod(samples, batch_size * ranks)
    return steps + 1 if left_over else steps


def _right_by_counting(samples: int, batch_size: int, ranks: int) -> int:
    steps = 0
    while samples > 0:
        samples -= batch_size * ranks
        steps += 1
    return steps


STEPS_PER_EPOCH = Exercise(
    id="ddp.steps_per_epoch",
    title="How many steps has an epoch now?",
    difficulty=1,
    minutes=4,
    hints=(
        "How many samples do all ranks together see in one step?",
        "With twice as many ranks an epoch has half the steps. The weights change half as often.",
        "Round up: samples that do not fill a step are trained on too.",
    ),
    checker=NumericFunction(
        reference=steps_per_epoch,
        cases=(
            Case({"samples": 1_200, "batch_size": 50, "ranks": 4}),
            Case({"samples": 1_442, "batch_size": 50, "ranks": 2}, "The last step is not full here."),
            Case({"samples": 1_281_167, "batch_size": 256, "ranks": 8}, "The last step is not full here."),
            Case({"samples": 100, "batch_size": 10, "ranks": 1}, "There is a single rank here."),
            Case({"samples": 30, "batch_size": 64, "ranks": 2}, "All samples fit into one step here."),
        ),
        diagnoses=(
            Diagnosis(
                lambda s, b, n: math.ceil(s / b),
                "You count the steps of one process. Each rank takes only its share of the samples.",
            ),
            Diagnosis(
                lambda s, b, n: s / b,
                "You count the steps of one process. Each rank takes only its share of the samples.",
            ),
            Diagnosis(lambda s, b, n: s / (b * n), "A step is never done by half."),
            Diagnosis(
                lambda s, b, n: s // (b * n),
                "You leave out the samples that do not fill a step. They are trained on too.",
            ),
            Diagnosis(
                lambda s, b, n: s // (b * n) + 1,
                "You always add a step. Is there always something left over?",
            ),
            Diagnosis(lambda s, b, n: round(s / (b * n)), "What becomes of a nearly empty last step?"),
            Diagnosis(
                lambda s, b, n: math.ceil(s / b) * n,
                "With more ranks your epoch gets longer. They share the work.",
            ),
            Diagnosis(
                lambda s, b, n: math.ceil(s * n / b),
                "With more ranks your epoch gets longer. They share the work.",
            ),
        ),
    ),
    right_answers=(steps_per_epoch, _right_by_floor, _right_by_counting, lambda s, b, n: -(-s // (b * n))),
    wrong_answers=(
        WrongAnswer(lambda s, b, n: b * n, "returned"),
        WrongAnswer(lambda s, b, n: (s, b), "a tuple"),
        WrongAnswer(lambda s, b: s / b, "it must take samples, batch_size, ranks"),
        WrongAnswer(lambda s, b, n: print(s), "a `return` missing"),
    ),
)


def speedup(compute_s: float, exposed_s: float, ranks: int) -> float:
    """In the time of one step, n ranks do n batches, and the step has grown by what the exchange adds."""
    step_now = compute_s + exposed_s
    return ranks * compute_s / step_now


def _right_by_rates(compute_s: float, exposed_s: float, ranks: int) -> float:
    alone = 1 / compute_s
    together = ranks / (compute_s + exposed_s)
    return together / alone


SPEEDUP = Exercise(
    id="ddp.speedup",
    title="What do n cards gain?",
    difficulty=2,
    minutes=6,
    hints=(
        "How many batches does one rank do in a second? And how many do all of them do together?",
        "A step now takes longer by the part of the exchange that nothing hides.",
        "Without any exchange, n ranks are n times as fast. Try your function with 0.",
    ),
    checker=NumericFunction(
        reference=speedup,
        cases=(
            Case({"compute_s": 0.08, "exposed_s": 0.02, "ranks": 8}),
            Case({"compute_s": 0.03, "exposed_s": 0.01, "ranks": 2}),
            Case({"compute_s": 0.07, "exposed_s": 0.004, "ranks": 64}),
            Case({"compute_s": 0.05, "exposed_s": 0.0, "ranks": 4}, "Nothing of the exchange shows here."),
            Case(
                {"compute_s": 0.02, "exposed_s": 0.06, "ranks": 2},
                "The exchange takes longer than computing.",
            ),
        ),
        diagnoses=(
            Diagnosis(lambda c, e, n: n, "You leave out the exchange: it makes each step longer."),
            Diagnosis(
                lambda c, e, n: c / (c + e),
                "That is the efficiency: what each rank still does. How much do all do together?",
            ),
            Diagnosis(
                lambda c, e, n: (c + e) / c,
                "That says how much longer a step has become. What do all ranks get done meanwhile?",
            ),
            Diagnosis(
                lambda c, e, n: c / (c / n + e),
                "You share one batch out to all ranks. Here each rank keeps a batch of its own, as large "
                "as before.",
            ),
            Diagnosis(
                lambda c, e, n: n * (c + e) / c, "Your ranks gain from waiting: the exchange is upside down."
            ),
            Diagnosis(lambda c, e, n: n * e / (c + e), "That is n times the share of the exchange."),
            Diagnosis(lambda c, e, n: n * c, "Those are seconds. How many times as fast is wanted."),
            Diagnosis(
                lambda c, e, n: n - e / c,
                "The exchange takes the same share of each rank's time. You take it from one rank only.",
            ),
        ),
    ),
    right_answers=(speedup, _right_by_rates, lambda c, e, n: n / (1 + e / c)),
    wrong_answers=(
        WrongAnswer(lambda c, e, n: f"{n * c / (c + e):.1f}x", "without quotes"),
        WrongAnswer(lambda c, e, n: round(n * c / (c + e), 1), "rounded"),
        WrongAnswer(lambda c, e, n: 100 * n * c / (c + e), "which unit"),
        WrongAnswer(lambda c, e: c / e, "it must take compute_s, exposed_s, ranks"),
    ),
)

FIRST_CAUSE = Exercise(
    id="ddp.first_cause",
    title="Whose error is the first?",
    difficulty=2,
    minutes=4,
    hints=(
        "Three of the four lines say that somebody else is gone, or did not come.",
        "A process that the system ends cannot print anything any more.",
        "Ask of each line: is it about this rank's own work, or about another rank?",
    ),
    checker=Choice(
        right="c",
        wrong={
            "a": "Rank 0 lost its connection. To whom, and why was that one gone?",
            "b": "A time limit says that somebody did not come. It does not say why.",
            "d": "torchrun ends the remaining ranks itself, once one has failed. What made it do so?",
        },
    ),
    right_answers=("c", " C "),
    wrong_answers=(
        WrongAnswer("rank 2", "not among the options"),
        WrongAnswer(2, "in quotes"),
    ),
)

EXERCISES = (STEPS_PER_EPOCH, SENT_BYTES, SPEEDUP, FIRST_CAUSE)
