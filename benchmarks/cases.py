"""How well are real pastes read: every figure, the diagnosis, the first remedy, no wrong advice?

Run: python benchmarks/cases.py --cases DIR [--group a] [--json] [--verbose]

DIR holds pairs ``NNN_kind.txt`` (what a learner pasted) and ``NNN_kind.json`` (what should be found:
``expected.extract``, ``expected.derived``, ``expected.diagnosis.id``, ``first_remedy``, ``wrong_advice``).

- figures: each expected figure is looked up by its name in what was read and compared (numbers within the
  rounding of the print, sizes also as printed; null must not have been invented);
- diagnosis: the first finding's id;
- remedy: the first remedy shares the words that carry the expected one (commands, settings, what to lower);
  words cannot prove that two sentences mean the same, so --verbose prints both for a reader;
- wrong advice: no remedy recommends what the case calls wrong.
"""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from course_lib.diagnose.recognise import Explanation, explain

# Names in the cases -> names in the readings, where they differ.
SAME = {
    "oom_tried": ("tried_to_allocate",),
    "oom_total": ("total_capacity",),
    "oom_allocated": ("allocated",),
    "oom_free": ("free",),
    "oom_reserved": ("reserved_total",),
    "used_mb": ("used_mib",),
    "total_mb": ("total_mib",),
    "fan": ("fan_percent",),
    "mig": ("mig_enabled",),
    "memory.used_mib": ("used_mib",),
    "memory.total_mib": ("total_mib",),
    "memory.free_mib": ("free_mib",),
    "utilization.gpu_percent": ("util_percent",),
    "utilization.memory_percent": ("memory_activity_percent",),
    "temperature.gpu_c": ("temp_c",),
    "power.draw_w": ("power_w",),
    "power.limit_w": ("power_cap_w",),
    "type": ("kind",),
    "command_fields": ("columns",),
}
# Names in the cases for a list of one field over all cards or samples.
LISTS = {
    "fb_mb": "used_mib",
    "sm_percent": "util_percent",
    "temp_c": "temp_c",
    "power_draw_w": "power_w",
    "memory.used_mib": "used_mib",
    "utilization.gpu_percent": "util_percent",
    "numa": "numa",
}
_WORD = re.compile(r"[A-Za-z_][\w.]+(?:\([^)]*\))?|--[\w-]+")
_COMMON = frozenset(
    [
        "the",
        "and",
        "then",
        "that",
        "this",
        "with",
        "from",
        "for",
        "not",
        "are",
        "you",
        "can",
        "one",
        "use",
        "what",
        "which",
        "when",
        "into",
        "only",
        "them",
        "out",
        "than",
        "more",
        "first",
        "see",
        "look",
        "also",
        "its",
        "but",
        "has",
        "have",
        "all",
        "any",
        "both",
        "before",
        "after",
        "each",
        "other",
        "same",
        "make",
        "makes",
        "like",
        "must",
        "may",
        "your",
        "who",
        "does",
        "were",
        "was",
        "will",
        "would",
        "should",
        "could",
        "where",
        "such",
        "still",
        "also",
        "very",
        "enough",
        "needs",
        "need",
        "about",
        "above",
        "below",
        "most",
        "least",
        "lower",
        "print",
        "find",
        "set",
        "run",
        "call",
        "ask",
        "say",
        "plainly",
    ]
)


@dataclass
class Score:
    """What was right and wrong about one case."""

    case: str
    figures: int = 0
    figures_right: int = 0
    wrong_figures: list[str] = field(default_factory=list)
    diagnosis: bool = False
    found: list[str] = field(default_factory=list)
    expected: str = ""
    remedy_overlap: float = 0.0
    remedy: bool = False
    wrong_advice: list[str] = field(default_factory=list)
    first_remedy: str | None = None
    expected_remedy: str = ""


def score(case: dict[str, Any], text: str) -> Score:
    """Read ``text`` and compare with what ``case`` expects."""
    explanation = explain(text)
    expected = case["expected"]
    result = Score(case=f"{case['id']} {case['kind']}", expected=expected["diagnosis"]["id"])
    figures = [reading.to_json() for reading in explanation.readings]
    for name, wanted in expected["extract"].items():
        for path, value in _leaves(name, wanted):
            result.figures += 1
            if _found(path, value, wanted, figures, text):
                result.figures_right += 1
            else:
                result.wrong_figures.append(f"{path}: expected {json.dumps(value)}")
    for name, wanted in expected.get("derived", {}).items():
        if isinstance(wanted, (int, float)) and any(name in f["derived"] for f in figures):
            result.figures += 1
            if any(_equal(f["derived"].get(name), wanted) for f in figures):
                result.figures_right += 1
            else:
                result.wrong_figures.append(f"derived {name}: expected {wanted}")
    result.found = [finding.id for finding in explanation.findings]
    result.diagnosis = result.found[:1] == [result.expected]
    result.expected_remedy = expected["first_remedy"]
    result.first_remedy = explanation.findings[0].first_remedy if explanation.findings else None
    result.remedy_overlap = _overlap(result.expected_remedy, result.first_remedy or "")
    result.remedy = result.remedy_overlap >= 0.3
    result.wrong_advice = _wrong_advice(expected["wrong_advice"], explanation)
    return result


def _leaves(name: str, wanted: Any) -> Iterator[tuple[str, Any]]:
    """The figures under one name; lists of cards, processes and samples count each of their fields."""
    if isinstance(wanted, dict) and set(wanted) != {"raw", "mib"} and name != "links":
        for key, value in wanted.items():
            yield from _leaves(f"{name}/{key}", value)
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        for place, entry in enumerate(wanted):
            for key, value in entry.items():
                yield f"{name}/{place}/{key}", value
    else:
        yield name, wanted


