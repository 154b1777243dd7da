"""What do several things in one paste say together?

Their findings are put in order, told once, and corrected by each other: what only follows from another error
is called an echo of it; a memory table that belongs to another device than the failing one says nothing about
the failure; an idle card beside an error about host memory confirms it.
"""

from collections.abc import Sequence
from dataclasses import replace

from course_lib.diagnose.faults.root_cause import echoes_last
from course_lib.diagnose.finding import Finding, Reading
from course_lib.diagnose.memory_growth import over_summaries
from course_lib.diagnose.memory_summary import MemorySummary
from course_lib.diagnose.oom.message import AllocatorMessage

_ORDER = {"problem": 0, "warning": 1, "note": 2}
# Findings that only describe; beside a problem in the same paste they would only distract.
_DESCRIPTIONS = ("smi.", "memory.", "topology.")


def together(readings: Sequence[Reading]) -> tuple[Finding, ...]:
    """The findings of all readings, each once, the most important first."""
    messages = [r.source for r in readings if isinstance(r.source, AllocatorMessage)]
    summaries = [r.source for r in readings if isinstance(r.source, MemorySummary)]
    findings: list[Finding] = []
    for reading in readings:
        if isinstance(reading.source, MemorySummary) and messages:
            findings.extend(_beside_a_message(reading, messages))
        else:
            findings.extend(reading.findings)
    by_device: dict[int | None, list[MemorySummary]] = {}
    for summary in summaries:
        by_device.setdefault(summary.device, []).append(summary)
    for group in by_device.values():
        if leak := over_summaries(group):
            findings.append(leak)
    once = echoes_last(list({finding.id: finding for finding in reversed(findings)}.values())[::-1])
    if any(finding.severity == "problem" for finding in once):
        once = [f for f in once if f.severity != "note" or not f.id.startswith(_DESCRIPTIONS)]
    return tuple(sorted(once, key=lambda finding: _ORDER[finding.severity]))


def _beside_a_message(reading: Reading, messages: list[AllocatorMessage]) -> list[Finding]:
    """What a memory table adds to an out-of-memory message in the same paste."""
    summary = reading.source
    assert isinstance(summary, MemorySummary)
    devices = {message.gpu_index for message in messages if message.gpu_index is not None}
    if summary.device is not None and devices and summary.device not in devices:
        failing = ", ".join(f"GPU {device}" for device in sorted(devices))
        return [
            Finding(
                id="memory.other_device",
                summary=f"The table is of device {summary.device}; {failing} failed",
                why="Each process prints the table of every device it sees, and a rank owns nothing on the "
                "others' devices. An empty table there is normal.",
                remedies=(f"Look at the table of {failing}.",),
                not_helpful=("Diagnosing this table.",),
                severity="note",
            )
        ]
    # The message has the figures of the moment it failed; the table's own verdict only repeats them.
    return [replace(f, severity="note") for f in reading.findings if f.severity == "warning"]
