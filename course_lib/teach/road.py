"""Which lesson should I open next? The road through the course, and a signpost from a measured step."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Protocol

from course_lib.errors import CourseError
from course_lib.teach.links import lesson_address


class Split(Protocol):
    """What the signpost reads from a measured step: a share of the step's time for each phase."""

    @property
    def shares(self) -> dict[str, float]:
        """Share of the step per phase, 0 to 1."""


@dataclass(frozen=True)
class Stop:
    """One lesson on the road: its number, the word that names it everywhere, and what it answers."""

    number: int
    word: str
    title: str
    answers: str

    @property
    def name(self) -> str:
        """File name without its ending, as in ``04_loading``."""
        return f"{self.number:02d}_{self.word}"


STOPS: tuple[Stop, ...] = (
    Stop(0, "start", "Where does the time go?", "what your training step waits for"),
    Stop(1, "hardware", "Which card?", "which card your model needs, and for how long"),
    Stop(2, "ddp", "Many cards", "whether more cards would help, and how to use them"),
    Stop(3, "precision", "Half the bytes", "how 16-bit numbers make a step faster and smaller"),
    Stop(4, "loading", "Feed the card", "how to stop the card from waiting for data"),
    Stop(5, "accumulation", "A large batch from small ones", "how to train with a batch that does not fit"),
    Stop(6, "oom", "When memory runs out", "what fills the memory, and what to do in which order"),
    Stop(7, "health", "Are the cards healthy?", "what nvidia-smi says, and what it does not"),
    Stop(8, "curves", "Read the loss", "what a loss curve asks you to change"),
    Stop(9, "cost", "What does it cost?", "hours, energy and money of a training run"),
    Stop(10, "capstone", "All of it", "one slow training, mended from end to end"),
)

USUAL_ROAD: tuple[int, ...] = (0, 4, 6, 3, 5, 1, 9, 8, 2, 7, 10)

STARVED_SHARE = 0.3
"""From this share of waiting upwards, feeding the card is the first thing to mend: a perfect loader would
make the step at least 1 / (1 - 0.3) = 1.43 times as fast, more than most other single changes give."""


@dataclass(frozen=True)
class Signpost:
    """Where to go next, and why."""

    stop: Stop
    reason: str
    in_this_edition: bool

    def __str__(self) -> str:
        where = "" if self.in_this_edition else " (this lesson is not in your edition yet)"
        return f"{self.reason}\nNext: lesson {self.stop.number:02d}, {self.stop.title}{where}"

    def _repr_html_(self) -> str:
        title = f"{self.stop.number:02d} · {self.stop.title}"
        if self.in_this_edition:
            link = f'<a href="{escape(lesson_address(self.stop.name))}">{escape(title)}</a>'
        else:
            link = f"{escape(title)} (not in your edition yet)"
        return f"<p>{escape(self.reason)}<br><b>Next:</b> {link}</p>"


def stop(word: str) -> Stop:
    """The lesson of this topic word. Raises CourseError for a word that names no lesson."""
    for candidate in STOPS:
        if candidate.word == word:
            return candidate
    known = ", ".join(candidate.word for candidate in STOPS)
    raise CourseError(f"No lesson is called {word!r}; the lessons are {known}.")


def where_next(split: Split, *, out_of_memory: bool = False) -> Signpost:
    """The lesson that a measured step calls for.

    Args:
        split: a measured step; its ``shares`` hold the share of each phase (0 to 1), as StepSplit gives it.
        out_of_memory: whether training also stops for lack of memory. A step that does not run comes first.

    Returns:
        A signpost to lesson 06 (memory), 04 (the step waits for data or transfer) or 03 (it computes).

    Raises:
        CourseError: ``split`` is not a measured step.
    """
    if not hasattr(split, "shares"):
        raise CourseError(f"A measured step is needed, as measure_split() returns it, not {split!r}.")
    waiting = split.shares.get("data", 0.0) + split.shares.get("transfer", 0.0)
    if out_of_memory:
        reason, word = "A step that does not fit cannot be made faster: make it fit first.", "oom"
    elif waiting >= STARVED_SHARE:
        reason, word = f"Your step spends {waiting:.0%} of its time waiting for data.", "loading"
    else:
        reason = f"Your step waits only {waiting:.0%} of its time: the computing itself is what takes long."
        word = "precision"
    target = stop(word)
    return Signpost(target, reason, target.name in _names_in_this_edition())


def _names_in_this_edition() -> frozenset[str]:
    from course_lib.files import notebooks_dir

    return frozenset(path.stem for path in notebooks_dir().glob("[0-9][0-9]_*.ipynb"))
