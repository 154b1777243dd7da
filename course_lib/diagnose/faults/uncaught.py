"""An error that no other reader knows: what was raised, where in the learner's own file, what to do first?

Nobody lists all errors that a program can raise. Where nothing else in the text is a problem, the last line
of the traceback and the innermost line of the learner's own code say most of it.
"""

from collections.abc import Sequence

from course_lib.diagnose.faults.rank_errors import KIND, unknown_errors
from course_lib.diagnose.faults.traceback_reader import Place, Raised
from course_lib.diagnose.faults.tracebacks import cut_off, interrupted, of_threads
from course_lib.diagnose.faults.wording import evidence_of, fault
from course_lib.diagnose.finding import Finding, Reading
from course_lib.diagnose.paste import Paste

_SHOWN = 160
_LOOK_AT = {
    "AssertionError": "Read the condition of the assert: print the values in it just before",
    "AttributeError": "Print type(...) of the object before the dot: it is None or of another class than "
    "meant, or its library has another version",
    "FileNotFoundError": "Print the path and the current folder (Path.cwd()): a relative path starts there",
    "ImportError": "Compare the installed version (pip show) with the one that the code was written for, in "
    "the Python that runs it",
    "IndexError": "Print the index and the length",
    "KeyError": "Print the keys that are there",
    "ModuleNotFoundError": "Install that package in the Python that runs the script (python -m pip install "
    "...): print(sys.executable) names it",
    "NameError": "Look for the name: a letter differs, or the line that makes it did not run",
    "NotADirectoryError": "Print the path",
    "PermissionError": "Look who owns that path and may write there",
    "SyntaxError": "Look at that line and the one above it: a bracket or quote that is not closed, or words "
    "of a newer Python than the one that runs it",
    "TypeError": "Compare the call with the function's signature: help(...) shows it; print the type of each "
    "argument",
    "UnboundLocalError": "Look for the branch that makes the name and did not run",
    "UnicodeDecodeError": "Give the file's encoding to open(...), or look whether it is a text at all",
    "ValueError": "Print the value that the message speaks of",
    "ZeroDivisionError": "Print the divisor: most often an empty list or an empty loader",
}
_ELSE = "Print the values that this line uses just before it"


def read(paste: Paste, readings: Sequence[Reading]) -> list[Reading]:
    """The error of a traceback, where nothing else in the text is a problem; at most one Reading."""
    if any(finding.severity == "problem" for reading in readings for finding in reading.findings):
        return []
    ended = [error for error in unknown_errors(paste, readings) if not error.in_a_sentence]
    if errors := ended or of_threads(paste):
        return [_reading(errors[0].line, _figures(errors[0]), _raised(errors[0]), errors[0])]
    if places := cut_off(paste):
        figures = {"raised": None, "where": places[0].where or None, "innermost": places[0].inner}
        return [_reading(places[0].line, figures, _unfinished(places[0]), places[0])]
    if stops := interrupted(paste):
        return [_reading(stops[0].line, _figures(stops[0]), _stopped(stops[0]), stops[0])]
    return []


def _reading(line: int, figures: dict[str, str | None], finding: Finding, source: object) -> Reading:
    return Reading(KIND, figures, line, line, (finding,), source=source)


def _figures(error: Raised) -> dict[str, str | None]:
    return {"raised": str(error), "where": error.where or None}


def _short(error: Raised) -> str:
    text = str(error)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


def _raised(error: Raised) -> Finding:
    kind = error.name.rpartition(".")[2]
    place = f" at {error.where}" if error.where else ""
    look = _LOOK_AT.get(kind, _ELSE)
    if error.where:
        why = (
            f"{error.where} is the innermost line of a file that is not a library's: there the values came "
            "from. The course has no more to say about this message; it is the program's own, or a library's."
        )
        first = f"Look at {error.where}. {look}."
    else:
        why = (
            "The text has no line of your own file, so it is not known where it was raised. The course has "
            "no more to say about this message."
        )
        first = f"Paste the whole traceback, from 'Traceback (most recent call last)' on. {look}."
    return fault(
        "python.exception",
        f"Python raised {_short(error)}{place}",
        why,
        (
            first,
            "Search for the exact message together with the library's name; run it as one process and with "
            "num_workers=0, so that nothing else stands in between.",
        ),
        (
            "Reinstalling packages, before that line was looked at.",
            "Catching the exception and going on.",
        ),
        evidence=evidence_of({"raised": _short(error), "where": error.where or None}),
    )


def _unfinished(place: Place) -> Finding:
    at = place.where or "a library's own line"
    return fault(
        "python.traceback_cut_off",
        f"The traceback has no last line: what was raised is not known (it stood at {at})",
        f"The last line of a traceback names the error. Here it ends in {place.inner}; the line is not in "
        "the text, or was broken or mixed with another process's output.",
        (
            "Paste the lines that follow, down to the one that begins with the name of the error "
            "(RuntimeError: ...); with several processes, each one's output (torchrun --log-dir logs --tee "
            "3).",
        ),
        ("Guessing from the frames alone.",),
        certainty="possible",
        evidence=evidence_of({"where": place.where or None, "innermost": place.inner}),
    )


def _stopped(error: Raised) -> Finding:
    at = error.where or "a library's own line"
    return fault(
        "python.interrupted",
        f"The program was stopped from the keyboard; it stood at {at}",
        "KeyboardInterrupt is no error: somebody pressed Ctrl-C, or interrupted the notebook.",
        (
            f"If it hung before: look at what {at} waits for (another rank, a worker, a file, the "
            "network). Else start it again from the last checkpoint.",
        ),
        ("Looking for a bug in the library's frames below it.",),
        severity="warning",
        evidence=evidence_of({"where": error.where or None}),
    )
