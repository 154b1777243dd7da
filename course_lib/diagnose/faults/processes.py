"""Why could a child process not start: something cannot be pickled, CUDA before fork, no main guard?"""

import re
from typing import Any

from course_lib.diagnose.faults.surroundings import exceptions, operating_system
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_PRIMARY = re.compile(
    r"(?P<text>(?P<name>\w*(?:Error|Exception))\s*:\s*(?:[Cc]an(?:'|no)t (?:pickle|get local object|get "
    r"attribute)|cannot pickle|h5py objects cannot|[\w.]+ objects? (?:is|are) not picklable)"
    r"[^\n]{0,200})"
)
_NOT_PICKLED = re.compile(
    r"(?:[Cc]an(?:'|no)t pickle|cannot pickle|[Cc]an't get local object)\s+(?:local object\s+)?(?:['\"]"
    r"(?P<quoted>[^'\"\n]{1,120})['\"]|(?P<bare><[^>\n]{1,120}>|\w[\w. ]{0,80}))"
)


def _unpicklable(around: Around) -> Told:
    text = around.paste.body
    primary, what = _PRIMARY.search(text), _NOT_PICKLED.search(text)
    figures: dict[str, Any] = {
        "exceptions": exceptions(around.paste),
        "primary": primary["text"].strip().replace("\\'", "'").rstrip("\\") if primary else None,
        "object": (what["quoted"] or what["bare"]).strip() if what else None,
        "os": operating_system(around.paste),
    }
    thing = figures["object"] or "An object"
    local = "<locals>" in thing or "lambda" in thing
    first = (
        "Replace the lambda, or the function inside a function, by a module-level function or "
        "functools.partial"
    )
    if not local:
        first = (
            "Make the object in the worker (at the first __getitem__), not in __init__: open files, "
            "database handles, locks and generators cannot travel"
        )
    return Told(
        fault(
            "dataloader.unpicklable_under_spawn",
            f"{thing} cannot be sent to a worker",
            "Windows and macOS (and Linux from Python 3.14 on) start workers as new processes (spawn, "
            "forkserver), and send them the data set and the collate function by pickle. What has no name "
            "in a module, or holds something of this process, cannot be sent. 'Ran out of input' in the "
            "child is only the echo.",
            (
                f"{first}; num_workers=0 as a stop-gap; guard the start with if __name__ == '__main__'.",
                "In a notebook, put the data set and the collate function into a .py file and import them.",
            ),
            (
                "Treating EOFError as a damaged file: it is the child that got nothing.",
                "Taking the system as unsupported because it works on Linux.",
            ),
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _echo_of_pickle(around: Around) -> Told | None:
    """'Ran out of input' in a child: the parent's error is not in the text."""
    if not around.says("spawn_main", "multiprocessing", "reduction.pickle", "from_parent"):
        return None  # an empty file that was unpickled
    if _NOT_PICKLED.search(around.paste.body):
        return None
    return Told(
        fault(
            "dataloader.child_got_nothing",
            "A child process waited for its data, and its parent failed",
            "This is the child's side. The parent's own error (often 'Can't pickle ...', memory, or a "
            "missing main guard) stands elsewhere in the output.",
            "Look for the other traceback of the same moment; run with num_workers=0 to see it alone; "
            "guard the start with if __name__ == '__main__'.",
            "Treating it as a damaged file.",
            certainty="likely",
            evidence=evidence_of({"exceptions": exceptions(around.paste)}),
        ),
        {"exceptions": exceptions(around.paste), "os": operating_system(around.paste)},
    )


def _forked_cuda(around: Around) -> Told:
    place = around.search(r"\b(?:Dataset\.)?(__getitem__|collate_fn|__iter__|worker_init_fn)")
    figures = {"place": place[0] if place else None}
    return Told(
        fault(
            "dataloader.cuda_in_worker",
            "CUDA is used in a worker that was forked after CUDA had started",
            "A forked process inherits CUDA's state in a form that cannot work. Something in the data set, "
            "the collate function or the transforms touches the card (.cuda(), .to(device), a model).",
            (
                "Return CPU tensors; move to the GPU in the training loop (pin_memory=True, "
                "non_blocking=True).",
                "Where the card must be used in the worker, multiprocessing_context='spawn' for this "
                "loader, with few workers.",
            ),
            (
                "set_start_method('spawn') as the first remedy: one CUDA context for each worker, and "
                "'context has already been set' errors.",
            ),
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


def _initialization(around: Around) -> Told | None:
    return _forked_cuda(around) if around.says("DataLoader", "worker", "multiprocessing", "fork") else None


_GUARD = fault(
    "dataloader.no_main_guard",
    "The script starts processes while it is being imported: the main guard is missing",
    "Under spawn (Windows, macOS) each child imports the script again. Without a guard it starts children "
    "of its own, before it is ready.",
    "Put what starts the training under if __name__ == '__main__': (a function main() and one call). "
    "freeze_support() is only needed for programs frozen into an .exe.",
    ("freeze_support() alone.", "num_workers=0 as the cure: it only avoids it."),
)
_CONTEXT = fault(
    "dataloader.start_method_set_twice",
    "The start method of processes was set a second time",
    "multiprocessing allows it once in a program; a library may have set it before, or the cell ran twice.",
    "Give the loader its own: DataLoader(..., multiprocessing_context='spawn'); or set_start_method(..., "
    "force=True) first thing under the main guard.",
    "Restarting in a loop.",
)
_ATTRIBUTE = fault(
    "dataloader.class_not_importable",
    "The child cannot find the class or function: it was defined in a notebook, or under the main guard",
    "Under spawn the child imports modules anew. What exists only in the notebook's memory, or in the part "
    "under the guard, is not there.",
    "Put the class into a .py file and import it in the notebook.",
    "Treating it as a damaged file.",
    certainty="likely",
)
_TOO_LARGE = fault(
    "dataloader.dataset_too_large_to_send",
    "The data set is too large to be sent to the workers",
    "Under spawn the whole data set object is pickled and copied to each worker. Held as one array or list "
    "of several GiB it does not fit through.",
    "Keep paths or a memory-mapped array (np.load(..., mmap_mode='r')) in the data set, and open them in "
    "the worker; or num_workers=0.",
    ("A larger page file.", "Treating it as a fault of the disk."),
    certainty="likely",
)


def _attribute(around: Around) -> Told | None:
    if around.says("torch.load", "torch/serialization", "torch\\serialization", "Unpickler"):
        return None  # a whole model that was saved; checkpoint.py reads that
    return Told(_ATTRIBUTE, {"exceptions": exceptions(around.paste), "os": operating_system(around.paste)})


def _sent_too_large(around: Around) -> Told | None:
    return Told(_TOO_LARGE) if around.says("reduction.py", "ForkingPickler", "popen_spawn", "spawn") else None


_CHILD_DIED = fault(
    "dataloader.child_died_at_start",
    "A child process ended while it was being started, and the pipe to it broke",
    "The parent's message is the echo. The child failed first: no memory to import torch again (the page "
    "file), a missing main guard, or an import that fails.",
    "Run with num_workers=0 to see the true error; guard the start with if __name__ == '__main__'; with "
    "many workers, look at memory and page file.",
    "Treating it as a fault of the network.",
    certainty="likely",
)


def _broken_pipe(around: Around) -> Told | None:
    return Told(_CHILD_DIED) if around.says("ForkingPickler", "popen_spawn", "reduction.py") else None


OTHER_END_GONE = fault(
    "dataloader.other_process_gone",
    "The process at the other end, which shared a tensor with this one, has ended",
    "Tensors travel between the workers and the main process by a connection. It breaks when the main "
    "process ends or leaves its loop while workers still send, or when a worker dies.",
    (
        "Look for an earlier error, above this one or of another process; run with num_workers=0 to see it "
        "alone.",
        "Where the program ended well otherwise, it is the noise of its end: end the loop, or delete the "
        "loader's iterator, before the program ends.",
    ),
    ("--shm-size.", "Treating it as a fault of the network."),
    certainty="likely",
)
_DAEMON = fault(
    "dataloader.workers_of_a_worker",
    "A process that was itself started as a helper (a daemon) may not start workers",
    "A DataLoader with workers runs inside a multiprocessing.Pool, a Process(daemon=True), or another "
    "loader's worker.",
    "num_workers=0 in the inner loader; or start the outer process with daemon=False "
    "(concurrent.futures.ProcessPoolExecutor does).",
    "Another start method.",
)
_TESTED_BY_A_FORK = fault(
    "dataloader.iterator_in_a_fork_benign",
    "Harmless: a forked process tried to clean up workers that are not its own",
    "A DataLoader's iterator was alive when another process was forked, and the copy is deleted there.",
    "Ignore it; or delete the iterator before the next loader starts its workers.",
    "Fewer workers.",
    severity="note",
)


def _other_end(around: Around) -> Told | None:
    loader = around.says(
        "torch/utils/data",
        "torch\\utils\\data",
        "torch/multiprocessing",
        "torch\\multiprocessing",
        "resource_sharer",
    )
    return Told(OTHER_END_GONE) if loader else None


WORDINGS = (
    wording(
        ("ConnectionResetError: [", "ConnectionRefusedError: [", "ConnectionAbortedError: ["), _other_end
    ),
    wording("daemonic processes are not allowed to have children", _DAEMON),
    wording("can only test a child process", _TESTED_BY_A_FORK),
    wording("BrokenPipeError: [Errno 32]", _broken_pipe),
    wording("Cannot re-initialize CUDA in forked subprocess", _forked_cuda),
    wording(
        (
            "CUDA error: initialization error",
            "cuda runtime error (3) : initialization error",
            "CUDA error (3): initialization error",
        ),
        _initialization,
    ),
    wording(
        (
            "attempt has been made to start a new process before",
            "process has finished its bootstrapping phase",
            "forgotten to use the proper idiom",
        ),
        _GUARD,
    ),
    wording("context has already been set", _CONTEXT),
    wording(
        (
            "Can't pickle",
            "cannot pickle",
            "can't get local object",
            "objects cannot be pickled",
            "can't pickle local object",
        ),
        _unpicklable,
    ),
    wording(("Ran out of input", "pickle data was truncated"), _echo_of_pickle),
    wording("on <module '__main__'", _attribute),
    wording("cannot serialize a bytes object larger than 4 GiB", _TOO_LARGE),
    wording("[Errno 22] Invalid argument", _sent_too_large),
)
