"""How do notebooks, rich and loggers print a traceback, and what would Python itself have printed?

IPython writes ``ValueError   Traceback (most recent call last)`` and arrows for the failing lines, rich draws
a box, a logger puts time and level before each line, an ExceptionGroup draws a tree. Each line is turned into
what Python prints in its place, or into a deeper line that says nothing, so that line numbers stay.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.diagnose.paste import Paste

_HEADER_WORDS = "Traceback (most recent call last)"
HEADER = f"{_HEADER_WORDS}:"
CELL = "notebook cell"
_LONGEST_LINE = 4_000
_CORNERS = "\u256d\u250c\u2570\u2514+"  # of a box, on the left; a plain terminal has "+"
_BOXED_HEADER = re.compile(rf"^\s*[{_CORNERS}]-{{1,200}}\s?Traceback \(most recent call last\)")
_BOTTOM = re.compile(rf"^\s*[{_CORNERS}]-{{3,400}}")
_BOXED_FRAME = re.compile(
    r"^(?P<path>[^|\n]{0,300}?\.py):(?P<line>\d{1,7})(?:\s{1,3}in\s(?P<name>\S{1,120}))?$"
)
_BOXED_CELL = re.compile(
    r"^(?:(?P<path><ipython-input-[^>\n]{1,80}>):(?P<line>\d{1,7})\sin\s(?P<name>\S{1,120})"
    r"|in\s(?P<function>[\w.]{1,120}|<[^>\n]{1,40}>):(?P<at>\d{1,7}))$"
)
_BOXED_CODE = re.compile(r"^(?:\u2771\s{0,4})?\d{1,6}(?:\s|$)")
_CELL_HEADER = re.compile(
    r"^(?P<name>[A-Za-z_][\w.]{0,120})\s{2,400}Traceback \(most recent call last\):?\s*$"
)
_ARROW = re.compile(r"^-{1,8}>\s{0,8}(?P<line>\d{1,7})\b")
_CELL = re.compile(r"^(?:Cell|Input)\s{1,3}In\s?\[(?P<number>\d{1,6})\],\s(?:line\s(?P<line>\d{1,7})|in\s)")
_NEW_FRAME = re.compile(
    r"^File\s(?P<path>[^\n]{1,400}?):(?P<line>\d{1,7})(?:,\sin\s(?P<name>[\w.<>]{1,120}))?"
)
_OLD_FRAME = re.compile(
    r"^(?P<path>[^\s(][^()\n]{0,400}?\.pyx?|<ipython-input-\d{1,6}[^>\n]{0,80}>)\sin\s(?P<name>[\w.]{1,120}|<[^>\n]{1,40}>)"
)
_IN_A_CELL = re.compile(r"<ipython-input-(?P<number>\d{1,6})|ipykernel_\d{1,12}[/\\]")
_LOGGED_HEADER = re.compile(
    rf"^(?P<prefix>\S.{{0,200}}?\s)(?=\s{{0,8}}(?:[{_CORNERS}]-{{1,200}}\s?)?Traceback \(most recent call"
    r" last\))"
)
_LOGGED_FRAME = re.compile(r'^(?P<prefix>\S.{0,200}?\s)(?=\s{1,8}File "[^"\n]{1,400}", line \d)')
_RANK = "[rank"
_GROUP = re.compile(r"^\s*\+(?:\s(?:\|\s)?Exception Group Traceback \(most|-[+-]{0,4}-{2,80})")


@dataclass
class _Box:
    """A traceback that rich has drawn: which label its lines have, and the line before."""

    label: str
    before: str = ""

    def line(self, text: str) -> str:
        """What Python would print for one line of the box."""
        plain = text.rstrip().removesuffix("|").strip()
        before, self.before = self.before, plain
        if not plain or plain[0] in _CORNERS or _BOXED_CODE.match(plain):
            return f"    {plain}" if plain else ""
        if cell := _BOXED_CELL.match(plain):
            self.before = ""
            return _frame(_cell_or_file(cell["path"] or CELL), cell["line"] or cell["at"], _function(cell))
        # A long path goes on in the next line; a frame stands after an empty line.
        whole = before + plain if before and not _BOXED_CODE.match(before) else plain
        frame = _BOXED_FRAME.match(whole)
        if frame is None or not frame["path"].strip():
            return f"    {plain}"
        self.before = ""
        return _frame(_cell_or_file(frame["path"]), frame["line"], frame["name"])


@dataclass
class _Cell:
    """A traceback as IPython prints it: the class of the error, and the frame whose line is not yet known."""

    name: str
    path: str = ""
    function: str = ""

    def line(self, text: str) -> tuple[str, bool]:
        """What Python would print for one line, and whether the traceback ends with it."""
        if re.match(rf"(?:[\w.]{{1,120}}\.)?{re.escape(self.name)}\s*(?::|$)", text):
            return text, True
        if cell := _CELL.match(text):
            self.path, self.function = f"{CELL} {cell['number']}", ""
            return (_frame(self.path, cell["line"], None) if cell["line"] else f"    {text}"), False
        if frame := _NEW_FRAME.match(text):
            self.path = ""
            return _frame(_cell_or_file(frame["path"]), frame["line"], frame["name"]), False
        if frame := _OLD_FRAME.match(text):
            self.path, self.function = _cell_or_file(frame["path"]), frame["name"]
            return f"    {text}", False
        arrow = _ARROW.match(text)
        if arrow and self.path:
            path, self.path = self.path, ""
            name = self.function if self.function[:1] not in ("", "<") else None
            return _frame(path, arrow["line"], name), False
        return f"    {text}" if text.strip() else "", False


def plain_lines(paste: Paste) -> Iterator[tuple[str, str]]:
    """For each line of the paste its label and the text, a traceback in Python's own style."""
    box: _Box | None = None
    cells: dict[str, _Cell] = {}
    prefixes: dict[str, str] = {}
    for margin, whole in paste.labelled_lines:
        label, text = margin, whole[:_LONGEST_LINE]
        text = _without_log_prefix(text, label.strip(), prefixes)
        if text[:1] == "|":  # a box behind the prefix
            label, text = f"{label}|", text[1:].removeprefix(" ")
        key = label.strip()
        if box is not None and key.endswith("|") and key[:-1].strip() == box.label.strip():
            yield box.label, box.line(text)
        elif box is not None and key == box.label.strip() and _BOTTOM.match(text):
            box = None
            yield label, ""
        elif key in cells:
            line, over = cells[key].line(text)
            if over:
                del cells[key]
            yield label, line
        elif _HEADER_WORDS in text and _BOXED_HEADER.match(text):
            box = _Box(label)
            yield label, HEADER
        elif _HEADER_WORDS in text and (header := _CELL_HEADER.match(text)):
            cells[key] = _Cell(header["name"].rpartition(".")[2])
            yield label, HEADER
        elif _GROUP.match(text):
            yield label, ""
        else:
            yield label, text


