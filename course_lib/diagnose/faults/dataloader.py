"""How did a DataLoader worker end: shared memory, a kill, a crash, too many files, a time limit?"""

import re
from typing import Any

from course_lib.diagnose.faults.processes import OTHER_END_GONE
from course_lib.diagnose.faults.surroundings import last_batch, slurm_memory_gib
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, squeeze, wording
from course_lib.diagnose.finding import Finding

_SIGNALS = (
    "Killed",
    "Bus error",
    "Segmentation fault",
    "Aborted",
    "Terminated",
    "Hangup",
    "Interrupt",
    "Illegal instruction",
    "Floating point exception",
)
_SIGNAL_OF = {squeeze(name): name for name in _SIGNALS}
_KILLED_BY = re.compile(
    rf"dataloaderworker\(pid(?P<pid>\d{{1,10}})\)iskilledbysignal:(?P<signal>{'|'.join(_SIGNAL_OF)})"
)
_EXITED = re.compile(
    r"DataLoader\s+worker\s+\(pid(?:\(s\))?\s*(?P<pids>[\d,\s]{1,200})\)\s+exited\s+unexpectedly"
)
_SHMMAX = re.compile(r"kernel\.shmmax\s*=\s*(\d{1,22})")
IN_SHARED_MEMORY = ("</torch_", "/dev/shm", "multiprocessing/heap.py")
"""Paths by which a file that could not be written is known to lie in shared memory, not on the disk."""
_WORKERS = re.compile(r"\bnum_workers\s*[=:]\s*(\d{1,4})\b|\bnum_workers`?\s*=?\s*(\d{1,4})\b")


def _by_signal(around: Around) -> Told | None:
    match = _KILLED_BY.search(around.paste.lowered)
    unexpected = around.search(r"Unexpected\s+([a-z -]{3,30}?)\s+encountered\s+in\s+worker")
    shmmax = _SHMMAX.search(around.paste.body)
    figures: dict[str, Any] = {
        "signal": _SIGNAL_OF[match["signal"]] if match else None,
        "pid": int(match["pid"]) if match else None,
        "num_workers": _workers(around),
    }
    if shmmax:
        figures["shmmax_bytes"] = int(shmmax[1])
        figures["shmmax_gib"] = round(int(shmmax[1]) / 2**30, 2)
    name = (figures["signal"] or (unexpected[1] if unexpected else "")).lower()
    if "bus" in name:
        return Told(_shared_memory(figures), figures)
    if name == "killed":
        figures["slurm_mem_gib"] = slurm_memory_gib(around.paste)
        return Told(_killed(figures), figures)
    if "segmentation" in name or "illegal" in name or "floating" in name:
        return Told(_crashed(figures), figures)
    if "abort" in name:
        return Told(_aborted(figures), figures)
    if "terminated" in name or "hangup" in name or "interrupt" in name:
        return Told(_terminated(figures), figures)
    return Told(_died(figures, None), figures)


def _workers(around: Around) -> int | None:
    match = _WORKERS.search(around.paste.body)
    return int(match[1] or match[2]) if match else None


