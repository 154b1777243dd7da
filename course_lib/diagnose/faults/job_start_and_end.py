"""Did the job fail outside of the training: no such script, wrong options, an end by the scheduler?"""

import re

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_SCRIPT = re.compile(r"can't open file\s+'?(?P<path>[^'\n]{1,300}?)'?:\s*\[Errno 2\]")
_OPTIONS = re.compile(r"(?P<program>[\w.-]{1,80}): error: (?P<text>[^\n]{1,300})")
_SLURM = re.compile(
    r"(?:JOB|STEP)\s+(?P<job>[\w.+-]{1,40})\s+(?:ON\s+(?P<node>\S{1,80})\s+)?CANCELLED\s+AT\s+(?P<time>\d\S{9,30})"
    r"(?:\s+DUE\s+[Tt][Oo]\s+(?P<why>TIME\s+LIMIT|PREEMPTION|NODE\s+FAILURE|JOB\s+REQUEUE))?",
    re.IGNORECASE,
)
_SLURM_WORDS = {
    "": (
        "The job, or this step of it, was cancelled",
        "Somebody cancelled it (scancel), or srun ended the step because one of its tasks had failed; "
        "SLURM does not say which.",
        "Look above for the first error of a task ('srun: error: NODE: task N: ...' names it); if there is "
        "none, ask sacct -j JOB --format=JobID,State,ExitCode who ended it.",
    ),
    "time limit": (
        "The scheduler ended the job: its time was over",
        "SLURM sends SIGTERM, and SIGKILL soon after, once the time that the job asked for is over. If ranks "
        "printed an error or stood still long before, that is why it took so long.",
        "Save checkpoints and start again from the last one; ask for more time (#SBATCH --time), or let "
        "SLURM warn the job before the end (#SBATCH --signal=B:USR1@300) and save then.",
    ),
    "preemption": (
        "The scheduler ended the job to make room for another one (preemption)",
        "In such a partition, or at such a priority, a job may be ended at any time.",
        "Save checkpoints often and let the job be queued again by itself (#SBATCH --requeue), starting from "
        "the last one.",
    ),
    "job requeue": (
        "The scheduler put the job back into its queue",
        "It ends the job and starts it again later: by an order of an operator, or after preemption.",
        "Let the script start from its last checkpoint.",
    ),
    "node failure": (
        "A node of the job failed",
        "SLURM lost touch with it: a crash, a reboot, a fault of power or network.",
        "Start again from the last checkpoint without that node (#SBATCH --exclude=NODE), and tell those who "
        "run the cluster.",
    ),
}


def _script(around: Around) -> Told | None:
    match = _SCRIPT.search(around.paste.body)
    if match is None:
        return None
    figures = {"path": match["path"].strip()}
    return Told(
        fault(
            "torchrun.script_not_found",
            f"Python did not find the script: {figures['path']}",
            "There is no file of that name. A name without a folder is looked for in the folder from which "
            "the command was given. torchrun starts a Python for each rank: each ended with exit code 2.",
            "Check the spelling and the folder: ls there, or give the whole path; with several machines the "
            "file must be on each.",
            ("Looking for the fault in torchrun's traceback.", "Another port."),
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _arguments(around: Around) -> Told | None:
    match = _OPTIONS.search(around.paste.body[max(around.offset - 100, 0) :])
    if match is None:
        return None
    figures = {"program": match["program"], "message": match["text"].strip()}
    return Told(
        fault(
            "torchrun.wrong_arguments",
            f"{match['program']} does not accept its options: {figures['message'][:120]}",
            "The program read its command line and stopped with exit code 2, before any training. Options of "
            "torchrun stand before the name of the script, those of the script after it.",
            f"Compare the command with {match['program']} --help, and the order: torchrun OPTIONS "
            "script.py ITS_OPTIONS.",
            "Looking for the fault in torchrun's traceback.",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _scheduler(around: Around) -> Told | None:
    match = _SLURM.search(around.paste.body)
    if match is None:
        return None
    summary, why, first = _SLURM_WORDS[" ".join((match["why"] or "").lower().split())]
    figures = {name: match[name] for name in ("job", "node", "time")}
    return Told(
        fault(
            "slurm.ended_the_job",
            summary,
            why,
            first,
            ("Debugging the ranks that got SIGTERM.", "GPU memory advice."),
            evidence=evidence_of(figures),
        ),
        figures,
    )


WORDINGS = (
    wording("can't open file", _script),
    wording(
        (
            "error: unrecognized arguments",
            "error: the following arguments are required",
            "error: ambiguous option",
            "error: argument ",
        ),
        _arguments,
    ),
    wording(
        ("due to time limit", "due to preemption", "due to node failure", "due to job requeue"), _scheduler
    ),
    wording("CANCELLED AT 2", _scheduler),  # without a reason; the 2 begins the year
)
