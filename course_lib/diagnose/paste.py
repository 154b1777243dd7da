"""What did the learner paste, once the damage of terminals, chats and notebooks is undone?

A Paste keeps the text twice: line by line, cleaned, for tables; and squeezed, with every blank taken out,
for sentences that a terminal has broken anywhere, even inside a word ("CUD / A out of memory"). What
launchers and viewers write before each line, or draw around it, is no part of such a sentence.
"""

import bisect
import re
from dataclasses import dataclass, field
from functools import cached_property

from course_lib.errors import CourseError

MAX_CHARACTERS = 20_000_000  # a longer text is a whole log: the part with the error is wanted
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\u200b-\u200f\u2060]")
_ODD_BLANKS = dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " ")
_FRAMES = {**dict.fromkeys(map(ord, "│┃║┆┊╎"), "|"), **dict.fromkeys(map(ord, "─━═╌"), "-")}
_QUOTES = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201b"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d"), '"'),
}
_ENTITIES = {"&gt;": ">", "&lt;": "<", "&amp;": "&", "&quot;": '"', "&#39;": "'", "&nbsp;": " "}
_ENTITY = re.compile("|".join(_ENTITIES))
_LABELS = (
    r"\[(?:rank|default)\d{1,6}\]:"  # torch, torchrun --tee
    r"|\[rank \d{1,6}\](?=\s|$)"  # the course's own launch
    r"|\[\d{1,5},\d{1,6}\]<std(?:out|err)>:"  # mpirun --tag-output
    r"|\d{1,5}:(?=[ \t])"  # srun --label
    r"|\([\w.-]{1,60}[ \t]pid=\d{1,10}[^()\n]{0,60}\)"  # ray
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z"  # kubectl --timestamps, GitHub Actions
    r"|[\w.-]{1,60}[_-]\d{1,4}[ \t]{1,20}\|(?=[ \t])"  # docker compose
    r"|>"  # a quotation
)
# What stands before or around a line that is no part of a sentence; with "|", also a frame.
_MARGIN = re.compile(rf"^(?:[ \t]*(?:{_LABELS}|\|))+|[ \t]\|[ \t]*$", re.MULTILINE)
_LABEL = re.compile(rf"^(?:[ \t]*(?:{_LABELS}))+ ?")


@dataclass(frozen=True, eq=False)  # each is itself: what was read in it can be kept with it
class Paste:
    """A pasted text, cleaned. Build it with ``Paste.of``; the line numbers are those of the text given.

    Raises CourseError (in ``of``) for a text of more than 20 million characters.
    """

    text: str
    _line_starts: list[int] = field(repr=False)

    @classmethod
    def of(cls, text: str) -> "Paste":
        """Clean ``text``: colours, control characters, frames, HTML entities, odd blanks and quotes go."""
        if len(text) > MAX_CHARACTERS:
            raise CourseError(
                f"The text has {len(text):,} characters; up to {MAX_CHARACTERS:,} are read: "
                "cut it down to the part around the error, for example with tail -n 2000."
            )
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _CONTROL.sub("", _ANSI.sub("", text))
        text = _ENTITY.sub(lambda m: _ENTITIES[m.group()], text)
        text = text.translate(_ODD_BLANKS | _FRAMES | _QUOTES)
        return cls(text, [0, *(m.end() for m in re.finditer("\n", text))])

    @cached_property
    def lines(self) -> list[str]:
        """The cleaned lines, without their ends."""
        return self.text.split("\n")

    @cached_property
    def body(self) -> str:
        """The text with blanks in place of what stands before or around each line; letter for letter."""
        return _MARGIN.sub(lambda match: " " * len(match.group()), self.text)

    @cached_property
    def labelled_lines(self) -> list[tuple[str, str]]:
        """For each line what a launcher or viewer wrote before it ("" for nothing), and the line without."""
        found: list[tuple[str, str]] = []
        for line in self.lines:
            match = _MARGIN.match(line)
            label = match.group() if match and match.end() > match.start() else ""
            # One blank belongs to the label; those after it indent the code.
            found.append((label, line[len(label) :].removeprefix(" ") if label else line))
        return found

    @cached_property
    def unlabelled(self) -> "Paste":
        """The same lines without what launchers and quotations write before each, tabs as blanks, no bold.

        For tables: the frames, which separate their cells, stay.
        """
        text = "\n".join(_LABEL.sub("", line).expandtabs(8).replace("**", "") for line in self.lines)
        return self if text == self.text else Paste.of(text)

    @cached_property
    def squeezed(self) -> str:
        """The body with every blank and line break taken out."""
        return "".join(self.body.split())

    @cached_property
    def lowered(self) -> str:
        """The same in lower case, letter for letter: a place in it is the same place in ``squeezed``."""
        lowered = self.squeezed.lower()
        if len(lowered) == len(self.squeezed):
            return lowered
        # Some letters become two (the Turkish dotted I): those stay as they are.
        return "".join(low if len(low := letter.lower()) == 1 else letter for letter in self.squeezed)

    @cached_property
    def _pieces(self) -> tuple[list[int], list[int]]:
        # Where each run without blanks begins, in the squeezed text and in the text.
        squeezed, original, length = [], [], 0
        for match in re.finditer(r"\S+", self.body):
            squeezed.append(length)
            original.append(match.start())
            length += match.end() - match.start()
        return squeezed, original

    def offset(self, squeezed_offset: int) -> int:
        """The place in ``text`` of a place in ``squeezed``."""
        squeezed, original = self._pieces
        if not squeezed:
            return 0
        index = max(bisect.bisect_right(squeezed, squeezed_offset) - 1, 0)
        return original[index] + squeezed_offset - squeezed[index]

    def line_of(self, offset: int) -> int:
        """The number, from 1, of the line at that place of ``text``."""
        return bisect.bisect_right(self._line_starts, offset)

    def line_before(self, offset: int) -> str:
        """What stands on the same line before that place of ``text``, at most 400 characters of it."""
        return self.text[max(self._line_starts[self.line_of(offset) - 1], offset - 400) : offset]
