"""Why did the caching allocator run out of memory, and what should be done first?

The printed hint about fragmentation is the same whatever the figures say, so it counts for nothing here:
each finding follows from the arithmetic (arithmetic.py), and from no figure that is missing. The checks
stand in doubt.py, others.py and own.py; the first that applies is the diagnosis.
"""

import re
from collections.abc import Callable

from course_lib.diagnose.finding import Finding, Reading
from course_lib.diagnose.oom.arithmetic import Arithmetic, arithmetic
from course_lib.diagnose.oom.doubt import block_limit, contradiction, rest_unknown, unexplained, wrong_size
from course_lib.diagnose.oom.message import AllocatorMessage, allocator_messages
from course_lib.diagnose.oom.others import (
    other_process,
    outside_and_full,
    process_limit,
    ranks_on_one_card,
    unified_memory,
)
from course_lib.diagnose.oom.own import capacity, fragmentation, single_request
from course_lib.diagnose.oom.words import evidence, process_lister
from course_lib.diagnose.paste import Paste

KIND = "out-of-memory message"
_CHECKS: tuple[Callable[[AllocatorMessage, Arithmetic], Finding | None], ...] = (
    wrong_size,
    block_limit,
    contradiction,
    ranks_on_one_card,
    process_limit,
    unexplained,
    unified_memory,
    other_process,
    single_request,
    fragmentation,
    outside_and_full,
    rest_unknown,
    capacity,
)
_WEB_UI = re.compile(
    r"Torch active/reserved:\s*(\d+)/(\d+)\s*MiB,\s*Sys VRAM:\s*(\d+)/(\d+)\s*MiB", re.IGNORECASE
)


def read(paste: Paste) -> list[Reading]:
    """One Reading for each different message of a caching allocator in the text."""
    readings = []
    web_ui = _WEB_UI.search(paste.text)
    for message in allocator_messages(paste):
        figures = message.figures()
        if web_ui:
            names = ("torch_active_mib", "torch_reserved_mib", "sys_vram_used_mib", "sys_vram_total_mib")
            figures["extra_line"] = dict(zip(names, map(int, web_ui.groups()), strict=True))
        sums = arithmetic(message)
        readings.append(
            Reading(
                kind=KIND,
                figures=figures,
                derived=sums.to_json(),
                first_line=message.first_line,
                last_line=message.last_line,
                findings=(diagnose(message),),
                source=message,
            )
        )
    return readings


def diagnose(message: AllocatorMessage) -> Finding:
    """The one finding that the figures of ``message`` support best."""
    sums = arithmetic(message)
    for check in _CHECKS:
        finding = check(message, sums)
        if finding:
            return finding
    return _too_little_text(message)


def _too_little_text(message: AllocatorMessage) -> Finding:
    return Finding(
        id="oom.figures_missing",
        summary="Memory ran out, but the figures that would say why are not in the text",
        why="The message is cut off or shortened. Whether the card is full, another process holds it, or the "
        "memory is in pieces cannot be told from what is here.",
        remedies=(
            "Paste the whole message, to the end of its last sentence; with "
            f"{process_lister(message)} from the same moment if you can.",
        ),
        not_helpful=("Any single setting, before the figures are known.",),
        evidence=evidence(message),
        certainty="possible",
    )
