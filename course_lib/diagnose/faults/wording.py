"""How is one wording of an error recognised in a paste, and what is handed on about it?

A `Wording` names the words of an error. They are looked for with blanks and case left out, since terminals
break lines anywhere. What it tells is a fixed finding, or a function that looks around the place first.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from course_lib.diagnose.finding import Certainty, Evidence, Finding, Severity
from course_lib.diagnose.paste import Paste

_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Warning))\s*:")
_RANK = re.compile(r"\[rank ?(\d{1,6})\]|\[(?:[^\[\]\n]{0,80}\s)?Rank\s+(\d{1,6})\]", re.IGNORECASE)
_QUOTED_IN_COMMENT = re.compile(r"(?:^|\s)#[^\n]*[\"'`][^\"'`\n]*$")
_RANK_WITHIN = 400  # a message of several lines names its rank on the first one
_MOST_PLACES = 50
_FIGURES_WITHIN = 4000
_SHOWN = 120


@dataclass(frozen=True)
class Around:
    """The place in a paste where words of an error stand: at ``start`` of the text without blanks."""

    paste: Paste
    start: int
    length: int
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def offset(self) -> int:
        """The place in the text."""
        return self.paste.offset(self.start)

    @property
    def first_line(self) -> int:
        """The line, from 1, on which the words begin."""
        return self.paste.line_of(self.offset)

    @property
    def last_line(self) -> int:
        """The line on which they end."""
        return self.paste.line_of(self.paste.offset(self.start + self.length - 1))

    @cached_property
    def exception(self) -> str | None:
        """The class of the exception as it stands before the words, on the same line; None without one."""
        found = _EXCEPTION.findall(self.paste.line_before(self.offset))
        return found[-1] if found else None

    @property
    def quoted_in_comment(self) -> bool:
        """Whether the words stand in quotes in a comment of code: somebody speaks of the error."""
        return _QUOTED_IN_COMMENT.search(self.paste.line_before(self.offset)) is not None

    @cached_property
    def rank(self) -> int | None:
        """The rank whose line this is, if the line, or one just before it, says so."""
        found = _RANK.findall(self.paste.text[max(self.offset - _RANK_WITHIN, 0) : self.offset + 1])
        return int(found[-1][0] or found[-1][1]) if found else None

    @property
    def following(self) -> str:
        """The text from the words on, at most 4,000 characters."""
        return self.paste.body[self.offset : self.offset + _FIGURES_WITHIN]

    def says(self, *words: str) -> bool:
        """Whether the paste has any of these words, blanks and case left out."""
        text = self.paste.lowered
        return any(squeeze(word) in text for word in words)

    def search(self, pattern: str) -> re.Match[str] | None:
        """The first match of a pattern in the whole text, any case."""
        return re.search(pattern, self.paste.body, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Told:
    """What one wording told: figures from the text, what follows from them, and the finding."""

    finding: Finding
    figures: Mapping[str, Any] = field(default_factory=dict)
    derived: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wording:
    """Words of an error (any of ``words``), and what they tell.

    ``told`` is a finding, or a function that makes one (None: it is something else). ``figures`` is a pattern
    with named groups for the text from the words on; whole numbers become int, and what it does not find is
    None.
    """

    words: tuple[str, ...]
    told: Finding | Callable[[Around], Told | None]
    figures: re.Pattern[str] | None = None

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """The words without blanks and in lower case."""
        return tuple(squeeze(words) for words in self.words)

    def places(self, paste: Paste) -> Iterator[tuple[int, int]]:
        """Where the words stand in the text without blanks: start and length."""
        text = paste.lowered
        for mark in self.marks:
            start, count = text.find(mark), 0
            while start >= 0 and count < _MOST_PLACES:
                yield start, len(mark)
                start, count = text.find(mark, start + len(mark)), count + 1

    def read(self, paste: Paste) -> tuple[Around, Told] | None:
        """What it tells about this paste; None where the words are not there, or mean something else."""
        places = [Around(paste, start, length) for start, length in self.places(paste)]
        places = [place for place in places if not place.quoted_in_comment]
        if not places:
            return None
        # A traceback shows the line of code that raises before the message itself.
        place = next((place for place in places if place.exception), places[0])
        place = Around(paste, place.start, place.length, self._figures(place))
        if isinstance(self.told, Finding):
            return place, Told(_with_evidence(self.told, place.figures), place.figures)
        told = self.told(place)
        return (
            None
            if told is None
            else (place, Told(told.finding, {**place.figures, **told.figures}, told.derived))
        )

    def _figures(self, place: Around) -> dict[str, Any]:
        figures: dict[str, Any] = {"exception": place.exception, "rank": place.rank}
        if self.figures is not None:
            figures.update(dict.fromkeys(self.figures.groupindex))
            match = self.figures.search(place.following)
            if match:
                figures.update({name: number(text) for name, text in match.groupdict().items()})
        return figures


def fault(
    id: str,
    summary: str,
    why: str,
    remedies: str | tuple[str, ...],
    not_helpful: str | tuple[str, ...] = (),
    *,
    severity: Severity = "problem",
    certainty: Certainty = "certain",
    evidence: tuple[Evidence, ...] = (),
) -> Finding:
    """A Finding; a single remedy, or a single thing that would not help, may be given as it is."""
    return Finding(
        id,
        summary,
        why,
        (remedies,) if isinstance(remedies, str) else remedies,
        (not_helpful,) if isinstance(not_helpful, str) else not_helpful,
        evidence,
        severity,
        certainty,
    )


def wording(
    words: str | tuple[str, ...], told: Finding | Callable[[Around], Told | None], figures: str | None = None
) -> Wording:
    """A Wording; ``figures`` as text of a pattern in which any case and any line break match."""
    pattern = None if figures is None else re.compile(figures, re.IGNORECASE | re.DOTALL)
    return Wording((words,) if isinstance(words, str) else words, told, pattern)


def evidence_of(figures: Mapping[str, Any]) -> tuple[Evidence, ...]:
    """The figures that are there, as evidence, cut where they are long."""
    shown = {name: _shown(value) for name, value in figures.items() if value is not None and name != "format"}
    return tuple(Evidence(name.replace("_", " "), text) for name, text in shown.items() if text)


def _with_evidence(finding: Finding, figures: Mapping[str, Any]) -> Finding:
    return Finding(
        finding.id,
        finding.summary,
        finding.why,
        finding.remedies,
        finding.not_helpful,
        evidence_of(figures),
        finding.severity,
        finding.certainty,
    )


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name}: {inner}" for name, inner in value.items()]
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 4] + " ..."


def number(text: str | None) -> Any:
    """A whole number as int, other text as it is, None as None."""
    if text is not None and re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return text


def squeeze(text: str) -> str:
    """The text without blanks and in lower case."""
    return "".join(text.split()).lower()