def _without_log_prefix(text: str, key: str, prefixes: dict[str, str]) -> str:
    """The line without what a logger wrote before it, where the lines before had the same."""
    found = None
    if _RANK in text:
        return text  # the rank is the printer's own label, whatever stands before it
    if _HEADER_WORDS in text:
        prefixes.pop(key, None)
        if _BOXED_HEADER.match(text) or _CELL_HEADER.match(text):
            return text
        found = _LOGGED_HEADER.match(text)
    elif 'File "' in text and key not in prefixes:
        found = _LOGGED_FRAME.match(text)
    if found:
        prefixes[key] = _shape(found["prefix"])
        return text[found.end() :]
    shape = prefixes.get(key)
    if shape is None:
        return text
    beginning = text[: len(shape)]
    # An empty line of a logger has no blank at its end.
    return text[len(shape) :] if _shape(beginning.ljust(len(shape))) == shape else text


def _shape(prefix: str) -> str:
    return re.sub(r"\d", "0", prefix)


def _frame(path: str, line: str, name: str | None) -> str:
    return f'  File "{path}", line {line}, in {name or "<module>"}'


def _function(cell: re.Match[str]) -> str | None:
    name = cell["name"] or cell["function"]
    return None if name.startswith("<") else name


def _cell_or_file(path: str) -> str:
    if cell := _IN_A_CELL.search(path):
        return f"{CELL} {cell['number']}" if cell["number"] else CELL
    return path
