"""Lesson 07, health: what do the figures of several cards say, and what does a sick one cost?

The learner writes:

    def memory_difference(used_mib: list[float]) -> float
        the difference between the fullest and the emptiest card, as a share of the fullest: 0 to 1

    def straggler(all_reduce_s: list[list[float]]) -> int
        all_reduce_s: for each step, the seconds that each rank spent in the all-reduce
        returns the number of the rank for which the others wait

    def leave_out(busy_s: list[float]) -> str
        busy_s: seconds that each rank needs for its own part of a step
        "leave out" if training without the slowest rank does more steps of work a second, else "keep"

and looks at a picture. The lesson hands them in as

    check("health.memory_difference", memory_difference)
    check("health.straggler", straggler)
    check("health.leave_out", leave_out)
    check("health.which_card", "c")
"""

from __future__ import annotations

import math
import statistics

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import Choice, NumericFunction, WordFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer

Steps = list[list[float]]


def memory_difference(used_mib: list[float]) -> float:
    """The difference in used memory between cards, as a share of the fullest."""
    return 1 - min(used_mib) / max(used_mib)


def _right_with_a_loop(used_mib: list[float]) -> float:
    most = least = used_mib[0]
    for used in used_mib:
        most = max(most, used)
        least = min(least, used)
    return (most - least) / most


def _right_by_sorting(used_mib: list[float]) -> float:
    least, *_, most = sorted(used_mib)
    return (most - least) / most


def _wrong_that_sorts_in_place(used_mib: list[float]) -> float:
    used_mib.sort()
    return 1 - used_mib[0] / used_mib[-1]


_FIRST_TWO = "You compare two cards by their place in the list. Which two cards matter, wherever they stand?"

MEMORY_DIFFERENCE = Exercise(
    id="health.memory_difference",
    title="How unequal is the memory?",
    difficulty=1,
    minutes=4,
    hints=(
        "Two of the cards decide. Which two?",
        "Python has functions that find the largest and the smallest number of a list.",
        "A share compares a difference with something. Here: with what the fullest card holds.",
    ),
    checker=NumericFunction(
        reference=memory_difference,
        cases=(
            Case({"used_mib": [30000.0, 24000.0]}),
            Case(
                {"used_mib": [20000.0, 16000.0, 40000.0, 18000.0]}, "The fullest card is in the middle here."
            ),
            Case({"used_mib": [9000.0, 9000.0, 9000.0]}, "All cards hold the same here."),
            Case({"used_mib": [16000.0, 12000.0, 15000.0, 11000.0]}),
            Case({"used_mib": [30000.0, 0.0, 30000.0]}, "One card holds nothing here."),
        ),
        diagnoses=(
            Diagnosis(
                lambda used: (max(used) - min(used)) / min(used),
                "You compare with the emptiest card. What if it holds nothing? Compare with the fullest.",
            ),
            Diagnosis(
                lambda used: max(used) - min(used), "Those are MiB. A share of the fullest card is wanted."
            ),
            Diagnosis(
                lambda used: 100 * (max(used) - min(used)) / max(used),
                "That is a percentage. A share is wanted: the half of something, not fifty of a hundred.",
            ),
            Diagnosis(
                lambda used: min(used) / max(used),
                "That is what both cards have in common. By what share do they differ?",
            ),
            Diagnosis(
                lambda used: (max(used) - min(used)) / (sum(used) / len(used)),
                "You compare with the average card. The exercise wants the fullest.",
            ),
            Diagnosis(lambda used: (used[0] - used[-1]) / used[0], _FIRST_TWO),
            Diagnosis(lambda used: abs(used[0] - used[1]) / max(used[0], used[1]), _FIRST_TWO),
        ),
    ),
    right_answers=(memory_difference, _right_with_a_loop, _right_by_sorting),
    wrong_answers=(
        WrongAnswer(lambda used: round(1 - min(used) / max(used), 2), "rounded"),
        WrongAnswer(lambda used: f"{1 - min(used) / max(used):.0%}", "without quotes"),
        WrongAnswer(_wrong_that_sorts_in_place, "changes `used_mib`"),
        WrongAnswer(lambda used: print(1 - min(used) / max(used)), "a `return` missing"),
        WrongAnswer(0.25, "without parentheses"),
    ),
)


def straggler(all_reduce_s: Steps) -> int:
    """The rank that spends the least time in the all-reduce, over all steps."""
    totals = [math.fsum(rank) for rank in zip(*all_reduce_s, strict=True)]
    return totals.index(min(totals))


def _right_with_medians(all_reduce_s: Steps) -> int:
    ranks = range(len(all_reduce_s[0]))
    medians = [statistics.median(step[rank] for step in all_reduce_s) for rank in ranks]
    return min(ranks, key=lambda rank: medians[rank])