def _found(path: str, value: Any, wanted: Any, readings: list[dict[str, Any]], text: str) -> bool:
    return any(_in_reading(path, value, reading, text) for reading in readings)


def _in_reading(path: str, value: Any, reading: dict[str, Any], text: str) -> bool:
    figures = reading["figures"]
    parts = path.split("/")
    if len(parts) == 1:
        return _top_level(parts[0], value, figures, reading["derived"])
    if parts[0] in ("gpus", "rows", "processes", "mig_devices", "other_processes", "compute_apps"):
        entries = figures.get({"rows": "gpus", "compute_apps": "processes"}.get(parts[0], parts[0]))
        place = int(parts[1])
        if not isinstance(entries, (list, tuple)) or place >= len(entries):
            return False
        return any(_equal(entries[place].get(n), value) for n in (parts[2], *SAME.get(parts[2], ())))
    inner = figures.get(parts[0])
    return isinstance(inner, dict) and _equal(inner.get(parts[1]), value)


def _top_level(name: str, value: Any, figures: dict[str, Any], derived: dict[str, Any]) -> bool:
    names = (name, *SAME.get(name, ()))
    cards = list(figures.get("gpus") or ())
    samples = list(figures.get("samples") or cards)
    if name in LISTS and isinstance(value, list):
        if name in figures:
            return _equal(list(figures[name] or ()), value)
        return _equal([sample.get(LISTS[name]) for sample in samples], value)
    if name == "gpus" and isinstance(value, int):
        return value in (len(cards), len(figures.get("numa") or ()))
    if name == "samples" and isinstance(value, int):
        return len(samples) == value
    if name == "nvlink" and isinstance(value, bool):
        return any(str(link).startswith("NV") for link in figures.get("links", {}).values()) == value
    if name == "first_gpu_total_mib":
        sums = derived.get("process_mib_by_gpu") or {}
        return bool(sums) and _equal(sums[min(sums)], value)
    present = [source[n] for source in (figures, derived) for n in names if n in source]
    if present:
        return any(_equal(found, value) for found in present)
    if len(cards) == 1 or name in ("power_limit_w",):
        field_names = [*names, "power_cap_w"] if name == "power_limit_w" else names
        return bool(cards) and any(all(_equal(card.get(n), value) for card in cards) for n in field_names)
    return value is None  # not in the text, and nothing invented under that name


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(found, bool) or wanted is None or found is None:
        return bool(found == wanted)
    if isinstance(wanted, dict) and set(wanted) == {"raw", "mib"}:
        return (
            isinstance(found, dict)
            and found.get("raw") == wanted["raw"]
            and _equal(found["mib"], wanted["mib"])
        )
    if isinstance(wanted, (int, float)) and isinstance(found, (int, float)):
        return abs(found - wanted) <= max(0.06, 0.0005 * abs(wanted))
    if isinstance(wanted, list) and isinstance(found, (list, tuple)):
        return len(wanted) == len(found) and all(_equal(f, w) for f, w in zip(found, wanted, strict=True))
    return bool(found == wanted)


def _words(text: str) -> set[str]:
    words = {w.lower().rstrip(".").removesuffix("()") for w in _WORD.findall(text)}
    return {re.sub(r"(?:ing|es|s)$", "", w) for w in words if len(w) > 2} - _COMMON


def _overlap(expected: str, told: str) -> float:
    """Share of the expected remedy's words that are told."""
    wanted = _words(expected)
    return round(len(wanted & _words(told)) / len(wanted), 2) if wanted else 0.0


def _wrong_advice(wrong: list[str], explanation: Explanation) -> list[str]:
    """Advice that the case calls wrong and a remedy gives; what is listed as not helpful may name it."""
    told = [remedy for finding in explanation.findings for remedy in finding.remedies]
    given = []
    for advice in wrong:
        wanted = _words(advice)
        for remedy in told:
            if wanted and len(wanted & _words(remedy)) / len(wanted) >= 0.75:
                given.append(f"{advice!r} in {remedy!r}")
    return given


def run(folder: Path, groups: str) -> list[Score]:
    """The scores of all cases in ``folder`` whose group is one of ``groups``."""
    scores = []
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        if case["group"] in groups:
            scores.append(score(case, path.with_suffix(".txt").read_text(encoding="utf-8")))
    return scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=Path, required=True, metavar="DIR")
    parser.add_argument("--group", default="abce", help="letters of the groups to run (default: abce)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="print both remedies of every case")
    options = parser.parse_args()
    scores = run(options.cases, options.group)
    if not scores:
        parser.error(f"no cases of group {options.group} in {options.cases}")
    totals = {
        "cases": len(scores),
        "figures": sum(s.figures for s in scores),
        "figures_right": sum(s.figures_right for s in scores),
        "diagnosis_right": sum(s.diagnosis for s in scores),
        "remedy_right": sum(s.remedy for s in scores),
        "wrong_advice": sum(bool(s.wrong_advice) for s in scores),
    }
    if options.json:
        print(json.dumps({**totals, "scores": [asdict(s) for s in scores]}, indent=2, ensure_ascii=False))
        return 0
    for s in scores:
        faults = s.wrong_figures + [f"wrong advice: {a}" for a in s.wrong_advice]
        if not s.diagnosis:
            faults.append(f"diagnosis: expected {s.expected}, found {', '.join(s.found) or 'nothing'}")
        if not s.remedy or options.verbose:
            faults.append(
                f"remedy ({s.remedy_overlap}): expected {s.expected_remedy}\n      told {s.first_remedy}"
            )
        if faults:
            print(f"{s.case}")
            for fault in faults:
                print(f"    {fault}")
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in totals.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
