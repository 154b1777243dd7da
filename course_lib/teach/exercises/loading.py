"""Lesson 04, loading: what can a better loader give, how many workers does it take, and what do they take?

The learner writes:

    def amdahl(share: float, factor: float) -> float
        share: the part of the time that is made faster, 0 to 1; factor: how many times as fast it becomes
        returns how many times as fast the whole becomes

    def workers_needed(make_s: float, step_s: float) -> int
        the fewest workers that make batches as fast as the step uses them, where cores are free

    def waiting_s(make_s: float, step_s: float, workers: int) -> float
        seconds that each step waits, in the steady state

and names a limit. The lesson hands them in as

    check("loading.amdahl", amdahl)
    check("loading.workers_needed", workers_needed)
    check("loading.waiting", waiting_s)
    check("loading.limit", "b")
"""

from __future__ import annotations

import math

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import Choice, NumericFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer


def amdahl(share: float, factor: float) -> float:
    """Amdahl's law: the part that stays, and the part that becomes faster."""
    return 1 / (1 - share + share / factor)


def _amdahl_with_a_clock(share: float, factor: float) -> float:
    before = 100.0
    after = before * (1 - share) + before * share / factor
    return before / after


AMDAHL = Exercise(
    id="loading.amdahl",
    title="Amdahl's law",
    difficulty=2,
    minutes=6,
    hints=(
        "Say the whole takes 100 seconds. How many of them become fewer, and how many stay?",
        "A speedup is the time before, divided by the time after.",
        "After: the seconds that stay, and the others divided by the factor. Add them.",
    ),
    checker=NumericFunction(
        reference=amdahl,
        cases=(
            Case({"share": 0.5, "factor": 2.0}),
            Case({"share": 0.8, "factor": 4.0}),
            Case({"share": 0.9, "factor": 1.5}),
            Case({"share": 0.0, "factor": 10.0}, "Nothing of the time is made faster here."),
            Case({"share": 1.0, "factor": 3.0}, "All of the time is made faster here."),
            Case({"share": 0.75, "factor": 1e9}, "The part is nearly gone here. What stays?"),
        ),
        diagnoses=(
            Diagnosis(
                lambda share, factor: 1 - share + share / factor,
                "That is the time after, as a share of the time before. How many times as fast is wanted.",
            ),
            Diagnosis(
                lambda share, factor: share * factor,
                "You leave out the part that stays as it is. It takes its time too.",
            ),
            Diagnosis(
                lambda share, factor: 1 - share + share * factor,
                "You average the speeds. What is added up is time: a part that is twice as fast takes half.",
            ),
            Diagnosis(
                lambda share, factor: 1 / (share + (1 - share) / factor),
                "You make the other part faster. Which part is `share`?",
            ),
            Diagnosis(lambda share, factor: factor, "The whole does not become faster by what a part does."),
            Diagnosis(
                lambda share, factor: 1 / (1 - share),
                "That is the most that can be reached, with the part gone. Here it only becomes faster.",
            ),
        ),
    ),
    right_answers=(
        amdahl,
        _amdahl_with_a_clock,
        lambda share, factor: factor / (factor * (1 - share) + share),
        lambda share, factor: (1 - share + share * factor**-1) ** -1,
    ),
    wrong_answers=(
        WrongAnswer(lambda share, factor: 1 / (share / factor), "too large"),
        WrongAnswer(lambda share, factor: round(1 / (1 - share + share / factor), 3), "rounded"),
        WrongAnswer(lambda share, factor: print(1 / (1 - share + share / factor)), "a `return` missing"),
        WrongAnswer(lambda share: 1 / (1 - share), "it must take share, factor"),
        WrongAnswer(2.0, "without parentheses"),
    ),
)


def workers_needed(make_s: float, step_s: float) -> int:
    """The fewest workers that together make a batch in the time of a step."""
    return math.ceil(make_s / step_s)


def _workers_with_a_loop(make_s: float, step_s: float) -> int:
    workers = 1
    while make_s / workers > step_s:
        workers += 1
    return workers


