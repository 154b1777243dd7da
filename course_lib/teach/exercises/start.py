"""Lesson 00, start: where does the time of a training step go, and what is it worth to know that?

The learner writes:

    def bottleneck(split: dict[str, float]) -> str
        split: seconds of one step for each phase: data (waiting for it), transfer, forward, backward,
        optimizer, rest
        returns what the step spends the most time on: "data", "transfer", "compute" or "rest"

    def samples_per_second(batch_size: int, step_seconds: float) -> float

    def epoch_seconds(samples: int, batch_size: int, step_seconds: float) -> float
        a last batch that is smaller takes as long as a full one

    def best_speedup(data_wait_s: float, compute_s: float) -> float
        how many times as fast a step is at most, were its data always there at once

The lesson hands them in as

    check("start.bottleneck", bottleneck)
    check("start.throughput", samples_per_second)
    check("start.epoch_time", epoch_seconds)
    check("start.speedup_limit", best_speedup)
"""

from __future__ import annotations

import math

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import NumericFunction, WordFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer

Split = dict[str, float]

_PHASES = ("data", "transfer", "forward", "backward", "optimizer", "rest")
_COMPUTE = ("forward", "backward", "optimizer")


def _case(*seconds: float, remark: str = "", order: tuple[str, ...] = _PHASES) -> Case:
    split = dict(zip(_PHASES, seconds, strict=True))
    return Case({"split": {phase: split[phase] for phase in order}}, remark)


def _parts(split: Split, compute: tuple[str, ...] = _COMPUTE) -> Split:
    parts = {name: seconds for name, seconds in split.items() if name not in (*_COMPUTE, *compute)}
    return parts | {"compute": math.fsum(split[name] for name in compute)}


def _largest(seconds: Split) -> str:
    return max(seconds, key=seconds.__getitem__)


def _part_of_largest_phase(split: Split) -> str:
    return "compute" if _largest(split) in _COMPUTE else _largest(split)


def _part_with_mean(split: Split) -> str:
    parts = _parts(split)
    return _largest(parts | {"compute": parts["compute"] / len(_COMPUTE)})


def bottleneck(split: Split) -> frozenset[str]:
    """The parts that take the most time: one, or several after a tie, of which each is right."""
    parts = _parts(split)
    return frozenset(name for name, seconds in parts.items() if math.isclose(seconds, max(parts.values())))


def _right_by_max(split: Split) -> str:
    compute = split["forward"] + split["backward"] + split["optimizer"]
    parts = {"data": split["data"], "transfer": split["transfer"], "compute": compute, "rest": split["rest"]}
    return max(parts, key=lambda name: parts[name])


def _right_by_comparing(split: Split) -> str:
    name, most = "compute", sum(split[phase] for phase in ("forward", "backward", "optimizer"))
    for phase in ("data", "transfer", "rest"):
        if split[phase] > most:
            name, most = phase, split[phase]
    return name


def _right_by_sorting(split: Split) -> str:
    totals: Split = {}
    for phase, seconds in split.items():
        part = {"forward": "compute", "backward": "compute", "optimizer": "compute"}.get(phase, phase)
        totals[part] = totals.get(part, 0) + seconds
    return sorted(totals.items(), key=lambda item: item[1])[-1][0]


def _wrong_by_order(split: Split) -> str:
    data, transfer, forward, backward, optimizer, rest = split.values()
    compute = forward + backward + optimizer
    return _largest({"data": data, "transfer": transfer, "compute": compute, "rest": rest})


def _wrong_by_half(split: Split) -> str:
    total = sum(split.values())
    return next((name for name, seconds in _parts(split).items() if seconds > total / 2), "rest")


def _wrong_that_takes_the_split_apart(split: Split) -> str:
    split["compute"] = split.pop("forward") + split.pop("backward") + split.pop("optimizer")
    return _largest(split)


_ONE_BY_ONE = (
    "You compare the phases one by one. Some of them keep the same part of the machine busy: "
    "look at what these take together."
)
_NO_HALF = "Nothing takes more than half of this step. One part still takes the most."
_SAME = "Your function says the same of every step. Let it look at the split."

