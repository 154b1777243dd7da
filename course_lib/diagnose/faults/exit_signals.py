"""What does each signal that ended a process mean, and what should be done first?"""

import re
from typing import Any

from course_lib.diagnose.faults.wording import Around, evidence_of, fault
from course_lib.diagnose.finding import Finding

_GROWS = re.compile(
    r"(?:memory|ram|rss)\b[^.]{0,80}\b(?:larger\s+and\s+larger|grow\w*|increas\w*|leak\w*|"
    r"ris(?:es|ing)|accumulat\w*|climb\w*|(?:go(?:es|ing)?|fill\w*|pil(?:es|ing))\s+up)"
    r"|memory\s+leak|leaks?\s+memory",
    re.IGNORECASE,
)


def _killed(around: Around, figures: dict[str, Any]) -> Finding:
    if _GROWS.search(around.paste.body):
        late = f" in epoch {figures['epoch']}" if figures["epoch"] is not None else ""
        return fault(
            "host_memory_leak",
            f"Host memory grew until the system ended the process{late}",
            "The text says that memory grows, and the process was killed from outside (signal 9). That is "
            "a leak on the side of the computer, not one large request: a list of tensors or outputs that "
            "is kept, a cache of the data set in each worker, Python objects that every worker copies as "
            "it touches them.",
            (
                "Log RSS per epoch per process and worker (psutil.Process().memory_info().rss); test "
                "num_workers=0; look for lists that collect tensors, losses or predictions.",
                "Keep numbers, not tensors: loss.item(), .detach().cpu(); hold the data set's index as a "
                "NumPy array, not as a list of objects.",
            ),
            (
                "torch.cuda.empty_cache() and gc.collect(): what leaks is still referenced, and it is not "
                "the card's memory.",
            ),
            certainty="likely",
            evidence=evidence_of(figures),
        )
    memory = ""
    if figures["cpu_memory_mb"] is not None:
        memory = f" The process held {figures['cpu_memory_mb'] / 1024:.0f} GiB of host memory"
        memory += (
            f", and {figures['gpu_memory_mb'] / 1024:.1f} GiB on the card."
            if figures["gpu_memory_mb"] is not None
            else "."
        )
    return fault(
        "host_oom_killer",
        "A process was killed from outside (signal 9): the computer's memory was full",
        "Nobody but the system sends that signal in most cases: the kernel, or the limit of a container "
        f"or a scheduler, ends the process that holds most host memory. Python prints nothing then.{memory}",
        (
            'dmesg | grep -i "killed process", and free -h while it runs; fewer processes or workers, less '
            "offload and pinned memory, more "
            "RAM or a higher container limit.",
            "If memory grows from epoch to epoch, it is a leak: log RSS of each process.",
        ),
        (
            "GPU memory advice: the card is not involved.",
            "Looking for the bug in the torchrun traceback: it is the launcher's.",
        ),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _terminated(around: Around, figures: dict[str, Any]) -> Finding:
    return fault(
        "torchrun.terminated_from_outside",
        "The process was asked to end (SIGTERM) by somebody else",
        "torchrun sends it to the other ranks after one has failed; a scheduler sends it at the time limit "
        "or when it needs the node (preemption); a user, by kill.",
        (
            "Look for a rank that failed earlier with another exit code; if there is none, look at the "
            "scheduler (sacct, the time limit, preemption) and save checkpoints so that a restart goes on.",
        ),
        ("Debugging the rank that got the signal.", "GPU memory advice."),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _hung_up(around: Around, figures: dict[str, Any]) -> Finding:
    return fault(
        "torchrun.terminal_closed",
        "The terminal or the connection was closed, and took the job with it (SIGHUP)",
        "A program started from a terminal gets this signal when the terminal or the ssh connection ends. "
        "torchrun passes it on even under nohup.",
        "Start it inside tmux or screen, or as a batch job of the scheduler; setsid nohup torchrun ... "
        "works too.",
        ("nohup alone: torchrun sets its own handler for the signal.", "A longer NCCL timeout."),
        evidence=evidence_of(figures),
    )


def _interrupted(around: Around, figures: dict[str, Any]) -> Finding:
    return fault(
        "torchrun.interrupted",
        "Somebody pressed Ctrl-C, or the notebook was interrupted (SIGINT)",
        "The job did not fail by itself.",
        "Start it again, from the last checkpoint.",
        "Looking for a bug in the traceback.",
        severity="warning",
        evidence=evidence_of(figures),
    )


def _crashed(around: Around, figures: dict[str, Any]) -> Finding:
    return fault(
        "torchrun.native_crash",
        f"A process crashed in compiled code ({figures['signal'] or 'signal 11'})",
        "Python raised nothing: a library of C or C++ touched memory that is not its own. Usual causes: an "
        "extension built for another version of torch, two copies of a library (OpenMP, CUDA, opencv), a "
        "driver that does not match, a damaged input file.",
        (
            "python -X faulthandler (or PYTHONFAULTHANDLER=1) shows the Python line of the crash; then run "
            "it as one process, with num_workers=0, and leave out compiled extensions in turn.",
            "Rebuild extensions (flash-attn, apex, custom ops) against this torch, and check the driver "
            "with nvidia-smi.",
        ),
        ("GPU memory advice.", "A longer timeout."),
        certainty="possible",
        evidence=evidence_of(figures),
    )


def _aborted(around: Around, figures: dict[str, Any]) -> Finding:
    return fault(
        "torchrun.aborted",
        "A process ended itself after a fatal error in compiled code (SIGABRT)",
        "Most often the NCCL watchdog ended it after a timeout or a CUDA error; else a failed check in a "
        "C++ library, or 'terminate called'. The reason was printed just before.",
        "Look further up for the first line with ProcessGroupNCCL, 'CUDA error', 'terminate called' or "
        "'Assertion', and paste that too.",
        ("Looking for the fault in torchrun's traceback.", "GPU memory advice."),
        certainty="possible",
        evidence=evidence_of(figures),
    )


def _bus_error(around: Around, figures: dict[str, Any]) -> Finding:
    return fault(
        "dataloader.shm_full",
        "A process died of a bus error: most often shared memory is full",
        "Writing to shared memory that has no room gives this signal. Containers get 64 MB of /dev/shm "
        "unless told otherwise. A file that became shorter while it was mapped gives it too.",
        "df -h /dev/shm; docker run --shm-size=8g or --ipc=host; else fewer workers or a smaller batch.",
        ("Raising kernel.shmmax: that is another kind of shared memory.", "GPU memory advice."),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _illegal(around: Around, figures: dict[str, Any]) -> Finding:
    return fault(
        "torchrun.illegal_instruction",
        "A process ran an instruction that this processor does not have (SIGILL)",
        "A library was built for a newer processor (AVX2, AVX-512), or for another machine of the cluster.",
        "Install the packages on the machine that runs them, from ready-made wheels; rebuild extensions "
        "without -march=native.",
        "GPU memory advice.",
        certainty="likely",
        evidence=evidence_of(figures),
    )


BY_SIGNAL = {
    1: _hung_up,
    2: _interrupted,
    4: _illegal,
    6: _aborted,
    7: _bus_error,
    9: _killed,
    11: _crashed,
    15: _terminated,
}