WORKERS_NEEDED = Exercise(
    id="loading.workers_needed",
    title="How many workers feed the card?",
    difficulty=1,
    minutes=4,
    hints=(
        "One worker gives a batch every `make_s` seconds. How often do two give one?",
        "Try it with a batch of 0.05 s and a step of 0.02 s, and with 2 and 3 workers.",
        "There is no half worker. Which way must be rounded so that the card never waits?",
    ),
    checker=NumericFunction(
        reference=workers_needed,
        cases=(
            Case({"make_s": 0.5, "step_s": 0.125}, "The workers fit exactly here."),
            Case({"make_s": 0.05, "step_s": 0.02}, "Two workers and a half would do here."),
            Case({"make_s": 0.5, "step_s": 0.08}),
            Case({"make_s": 0.01, "step_s": 0.1}, "A batch is made faster than it is used here."),
            Case({"make_s": 3.0, "step_s": 2.0}),
        ),
        diagnoses=(
            Diagnosis(lambda make, step: make / step, "There is no half worker. Which way must be rounded?"),
            Diagnosis(
                lambda make, step: make // step,
                "You round down. Is a batch then there in time for each step?",
            ),
            Diagnosis(
                lambda make, step: round(make / step),
                "You round to the nearest. Is a batch then there in time for each step?",
            ),
            Diagnosis(
                lambda make, step: make // step + 1,
                "You always add a worker. Is it needed where they fit exactly?",
            ),
            Diagnosis(
                lambda make, step: math.ceil(step / make),
                "The slower the loading, the fewer workers you take. Should it be so?",
            ),
        ),
    ),
    right_answers=(
        workers_needed,
        _workers_with_a_loop,
        lambda make_s, step_s: -int(-make_s // step_s),
        lambda make, step: len([number for number in range(1000) if make - number * step > 1e-12]),
    ),
    wrong_answers=(
        WrongAnswer(lambda make, step: int(make / step), "round down"),
        WrongAnswer(lambda make, step: max(1, int(make / step)), "Two workers and a half"),
        WrongAnswer(lambda make, step: 4, "too large"),
        WrongAnswer(lambda make, step: f"{math.ceil(make / step)}", "without quotes"),
        WrongAnswer(lambda make: 2, "it must take make_s, step_s"),
    ),
)


def waiting_s(make_s: float, step_s: float, workers: int) -> float:
    """What a step waits when workers make batches while it runs, or, without any, before it."""
    if workers == 0:
        return make_s
    return max(0.0, make_s / workers - step_s)


def _waiting_by_rate(make_s: float, step_s: float, workers: int) -> float:
    between = make_s + step_s if workers == 0 else max(step_s, make_s / workers)
    return between - step_s


WAITING = Exercise(
    id="loading.waiting",
    title="How long does the step wait?",
    difficulty=3,
    minutes=8,
    hints=(
        "Without a worker, nothing happens at the same time. With one, what does?",
        "How many seconds apart do the batches of all workers come? The step fills some of that time.",
        "A wait is never below zero: where batches come faster than they are used, they lie ready.",
    ),
    checker=NumericFunction(
        reference=waiting_s,
        cases=(
            Case({"make_s": 0.055, "step_s": 0.012, "workers": 1}),
            Case({"make_s": 0.2, "step_s": 0.03, "workers": 2}),
            Case({"make_s": 0.06, "step_s": 0.05, "workers": 4}, "Batches lie ready here."),
            Case({"make_s": 0.055, "step_s": 0.012, "workers": 0}, "There is no worker here."),
            Case({"make_s": 0.01, "step_s": 0.05, "workers": 0}, "There is no worker here."),
        ),
        diagnoses=(
            Diagnosis(
                lambda make, step, workers: make / workers if workers else make,
                "You count the time between two batches. For a part of it the step runs.",
            ),
            Diagnosis(
                lambda make, step, workers: make / workers - step if workers else make,
                "A wait below zero: what becomes of batches that come early?",
            ),
            Diagnosis(
                lambda make, step, workers: max(0, make - step),
                "The number of workers makes no difference to your answer. Should it?",
            ),
            Diagnosis(
                lambda make, step, workers: max(0, make / max(workers, 1) - step),
                "Without a worker, who makes the next batch while the step runs?",
            ),
            Diagnosis(
                lambda make, step, workers: max(0, make / (workers + 1) - step),
                "You count the training process as one more worker. It is busy with the step.",
            ),
        ),
    ),
    right_answers=(
        waiting_s,
        _waiting_by_rate,
        lambda make_s, step_s, workers: max(make_s / workers - step_s, 0) if workers > 0 else make_s,
    ),
    wrong_answers=(
        WrongAnswer(lambda make, step, workers: max(0, make / workers - step), "There is no worker here"),
        WrongAnswer(lambda make, step, workers: max(0, make - step * workers), "too large"),
        WrongAnswer(lambda make, step, workers: 0.0, "too small"),
        WrongAnswer(lambda make, step: make - step, "it must take make_s, step_s, workers"),
    ),
)

LIMIT = Exercise(
    id="loading.limit",
    title="Name the limit",
    difficulty=2,
    minutes=4,
    hints=(
        "Look at what grows from 0 to 2 workers, and what does not grow from 2 to 8.",
        "How many cores are there? How busy are they?",
        "A worker that waits for a disk keeps no core busy.",
    ),
    checker=Choice(
        right="c",
        wrong={
            "a": "A disk that is waited for leaves the cores idle. How busy are they here?",
            "b": "A fed card would be busy all the time. What does it do for most of the time here?",
            "d": "More workers did help, from 0 to 2. What is used up after that?",
            "e": "The batches are small here, and the training process has time.",
        },
    ),
    right_answers=("c", " C "),
    wrong_answers=(
        WrongAnswer("a", "leaves the cores idle"),
        WrongAnswer("b", "busy all the time"),
        WrongAnswer("d", "used up"),
        WrongAnswer("e", "batches are small"),
        WrongAnswer("f", "not among the options"),
        WrongAnswer(3, "in quotes"),
    ),
)

EXERCISES = (AMDAHL, WORKERS_NEEDED, WAITING, LIMIT)
