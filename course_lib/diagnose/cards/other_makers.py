"""The dump is of a card that is not NVIDIA's: which tool is it, and what could be read?"""

from collections.abc import Iterator

from course_lib.diagnose.cards.common import evidence
from course_lib.diagnose.finding import Finding
from course_lib.diagnose.smi import amd, intel
from course_lib.diagnose.smi.model import GpuStatus

# source -> maker, and the command that tells who holds how much
_TOOLS = {
    amd.ROCM: ("AMD", "rocm-smi --showpids --showmeminfo vram"),
    amd.AMD: ("AMD", "amd-smi process, and amd-smi monitor over a minute"),
    intel.XPU: ("Intel", "xpu-smi ps, and xpu-smi dump -m 0,1,2,3,18 over a minute"),
}
OTHER_MAKERS = frozenset(_TOOLS)


def other_makers(status: GpuStatus) -> Iterator[Finding]:
    """One note for a dump of such a tool; no verdict is made from it."""
    if status.source not in _TOOLS:
        return
    maker, command = _TOOLS[status.source]
    figures = evidence(status)
    full = ", ".join(f"{name} {share}" for name, share in status.trouble.items())
    told = "part of it can be read" if figures else "its figures are not read"
    yield Finding(
        id="smi.not_nvidia",
        summary=f"This is {status.source}, of {maker} cards: {told}",
        why="The checks on cards here know NVIDIA's figures, so no verdict is made from these"
        + (", only what stands in the text is shown." if figures else ".")
        + (f" Also told: {full}." if full else ""),
        remedies=(f"For who holds how much: {command}.",),
        not_helpful=("nvidia-smi: it knows nothing of these cards.",),
        evidence=figures,
        severity="note",
    )