def _right_with_loops(all_reduce_s: Steps) -> int:
    totals = [0.0] * len(all_reduce_s[0])
    for step in all_reduce_s:
        for rank, seconds in enumerate(step):
            totals[rank] += seconds
    best = 0
    for rank in range(len(totals)):
        if totals[rank] < totals[best]:
            best = rank
    return best


def _most(all_reduce_s: Steps) -> int:
    totals = [sum(rank) for rank in zip(*all_reduce_s, strict=True)]
    return totals.index(max(totals))


def _in_step(all_reduce_s: Steps, number: int) -> int:
    step = all_reduce_s[number]
    return step.index(min(step))


_SECONDS = "Those are seconds. The number of a rank is wanted."
_ONE_STEP = "You look at one step only. Any rank is late once in a while: take all steps together."

STRAGGLER = Exercise(
    id="health.straggler",
    title="For whom do they wait?",
    difficulty=2,
    minutes=6,
    hints=(
        "Who arrives first at a meeting, and who last? Which of them waits?",
        "The all-reduce begins when the last rank arrives. How long has that rank waited?",
        "Add up the seconds of each rank over all steps. `zip(*all_reduce_s)` gives one tuple for each rank.",
    ),
    checker=NumericFunction(
        reference=straggler,
        cases=(
            Case({"all_reduce_s": [[0.050, 0.052, 0.004], [0.049, 0.051, 0.005], [0.051, 0.050, 0.004]]}),
            Case({"all_reduce_s": [[0.030, 0.005], [0.028, 0.004]]}),
            Case(
                {
                    "all_reduce_s": [
                        [0.003, 0.020, 0.050, 0.050],
                        [0.040, 0.004, 0.041, 0.042],
                        [0.039, 0.005, 0.042, 0.041],
                        [0.041, 0.004, 0.040, 0.043],
                        [0.050, 0.050, 0.048, 0.004],
                    ]
                },
                "In the first step and in the last, another rank was late by chance.",
            ),
            Case({"all_reduce_s": [[0.002, 0.009, 0.010, 0.009], [0.003, 0.010, 0.009, 0.011]]}),
        ),
        diagnoses=(
            Diagnosis(
                _most,
                "That rank spends the most time in the all-reduce. What is it doing there all the time?",
            ),
            Diagnosis(lambda steps: min(map(math.fsum, steps)), _SECONDS),
            Diagnosis(lambda steps: min(map(min, steps)), _SECONDS),
            Diagnosis(lambda steps: _in_step(steps, 0), _ONE_STEP),
            Diagnosis(lambda steps: _in_step(steps, -1), _ONE_STEP),
            Diagnosis(
                lambda steps: straggler(steps) + 1,
                "You count the first rank as number one. Python and the ranks begin with zero.",
            ),
            Diagnosis(
                lambda steps: min(sum(rank) for rank in zip(*steps, strict=True)),
                _SECONDS,
            ),
            Diagnosis(
                lambda steps: [sum(step) for step in steps].index(min(sum(step) for step in steps)),
                "You add up the ranks of a step, and so you find a step. Add up the steps of a rank.",
            ),
        ),
    ),
    right_answers=(straggler, _right_with_medians, _right_with_loops),
    wrong_answers=(
        WrongAnswer(lambda steps: 0, "returned"),
        WrongAnswer(lambda steps: f"rank {straggler(steps)}", "without quotes"),
        WrongAnswer(lambda steps: print(straggler(steps)), "a `return` missing"),
        WrongAnswer(lambda steps: steps.index(min(steps)), "you find a step"),
        WrongAnswer(2, "without parentheses"),
    ),
)

KEEP, LEAVE_OUT = "keep", "leave out"


def leave_out(busy_s: list[float]) -> frozenset[str]:
    """What trains faster: all ranks at the pace of the slowest, or one rank fewer at that of the next."""
    *_, second, slowest = sorted(busy_s)
    with_all, without = len(busy_s) / slowest, (len(busy_s) - 1) / second
    if math.isclose(with_all, without):
        return frozenset((KEEP, LEAVE_OUT))
    return frozenset((LEAVE_OUT if without > with_all else KEEP,))


def _right_by_throughput(busy_s: list[float]) -> str:
    others = sorted(busy_s)[:-1]
    now = len(busy_s) / max(busy_s)
    then = len(others) / max(others)
    return "leave out" if then > now else "keep"


def _right_by_time_of_a_batch(busy_s: list[float]) -> str:
    ordered = sorted(busy_s, reverse=True)
    now = ordered[0] / len(ordered)  # seconds for each batch that is done
    then = ordered[1] / (len(ordered) - 1)
    if then < now:
        return "leave out"
    return "keep"