BOTTLENECK = Exercise(
    id="start.bottleneck",
    title="Name the bottleneck",
    difficulty=1,
    minutes=5,
    hints=(
        "There are six phases and four possible answers. Which phases share an answer?",
        "The card computes in three of the six phases, one after the other.",
        "Make a second dictionary of the four names and their seconds, then look for the name with the most.",
    ),
    checker=WordFunction(
        reference=bottleneck,
        words=("data", "transfer", "compute", "rest"),
        cases=(
            _case(0.040, 0.001, 0.004, 0.008, 0.002, 0.001),
            _case(0.012, 0.001, 0.008, 0.010, 0.003, 0.001, remark=_ONE_BY_ONE),
            _case(0.010, 0.001, 0.003, 0.012, 0.001, 0.001),
            _case(0.004, 0.030, 0.006, 0.009, 0.002, 0.001, remark="The batch is long on its way here."),
            _case(0.004, 0.001, 0.006, 0.009, 0.002, 0.050, remark="Not every second has a named phase."),
            _case(0.016, 0.012, 0.004, 0.005, 0.002, 0.001, remark=_NO_HALF),
            _case(0.020, 0.001, 0.008, 0.009, 0.001, 0.002, remark=_NO_HALF),
            _case(0.020, 0.001, 0.008, 0.009, 0.006, 0.002, remark=_ONE_BY_ONE),
            _case(0.0, 0.0, 0.003, 0.006, 0.001, 0.0, remark="A phase may take no time at all."),
            _case(
                *(0.040, 0.001, 0.004, 0.008, 0.002, 0.001),
                order=_PHASES[::-1],
                remark="The phases stand in another order here: ask for them by name.",
            ),
            _case(0.5, 0.0, 0.125, 0.25, 0.125, 0.0, remark="Two parts take equally long: either is right."),
        ),
        diagnoses=(
            Diagnosis(_part_of_largest_phase, _ONE_BY_ONE),
            Diagnosis(
                _part_with_mean,
                "You take the average of some phases. Do they run side by side, or one after the other?",
            ),
            Diagnosis(
                lambda split: _largest(_parts(split, ("forward", "backward"))),
                "One phase of computing is left out: who changes the weights?",
            ),
            Diagnosis(
                lambda split: _largest(_parts(split, ("transfer", *_COMPUTE))),
                "You count the transfer as computing. It only copies the batch, and has its own answer.",
            ),
            Diagnosis(lambda split: "data", _SAME),
            Diagnosis(lambda split: "compute", _SAME),
            Diagnosis(
                lambda split: min(_parts(split), key=_parts(split).__getitem__),
                "That is the part with the least time. A bottleneck is the other end.",
            ),
        ),
        other_words=dict.fromkeys(_COMPUTE, _ONE_BY_ONE),
    ),
    right_answers=(_right_by_max, _right_by_comparing, _right_by_sorting),
    wrong_answers=(
        WrongAnswer(_largest, "one by one"),
        WrongAnswer(lambda split: "data" if split["data"] > split["forward"] else "compute", "one by one"),
        WrongAnswer(_wrong_by_order, "by name"),
        WrongAnswer(_wrong_by_half, "more than half"),
        WrongAnswer(_wrong_that_takes_the_split_apart, "changes `split`"),
        WrongAnswer(lambda split: print(_right_by_max(split)), "a `return` missing"),
        WrongAnswer(lambda split: max(split.values()), "a number: a word is wanted"),
        WrongAnswer(lambda split: max((seconds, name) for name, seconds in split.items()), "a tuple"),
        WrongAnswer(lambda split: _right_by_max(split).capitalize(), "written as here"),
        WrongAnswer(lambda split: split["Data"], "KeyError"),
        WrongAnswer("data", "in text"),
    ),
)


def samples_per_second(batch_size: int, step_seconds: float) -> float:
    """The throughput of training, in samples a second."""
    return batch_size / step_seconds