def _shared_memory(figures: dict[str, Any]) -> Finding:
    other = ""
    if figures.get("shmmax_gib"):
        other = (
            f" kernel.shmmax ({figures['shmmax_gib']:g} GiB) is about another kind of shared memory "
            "(System V), not the /dev/shm that PyTorch uses: it proves nothing."
        )
    return fault(
        "dataloader.shm_full",
        "A worker died of a bus error: shared memory (/dev/shm) is full",
        f"Workers pass batches through /dev/shm. A container gets 64 MB of it unless told otherwise.{other}",
        (
            "df -h /dev/shm; docker run --shm-size=8g or --ipc=host (Kubernetes: an emptyDir with medium "
            "Memory at /dev/shm); else fewer workers or a smaller batch.",
            'torch.multiprocessing.set_sharing_strategy("file_system") where the mount cannot be enlarged.',
        ),
        ("Raising kernel.shmmax.", "GPU memory advice: the card is not involved."),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _killed(figures: dict[str, Any]) -> Finding:
    limit = ""
    if figures.get("slurm_mem_gib"):
        limit = (
            f" The job may use {figures['slurm_mem_gib']:g} GiB (from its script), whatever the node has "
            "free."
        )
    return fault(
        "host_oom_killer",
        "A worker was killed from outside: the memory that this job may use is full",
        "Signal 'Killed' comes from the kernel or from the limit of a scheduler or container: workers and "
        f"model together exceed it.{limit}",
        (
            "Raise --mem (or --mem-per-cpu, or the number of cpus; a container's memory limit), or reduce "
            "workers and caching.",
            "Log RSS of each worker: growth from epoch to epoch is a leak, not a size. dmesg | grep -i "
            "'killed process' names who was ended.",
        ),
        (
            "--shm-size: a full /dev/shm ends a worker by a bus error, not by a kill.",
            "Taking the node's free RAM as proof that memory is not the cause.",
            "GPU memory advice.",
        ),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _crashed(figures: dict[str, Any]) -> Finding:
    return fault(
        "dataloader.worker_crashed",
        f"A worker crashed in compiled code{' (' + figures['signal'] + ')' if figures['signal'] else ''}",
        "Python raised nothing: a library used by the data set (image or video decoding, OpenCV, HDF5, "
        "lmdb) touched memory that is not its own. Often its state was made in the parent and does not "
        "survive fork, or one input file is damaged.",
        (
            "Reproduce with num_workers=0, and PYTHONFAULTHANDLER=1 for the line; open files (h5py, lmdb, "
            "video readers) in the worker, at the first __getitem__, not in __init__; cv2.setNumThreads(0).",
        ),
        ("--shm-size: a full /dev/shm gives a bus error.", "GPU memory advice."),
        certainty="possible",
        evidence=evidence_of(figures),
    )


def _aborted(figures: dict[str, Any]) -> Finding:
    return fault(
        "dataloader.worker_aborted",
        "A worker ended itself after a fatal error in compiled code (Aborted)",
        "A check in a library failed, memory management was damaged, or threads or memory ran out; the "
        "library prints the reason just before.",
        "Read the lines before this one; reproduce with num_workers=0 and PYTHONFAULTHANDLER=1.",
        "GPU memory advice.",
        certainty="possible",
        evidence=evidence_of(figures),
    )


def _terminated(figures: dict[str, Any]) -> Finding:
    return fault(
        "dataloader.worker_terminated",
        "A worker was asked to end (Terminated): most often because the main process ended first",
        "The signal is sent by the parent, the launcher or the scheduler when they stop. The cause is what "
        "stopped them.",
        "Look for the first error of the main process, a time limit of the scheduler (sacct), or a Ctrl-C; "
        "the worker's message is an echo.",
        ("--shm-size.", "Debugging the worker."),
        certainty="likely",
        evidence=evidence_of(figures),
    )


def _exited(around: Around) -> Told:
    match = _EXITED.search(around.paste.body)
    figures: dict[str, Any] = {
        "pids": [int(n) for n in re.findall(r"\d{1,10}", match["pids"])] if match else None,
        "batches_done": last_batch(around.paste, around.offset),
        "num_workers": _workers(around),
    }
    return Told(_died(figures, figures["batches_done"]), figures)


def _died(figures: dict[str, Any], batches: int | None) -> Finding:
    after = ""
    if batches is not None and batches >= 100:
        after = (
            f" After {batches} good batches a gradual cause (memory that grows) is likelier than an error "
            "in the code."
        )
    return fault(
        "dataloader.worker_died_unknown",
        "A worker vanished without a Python error; the text does not say why",
        "Several causes look like this: a crash in compiled code, a kill for memory, or (on Windows and "
        f"macOS) a script without a main guard.{after}",
        (
            "Reproduce with num_workers=0 to get the real traceback; watch RSS of the workers, and look at "
            "dmesg.",
            "On Windows and macOS put the start of the training under if __name__ == '__main__'.",
        ),
        ("Any one cause as certain.", "GPU memory advice."),
        certainty="possible",
        evidence=evidence_of(figures),
    )


_FILES = fault(
    "dataloader.too_many_open_files",
    "Workers and main process together have too many files open",
    "On Linux each tensor that a worker passes on is an open file until it is freed. Keeping batches (or "
    "tensors of them) in a list, many workers, or a low ulimit -n use them up.",
    'torch.multiprocessing.set_sharing_strategy("file_system") at the start, or ulimit -n 65535; do not '
    "keep tensors that came from a worker (copy.deepcopy or .clone() what you keep).",
    ("--shm-size.", "A smaller model."),
    certainty="likely",
)
_SHM_WRITE = fault(
    "dataloader.shm_full",
    "Shared memory (/dev/shm) has no room for a batch",
    "Workers pass batches through /dev/shm; a container gets 64 MB of it unless told otherwise.",
    "df -h /dev/shm; docker run --shm-size=8g or --ipc=host; else fewer workers or a smaller batch.",
    ("Freeing disk space: the path is in memory.", "GPU memory advice."),
    certainty="likely",
)


_MAPPINGS = fault(
    "host.mapping_refused",
    "The system refused to map one more piece of shared memory into the process",
    "Each tensor that a worker passes on by a file is a mapping until it is freed, and a process may have "
    "some 65,000 of them (vm.max_map_count). Keeping batches in a list uses them up; so does memory that "
    "is full, or a limit (ulimit -v).",
    (
        "Do not keep tensors that came from a worker: copy.deepcopy or .clone() what you keep, or turn it "
        "into numbers; return few large tensors for a sample in place of many small ones.",
        "Compare wc -l /proc/PID/maps with sysctl vm.max_map_count, and look at free -h and df -h /dev/shm.",
    ),
    ("A smaller model.", "GPU memory advice."),
    certainty="likely",
)


def _mapping(around: Around) -> Told | None:
    return Told(_MAPPINGS) if "</torch_" in around.following[:200] else None


def _shared_object(around: Around) -> Told | None:
    reason = around.following[:200].lower()
    if "too many open files" in reason:
        return None  # that is the cause, and has a wording of its own
    return Told(OTHER_END_GONE if "no such file" in reason else _SHM_WRITE)


def _no_space(around: Around) -> Told | None:
    return Told(_SHM_WRITE) if around.says(*IN_SHARED_MEMORY) and not around.says("nccl") else None


_TIMEOUT = fault(
    "dataloader.timeout",
    "No batch came within the loader's time limit",
    "A worker hangs (a lock that was copied by fork, a network drive, a download) or is slow.",
    "Reproduce with num_workers=0; see where the worker stands (py-spy dump --pid of the worker); "
    "cv2.setNumThreads(0) and no threads in the parent before the workers start.",
    "A longer timeout, before the worker was looked at.",
    certainty="possible",
)

WORDINGS = (
    wording(("is killed by signal", "encountered in worker"), _by_signal),
    wording((") exited unexpectedly", "worker exited unexpectedly"), _exited),
    wording(("Too many open files", "received 0 items of ancdata"), _FILES),
    wording(
        (
            "unable to write to file </torch_",
            "unable to allocate shared memory(shm)",
            "unable to resize file </torch_",
        ),
        _SHM_WRITE,
    ),
    wording("unable to open shared memory object </torch_", _shared_object),
    wording("unable to mmap", _mapping),
    wording("No space left on device", _no_space),
    wording("DataLoader timed out after", _TIMEOUT, r"after\s+(?P<timeout_s>\d{1,7})\s+seconds"),
)