def _by_mean(busy_s: list[float]) -> str:
    others = sorted(busy_s)[:-1]
    now = len(busy_s) / (sum(busy_s) / len(busy_s))
    return LEAVE_OUT if len(others) / (sum(others) / len(others)) > now else KEEP


def _by_twice(busy_s: list[float]) -> str:
    return LEAVE_OUT if max(busy_s) > 2 * statistics.median(busy_s) else KEEP


def _by_step_time(busy_s: list[float]) -> str:
    return LEAVE_OUT if sorted(busy_s)[-2] < max(busy_s) else KEEP


_STEPS_ONLY = (
    "Your rule looks at how long a step takes. Without a rank, fewer batches are done in that step as well."
)

LEAVE_OUT_EXERCISE = Exercise(
    id="health.leave_out",
    title="Seven cards or eight?",
    difficulty=3,
    minutes=8,
    hints=(
        "How long does a step take when the slowest needs 0.3 s and all others 0.1 s?",
        "In one step each rank does one batch. How many batches a second does the job do, with n ranks?",
        "Count the batches of a second twice: with all ranks, and without the slowest. Compare.",
    ),
    checker=WordFunction(
        reference=leave_out,
        words=(KEEP, LEAVE_OUT),
        cases=(
            Case({"busy_s": [0.1, 0.1, 0.1, 0.3]}),
            Case({"busy_s": [0.10, 0.11, 0.10, 0.10, 0.10, 0.12, 0.10, 0.10]}, "The ranks are nearly equal."),
            Case(
                {"busy_s": [0.10, 0.10, 0.10, 0.13, 0.10, 0.10, 0.10, 0.10]},
                "Of eight cards, one is somewhat slower.",
            ),
            Case({"busy_s": [0.15, 0.10]}, "With two cards, one is half of the job."),
            Case(
                {"busy_s": [0.30, 0.10, 0.30, 0.10]}, "Two ranks are slow: without one, the other is there."
            ),
            Case({"busy_s": [0.25, 0.10]}, "With two cards, one is half of the job."),
            Case({"busy_s": [0.10, 0.21, 0.10, 0.10]}),
            Case({"busy_s": [0.2, 0.1]}, "Both ways are equally fast here: either answer is right."),
        ),
        diagnoses=(
            Diagnosis(_by_step_time, _STEPS_ONLY),
            Diagnosis(
                _by_mean,
                "You take the average time of the ranks. Does a step end when the average rank is done?",
            ),
            Diagnosis(
                _by_twice,
                "A fixed factor does not fit: one of two cards is half of the job, one of eight an eighth.",
            ),
            Diagnosis(lambda busy: LEAVE_OUT, "You always leave one out. Compare what is done in a second."),
            Diagnosis(lambda busy: KEEP, "You always keep all. Compare what is done in a second."),
        ),
        other_words={"leave_out": "The word is written with a space.", "remove": "The word is another one."},
    ),
    right_answers=(_right_by_throughput, _right_by_time_of_a_batch),
    wrong_answers=(
        WrongAnswer(lambda busy: _right_by_throughput(busy) == LEAVE_OUT, "a word is wanted"),
        WrongAnswer(lambda busy: _right_by_throughput(busy).replace(" ", "_"), "with a space"),
        WrongAnswer(lambda busy: print(_right_by_throughput(busy)), "a `return` missing"),
        WrongAnswer(max, "a number: a word is wanted"),
        WrongAnswer("keep", "in text"),
    ),
)

WHICH_CARD = Exercise(
    id="health.which_card",
    title="A job that nobody has told you about",
    difficulty=2,
    minutes=4,
    hints=(
        "Look at one panel after another. In which of them does one row differ from the other seven?",
        "A card that waits in the all-reduce is busy in utilisation, and draws little power.",
        "Ask of the odd row: is it higher or lower than the others? And is its clock as fast as theirs?",
    ),
    checker=Choice(
        right="c",
        wrong={
            "a": "A card that is throttled runs at a slower clock. Look at the panel of the clock again.",
            "b": "A rank without its batch is idle: its utilisation and its power would be lower than the "
            "others'. Are they?",
            "d": "Seven cards with the same fault at the same time? Ask what they could be waiting for.",
            "e": "All cards read nearly 100 %, that is true. Look at the power: is each row like the others?",
        },
    ),
    right_answers=("c", " C "),
    wrong_answers=(
        WrongAnswer("straggler", "not among the options"),
        WrongAnswer(5, "in quotes"),
    ),
)

EXERCISES = (MEMORY_DIFFERENCE, STRAGGLER, LEAVE_OUT_EXERCISE, WHICH_CARD)