THROUGHPUT = Exercise(
    id="start.throughput",
    title="Throughput from a step time",
    difficulty=1,
    minutes=3,
    hints=(
        "Read the name of the function aloud: it says what is counted, and in what time.",
        "A step that takes half as long doubles the answer. A batch that is twice as large does so too.",
        "How many samples pass in one step? How many seconds does that take? Now for one second.",
    ),
    checker=NumericFunction(
        reference=samples_per_second,
        cases=(
            Case({"batch_size": 32, "step_seconds": 0.25}),
            Case({"batch_size": 300, "step_seconds": 2.0}),
            Case({"batch_size": 100, "step_seconds": 0.3}),
            Case({"batch_size": 1, "step_seconds": 5.0}, "One sample takes several seconds here."),
        ),
        diagnoses=(
            Diagnosis(
                lambda batch, step: step / batch,
                "Upside down: you give the seconds that one sample takes. Samples a second are wanted.",
            ),
            Diagnosis(
                lambda batch, step: 1 / step, "You count steps a second. How many samples does one step see?"
            ),
            Diagnosis(
                lambda batch, step: batch, "The step time makes no difference to your answer. Should it?"
            ),
            Diagnosis(
                lambda batch, step: batch * step, "Your number grows when a step gets slower. Should it?"
            ),
            Diagnosis(
                lambda batch, step: 1000 * batch / step,
                "You treat the step time as milliseconds. It is given in seconds.",
            ),
            Diagnosis(
                lambda batch, step: batch / (1000 * step),
                "You count the samples of a millisecond. The samples of a second are wanted.",
            ),
            Diagnosis(
                lambda batch, step: batch // step,
                "You cut off all digits after the point. Return the number as it is.",
            ),
        ),
    ),
    right_answers=(
        samples_per_second,
        lambda batch_size, step_seconds: 1 / (step_seconds / batch_size),
        lambda batch, step: batch * (1.0 / step),
        lambda batch, step: float(batch) * step**-1,
    ),
    wrong_answers=(
        WrongAnswer(lambda batch, step: batch / step * 60, "which unit"),
        WrongAnswer(lambda batch, step: int(batch / step), "cut off"),
        WrongAnswer(lambda batch, step: round(batch / step, 2), "rounded"),
        WrongAnswer(lambda batch, step: f"{batch / step}", "without quotes"),
        WrongAnswer(lambda batch, step: (batch, step), "a tuple"),
        WrongAnswer(lambda batch: batch / 0.02, "it must take batch_size, step_seconds"),
        WrongAnswer(lambda batch, step: print(batch / step), "a `return` missing"),
        WrongAnswer(samples_per_second(64, 0.5), "without parentheses"),
    ),
)


def epoch_seconds(samples: int, batch_size: int, step_seconds: float) -> float:
    """The seconds of one pass over the data, in which a smaller last batch takes as long as a full one."""
    return math.ceil(samples / batch_size) * step_seconds


def _right_with_a_loop(samples: int, batch_size: int, step_seconds: float) -> float:
    seconds = 0.0
    while samples > 0:
        samples -= batch_size
        seconds += step_seconds
    return seconds


def _right_with_divmod(samples: int, batch_size: int, step_seconds: float) -> float:
    full, left_over = divmod(samples, batch_size)
    return (full + 1 if left_over else full) * step_seconds


def _wrong_without_end(samples: int, batch_size: int, step_seconds: float) -> float:
    seconds = 0.0
    while samples > 0:
        seconds += step_seconds
    return seconds


