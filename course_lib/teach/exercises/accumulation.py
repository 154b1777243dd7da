"""Lesson 05, accumulation: how many, how heavy, how often, and a whole step that is right.

The learner writes:

    def steps_needed(global_batch: int, fits: int, ranks: int) -> int
        fits: the largest micro-batch that one card can take
        returns the accumulation_steps that reach at least the global batch on all ranks together

    def updates_in_epoch(batches: int, accumulation_steps: int) -> int
        batches: micro-batches that the loader gives in an epoch
        returns how many updates a right loop makes in it

    def window_loss(mean_losses: list[float], tokens: list[int]) -> float
        mean_losses: each micro-batch's loss, the mean over its tokens
        returns the mean over all tokens of the window

    def train_epoch(model, loader, optimizer, criterion)
        one epoch with 4 micro-batches in an update

The lesson hands them in as

    check("accumulation.steps_needed", steps_needed)
    check("accumulation.updates", updates_in_epoch)
    check("accumulation.window_loss", window_loss)
    check("accumulation.whole_step", train_epoch)
"""

from __future__ import annotations

import math
from typing import Any

from course_lib.teach.exercises.cases import Case, Diagnosis
from course_lib.teach.exercises.checkers import NumericFunction
from course_lib.teach.exercises.exercise import Exercise, WrongAnswer
from course_lib.teach.exercises.proved_step import ProvedStep
from course_lib.train.equivalence import Reference

K = 4


def steps_needed(global_batch: int, fits: int, ranks: int) -> int:
    """The accumulation steps that reach a global batch."""
    return math.ceil(global_batch / (fits * ranks))


def _right_without_floats(global_batch: int, fits: int, ranks: int) -> int:
    return -(-global_batch // (fits * ranks))


def _right_by_counting(global_batch: int, fits: int, ranks: int) -> int:
    steps = 1
    while steps * fits * ranks < global_batch:
        steps += 1
    return steps


STEPS_NEEDED = Exercise(
    id="accumulation.steps_needed",
    title="How many micro-batches make the batch?",
    difficulty=1,
    minutes=4,
    hints=(
        "How many samples do all ranks together take in one round of micro-batches?",
        "So many rounds that their samples reach the global batch. Half a round does not exist.",
        "Division that rounds up: math.ceil, or whole-number division of the negative number.",
    ),
    checker=NumericFunction(
        reference=steps_needed,
        cases=(
            Case({"global_batch": 512, "fits": 64, "ranks": 1}),
            Case({"global_batch": 512, "fits": 64, "ranks": 4}, "Four ranks work side by side here."),
            Case({"global_batch": 256, "fits": 24, "ranks": 1}, "It does not come out even here."),
            Case({"global_batch": 1000, "fits": 48, "ranks": 2}, "Ten rounds take 960 samples here."),
            Case(
                {"global_batch": 32, "fits": 64, "ranks": 1}, "More fits than is wanted: one pass is enough."
            ),
        ),
        diagnoses=(
            Diagnosis(
                lambda global_batch, fits, ranks: math.ceil(global_batch / fits),
                "You count one rank. The others take a micro-batch each in the same round.",
            ),
            Diagnosis(
                lambda global_batch, fits, ranks: global_batch // (fits * ranks),
                "You round down: then the last samples of the global batch have no place.",
            ),
            Diagnosis(
                lambda global_batch, fits, ranks: global_batch / (fits * ranks),
                "Half a micro-batch does not exist: which way must it be rounded?",
            ),
            Diagnosis(
                lambda global_batch, fits, ranks: math.ceil(global_batch * ranks / fits),
                "More ranks make your number larger. Do they take work away, or add some?",
            ),
        ),
    ),
    right_answers=(steps_needed, _right_without_floats, _right_by_counting),
    wrong_answers=(
        WrongAnswer(lambda global_batch, fits, ranks: print(3), "a `return` missing"),
        WrongAnswer(lambda global_batch, fits: global_batch // fits, "it must take"),
        WrongAnswer(8, "without parentheses"),
    ),
)


def updates_in_epoch(batches: int, accumulation_steps: int) -> int:
    """The updates of an epoch, the one from the last partial window included."""
    return math.ceil(batches / accumulation_steps)


def _right_with_the_rest(batches: int, accumulation_steps: int) -> int:
    whole, rest = divmod(batches, accumulation_steps)
    return whole + (1 if rest else 0)


UPDATES = Exercise(
    id="accumulation.updates",
    title="How many updates does an epoch make?",
    difficulty=1,
    minutes=3,
    hints=(
        "Draw ten batches in a row and put a bar after every fourth. What stands behind the last bar?",
        "The batches that are left over at the end of an epoch are a window too.",
        "Count the whole windows, and one more if there is a rest.",
    ),
    checker=NumericFunction(
        reference=updates_in_epoch,
        cases=(
            Case({"batches": 12, "accumulation_steps": 4}),
            Case({"batches": 1003, "accumulation_steps": 8}, "Three batches are left over here."),
            Case({"batches": 3, "accumulation_steps": 8}, "There are fewer batches than steps here."),
            Case({"batches": 7, "accumulation_steps": 1}),
            Case({"batches": 0, "accumulation_steps": 4}, "A loader without a batch makes no update."),
        ),
        diagnoses=(
            Diagnosis(
                lambda batches, accumulation_steps: batches // accumulation_steps,
                "That is what the popular loop does: the batches behind the last whole window are lost.",
            ),
            Diagnosis(
                lambda batches, accumulation_steps: batches // accumulation_steps + 1,
                "You always add one. What if no batch is left over?",
            ),
            Diagnosis(
                lambda batches, accumulation_steps: batches,
                "That many passes forward. An update comes once a window.",
            ),
            Diagnosis(
                lambda batches, accumulation_steps: batches / accumulation_steps,
                "A part of an update does not exist: what becomes of a window that is not full?",
            ),
        ),
    ),
    right_answers=(updates_in_epoch, _right_with_the_rest),
    wrong_answers=(
        WrongAnswer(lambda batches, accumulation_steps: str(batches), "without quotes"),
        WrongAnswer(lambda batches, accumulation_steps: [batches], "a list"),
        WrongAnswer("ceil", "in text"),
    ),
)


def window_loss(mean_losses: list[float], tokens: list[int]) -> float:
    """The mean loss over all tokens of a window."""
    return math.fsum(m * n for m, n in zip(mean_losses, tokens, strict=True)) / sum(tokens)


def _right_with_weights(mean_losses: list[float], tokens: list[int]) -> float:
    shares = [n / sum(tokens) for n in tokens]
    return sum(share * loss for share, loss in zip(shares, mean_losses, strict=True))


def _right_with_a_loop(mean_losses: list[float], tokens: list[int]) -> float:
    total, count = 0.0, 0
    for at in range(len(tokens)):
        total += mean_losses[at] * tokens[at]
        count += tokens[at]
    return total / count


WINDOW_LOSS = Exercise(
    id="accumulation.window_loss",
    title="One loss for unequal batches",
    difficulty=2,
    minutes=6,
    hints=(
        "Two batches, one of 1 token and one of 99. Should both have the same say?",
        "From a mean over its tokens and their number, each batch gives back its sum.",
        "Add up these sums, and divide once, by the tokens of all batches together.",
    ),
    checker=NumericFunction(
        reference=window_loss,
        cases=(
            Case({"mean_losses": [2.0, 4.0], "tokens": [300, 100]}),
            Case({"mean_losses": [1.0, 3.0, 2.0], "tokens": [50, 50, 50]}, "All batches are equal here."),
            Case({"mean_losses": [5.0, 1.0, 1.5, 0.5], "tokens": [2, 500, 480, 18]}),
            Case({"mean_losses": [2.5], "tokens": [64]}, "The window has one batch here."),
            Case({"mean_losses": [0.7, 0.0], "tokens": [10, 0]}, "One batch has no token that counts."),
        ),
        diagnoses=(
            Diagnosis(
                lambda mean_losses, tokens: sum(mean_losses) / len(mean_losses),
                "That is a mean of means: a batch with two tokens counts as much as one with five hundred.",
            ),
            Diagnosis(
                lambda mean_losses, tokens: sum(m * n for m, n in zip(mean_losses, tokens, strict=True)),
                "That is the sum over all tokens. What makes a mean of it?",
            ),
            Diagnosis(
                lambda mean_losses, tokens: sum(mean_losses) / sum(tokens),
                "You add means and divide by tokens: each mean was divided by its own tokens already.",
            ),
            Diagnosis(
                lambda mean_losses, tokens: (
                    sum(m * n for m, n in zip(mean_losses, tokens, strict=True)) / len(tokens)
                ),
                "The sum over all tokens is right. By what must it be divided?",
            ),
        ),
    ),
    right_answers=(window_loss, _right_with_weights, _right_with_a_loop),
    wrong_answers=(
        WrongAnswer(lambda mean_losses, tokens: mean_losses, "a list"),
        WrongAnswer(
            lambda mean_losses, tokens: round(window_loss(mean_losses, tokens), 1),
            "returned",
        ),
        WrongAnswer(2.5, "without parentheses"),
    ),
)


def _right_by_len(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    for i, (x, y) in enumerate(loader):
        size = min(K, len(loader) - i // K * K)
        (criterion(model(x), y) / size).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def _right_by_windows(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    batches = list(loader)
    for at in range(0, len(batches), K):
        window = batches[at : at + K]
        optimizer.zero_grad()
        for x, y in window:
            (criterion(model(x), y) / len(window)).backward()
        optimizer.step()


def _wrong_modulo(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    for i, (x, y) in enumerate(loader):
        (criterion(model(x), y) / K).backward()
        if (i + 1) % K == 0:
            optimizer.step()
            optimizer.zero_grad()


def _wrong_divisor_at_the_end(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    for i, (x, y) in enumerate(loader):
        (criterion(model(x), y) / K).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def _wrong_without_division(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    for i, (x, y) in enumerate(loader):
        criterion(model(x), y).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def _wrong_without_zero_grad(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    for i, (x, y) in enumerate(loader):
        (criterion(model(x), y) / min(K, len(loader) - i // K * K)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()


def _wrong_every_batch(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


def _wrong_that_stops(model: Any, loader: Any, optimizer: Any, criterion: Any) -> None:
    for x, y in loader:
        criterion(model(x, y)).backward()


WHOLE_STEP = Exercise(
    id="accumulation.whole_step",
    title="A whole epoch, and nothing lost",
    difficulty=3,
    minutes=12,
    hints=(
        "Begin with the popular loop, run the check, and mend what it tells you. Then run it again.",
        "After the last batch of the loader there must be an update, also when the window is not full.",
        "A window at the end has fewer micro-batches. What must its losses be divided by?",
    ),
    checker=ProvedStep(
        ("model", "loader", "optimizer", "criterion"),
        (Reference(), Reference(micro_batches=8), Reference(micro_batches=3)),
    ),
    right_answers=(_right_by_len, _right_by_windows),
    wrong_answers=(
        WrongAnswer(_wrong_modulo, "the last window of an epoch is lost"),
        WrongAnswer(_wrong_divisor_at_the_end, "counts too little"),
        WrongAnswer(_wrong_without_division, "not divided"),
        WrongAnswer(_wrong_without_zero_grad, "old gradients stay"),
        WrongAnswer(_wrong_every_batch, "after every micro-batch"),
        WrongAnswer(_wrong_that_stops, "TypeError"),
        WrongAnswer(lambda model, loader: None, "it must take"),
        WrongAnswer("train_epoch", "in text"),
    ),
)

EXERCISES = (STEPS_NEEDED, UPDATES, WINDOW_LOSS, WHOLE_STEP)