EPOCH_TIME = Exercise(
    id="start.epoch_time",
    title="The time of an epoch",
    difficulty=2,
    minutes=5,
    hints=(
        "Take 10 samples in batches of 4 and write the batches down. What is in the last one?",
        "An epoch is a number of steps, and a step is never done by half.",
        "Look for a way to round up: `math` has one, and `//` with a little more on top is another.",
    ),
    checker=NumericFunction(
        reference=epoch_seconds,
        cases=(
            Case({"samples": 1000, "batch_size": 100, "step_seconds": 0.02}, "All batches are full here."),
            Case({"samples": 10, "batch_size": 4, "step_seconds": 2.0}, "The last batch is not full here."),
            Case(
                {"samples": 1797, "batch_size": 64, "step_seconds": 0.012}, "The last batch is not full here."
            ),
            Case(
                {"samples": 3, "batch_size": 8, "step_seconds": 0.5}, "All samples fit into one batch here."
            ),
            Case(
                {"samples": 4097, "batch_size": 4096, "step_seconds": 0.25},
                "A single sample is left over here. It still needs a step.",
            ),
            Case({"samples": 60_000, "batch_size": 128, "step_seconds": 0.03}),
        ),
        diagnoses=(
            Diagnosis(
                lambda n, batch, step: n / batch * step,
                "You count parts of a step. What happens to the samples that do not fill a batch?",
            ),
            Diagnosis(
                lambda n, batch, step: n // batch * step,
                "You leave out the last batch when it is not full. Its samples are trained on too.",
            ),
            Diagnosis(
                lambda n, batch, step: (n // batch + 1) * step,
                "You always add a step. Is there always something left over?",
            ),
            Diagnosis(
                lambda n, batch, step: round(n / batch) * step,
                "You round to the nearest number of steps. What becomes of a nearly empty last batch?",
            ),
            Diagnosis(
                lambda n, batch, step: math.ceil(n / batch * step),
                "You round the seconds. What comes in whole pieces here is not the time.",
            ),
            Diagnosis(
                lambda n, batch, step: n * step,
                "You take one step for each sample. How many samples does one step see?",
            ),
            Diagnosis(
                lambda n, batch, step: batch * step,
                "The number of samples makes no difference to your answer. Should it?",
            ),
            Diagnosis(
                lambda n, batch, step: math.ceil(n / batch),
                "That is the number of steps. How many seconds do they take?",
            ),
            Diagnosis(
                lambda n, batch, step: math.ceil(n / batch) / step,
                "Your epoch gets shorter when a step gets slower. Should it?",
            ),
        ),
    ),
    right_answers=(
        epoch_seconds,
        _right_with_a_loop,
        _right_with_divmod,
        lambda samples, batch_size, step_seconds: (samples + batch_size - 1) // batch_size * step_seconds,
        lambda n, batch, step: -(-n // batch) * step,
        lambda n, batch, step: len(range(0, n, batch)) * step,
    ),
    wrong_answers=(
        WrongAnswer(lambda n, batch, step: int(n / batch + 0.999) * step, "a single sample is left over"),
        WrongAnswer(lambda n, batch, step: max(1, n // batch) * step, "is not full here"),
        WrongAnswer(_wrong_without_end, "a loop that never ends"),
        WrongAnswer(lambda n, batch: n / batch, "it must take samples, batch_size, step_seconds"),
    ),
)


def best_speedup(data_wait_s: float, compute_s: float) -> float:
    """How many times as fast a step is without the wait: Amdahl's law, the wait being the part that goes."""
    return (data_wait_s + compute_s) / compute_s


_TIMES = "How many times as fast is wanted."

SPEEDUP_LIMIT = Exercise(
    id="start.speedup_limit",
    title="The most that faster loading can give",
    difficulty=2,
    minutes=5,
    hints=(
        "How long does a step take now? How long would it take with data that is always there?",
        "A speedup compares two times of the same step: before and after. It has no unit.",
        "Where nothing can be gained, a step runs 1 times as fast. Try your function with a wait of 0.",
    ),
    checker=NumericFunction(
        reference=best_speedup,
        cases=(
            Case({"data_wait_s": 0.03, "compute_s": 0.01}),
            Case({"data_wait_s": 0.01, "compute_s": 0.03}),
            Case({"data_wait_s": 0.012, "compute_s": 0.048}),
            Case({"data_wait_s": 1.5, "compute_s": 0.25}),
            Case({"data_wait_s": 0.0, "compute_s": 0.02}, "This step waits for nothing. What can be gained?"),
        ),
        diagnoses=(
            Diagnosis(
                lambda wait, compute: (wait + compute) / wait,
                "You divide by the wait: what if the wait is zero? Which of the two times is left?",
            ),
            Diagnosis(
                lambda wait, compute: wait / compute,
                "With no wait your number is zero. Would the training stand still then?",
            ),
            Diagnosis(
                lambda wait, compute: compute / wait,
                "The longer the wait, the smaller your number. Should a longer wait leave less to gain?",
            ),
            Diagnosis(lambda wait, compute: wait, f"Those are the seconds saved in each step. {_TIMES}"),
            Diagnosis(
                lambda wait, compute: wait / (wait + compute),
                f"That is the share of the step spent waiting. {_TIMES}",
            ),
            Diagnosis(
                lambda wait, compute: 100 * wait / (wait + compute),
                f"That is a percentage of the step. {_TIMES}",
            ),
            Diagnosis(lambda wait, compute: 100 * wait / compute, f"That is a percentage. {_TIMES}"),
            Diagnosis(
                lambda wait, compute: compute / (wait + compute),
                "Upside down: your step becomes slower the more it used to wait.",
            ),
            Diagnosis(
                lambda wait, compute: (wait + compute) / max(wait, compute),
                "That is the gain when loading and computing run side by side. Here loading takes no time.",
            ),
        ),
    ),
    right_answers=(
        best_speedup,
        lambda data_wait_s, compute_s: 1 + data_wait_s / compute_s,
        lambda wait, compute: 1 / (1 - wait / (wait + compute)),
        lambda wait, compute: (1 / compute) / (1 / (wait + compute)),
    ),
    wrong_answers=(
        WrongAnswer(lambda wait, compute: 1 / (wait / (wait + compute)), "divide by the wait"),
        WrongAnswer(lambda wait, compute: 0 if wait == 0 else 1 + wait / compute, "what can be gained"),
        WrongAnswer(lambda wait, compute: f"{1 + wait / compute:.2f}x", "without quotes"),
        WrongAnswer(lambda wait, compute: abs(wait - compute), "too small"),
    ),
)

EXERCISES = (BOTTLENECK, THROUGHPUT, EPOCH_TIME, SPEEDUP_LIMIT)
