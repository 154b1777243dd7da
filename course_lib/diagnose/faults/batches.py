"""What is wrong with the samples of a batch, and what do the hints about the number of workers mean?"""

import re

from course_lib.diagnose.faults.tracebacks import raised
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording


def _in_worker(around: Around) -> Told:
    match = re.search(
        r"Caught\s+(?P<name>[\w.]{2,80})\s+in\s+(?:DataLoader\s+worker\s+process\s+(?P<worker>\d{1,5})|pin"
        r"\s+memory\s+thread)",
        around.paste.body,
    )
    name = match["name"] if match else None
    said = None
    if name:
        found = re.findall(rf"(?m)^[\s|>]*{re.escape(name)}\s*:\s?([^\n]{{1,300}})", around.paste.body)
        said = next((line for line in reversed(found) if "Caught" not in line), None)
    figures = {
        "raised": name,
        "message": said,
        "worker": int(match["worker"]) if match and match["worker"] else None,
    }
    inner = next((error for error in raised(around.paste) if name and error.name == name), None)
    where = inner.where if inner else ""
    figures["where"] = where or None
    return Told(
        fault(
            "dataloader.error_in_dataset",
            "The data set's own code raised an error in a worker" + (f": {name}" if name else ""),
            "The worker passes it on; the part after 'Original Traceback' names the line, in __getitem__ "
            "or in the collate function." + (f" It said: {said}" if said else ""),
            (f"Look at {where} first. " if where else "")
            + "Read the original traceback; run dataset[i] for that sample, or the loader with "
            "num_workers=0.",
            ("num_workers=0 as the cure: the same sample fails there.", "--shm-size."),
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _too_many(around: Around) -> Told:
    match = re.search(
        r"will\s+create\s+(\d{1,5})\s+worker\s+processes[^.]{0,60}\.\s*Our\s+suggested\s+max\s+number\s+of"
        r"\s+worker[^.]{0,60}?is\s+(\d{1,5})",
        around.paste.body,
    )
    figures = {
        "workers_created": int(match[1]) if match else None,
        "workers_suggested": int(match[2]) if match else None,
    }
    suggested = "the suggested number" if match is None else match[2]
    return Told(
        fault(
            "dataloader.more_workers_than_cores",
            "More workers are asked for than this process has cores",
            "A warning, not an error. The number is what the system grants to this process (a container or "
            "a scheduler may grant fewer cores than the machine has). More workers than that take turns.",
            f"Set num_workers to {suggested} or below, and measure: or ask the scheduler for more cores "
            "(--cpus-per-task).",
            ("Silencing the warning.", "More workers, for a loader that is limited by cores."),
            severity="warning",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _few_workers(around: Around) -> Told:
    text = around.paste.body
    loader = re.search(
        r"(?:dataloader|The\s+['`])[,\s]*['`]?(?P<loader>\w{2,30}?\s?dataloader(?:\s+\d{1,3})?)", text
    )
    count = re.search(r"\(try\s+(?P<tried>\d{1,5})\s+which|num_workers=(?P<set>\d{1,5})", around.following)
    figures = {
        "loader": " ".join(loader["loader"].split()) if loader else None,
        "workers_suggested": int(count["tried"] or count["set"]) if count else None,
    }
    n = figures["workers_suggested"]
    return Told(
        fault(
            "dataloader.few_workers_hint",
            "A hint that more workers may help, not a number to copy",
            f"Lightning names the count of cores{'' if n is None else f' ({n})'}, whatever the loader "
            "needs. So many workers in each rank multiply memory and start-up time.",
            "Try 4 to 8 workers per GPU and measure; keep 0 or 2 for a small validation set.",
            (f"num_workers={n}." if n is not None else "As many workers as cores.",),
            severity="note",
            evidence=evidence_of(figures),
        ),
        figures,
    )


_PIN_THREAD = fault(
    "dataloader.pin_memory_thread_died",
    "The thread that pins batches ended",
    "It fails when pinned memory cannot be had, when a batch is already on the card, or when the main "
    "process is ending.",
    "Set pin_memory=False as a test: the true error is shown then; return CPU tensors from the data set.",
    "More workers.",
    certainty="possible",
)


_PIN_CUDA = fault(
    "dataloader.cuda_tensor_pinned",
    "The batch is on the card already, and cannot be pinned",
    "Pinned memory is memory of the computer. The data set or the collate function moves tensors to the "
    "card.",
    "Return CPU tensors from the data set and move the batch in the training loop; or pin_memory=False.",
    "More workers.",
)


_UNEQUAL = fault(
    "dataloader.samples_of_unequal_size",
    "The samples of one batch have different shapes and cannot be stacked",
    "default_collate needs one shape. Images of different size or channels (grey beside colour), texts of "
    "different length, boxes of different count.",
    "Make them equal in the data set (Resize, convert('RGB'), padding), or give a collate_fn that pads; "
    "print the shape of the sample that the message names.",
    "batch_size=1 as the cure.",
)


_NONE = fault(
    "dataloader.sample_is_none",
    "The data set returned None, or a type that cannot be collated",
    "A sample that failed to load, or objects (PIL images, paths) that were not turned into tensors.",
    "Return tensors or numbers from __getitem__ (ToTensor for images); drop bad samples beforehand, or in "
    "a collate_fn that skips None.",
    "num_workers=0.",
)


_EMPTY = fault(
    "dataloader.empty_dataset",
    "The data set is empty",
    "A wrong path or pattern, a split that leaves nothing, or a filter that drops all.",
    "Print len(dataset) and the path it looks at; check that the files are there, with the right ending.",
    "shuffle=False: the loader is silent then, and trains on nothing.",
)


_RESIZE = fault(
    "dataloader.storage_not_resizable",
    "Samples of unequal size, or views, could not be put into one shared batch",
    "In a worker the batch is built in shared memory; samples whose sizes differ, or tensors that share a "
    "larger storage, end in this.",
    "Run with num_workers=0: the plain message names the shapes; then make samples equal, or return "
    "tensor.clone() or np.ascontiguousarray(x).",
    "--shm-size.",
    certainty="likely",
)


_GENERATOR = fault(
    "dataloader.generator_on_another_device",
    "The random numbers are to be drawn on another device than the generator's",
    "A DataLoader shuffles with a generator on the CPU; torch.set_default_device or "
    "torch.set_default_tensor_type made the card the default.",
    "Give the loader generator=torch.Generator(device=...) of the default device; better, take the default "
    "back and write device=... where tensors are made.",
    ("shuffle=False as the cure.", "A new driver."),
)


WORDINGS = (
    wording(
        "device type for generator but found",
        _GENERATOR,
        r"but\s+found\s+'(?P<found>\w{2,10})'",
    ),
    wording(("in DataLoader worker process", "in pin memory thread"), _in_worker),
    wording("Pin memory thread exited unexpectedly", _PIN_THREAD),
    wording("only dense CPU tensors can be pinned", _PIN_CUDA),
    wording(
        "stack expects each tensor to be equal size",
        _UNEQUAL,
        r"got\s+(?P<first>\[[\d,\s]{0,60}\])\s+at\s+entry\s+(?P<first_entry>\d{1,6})\s+and\s+"
        r"(?P<second>\[[\d,\s]{0,60}\])\s+at\s+entry\s+(?P<second_entry>\d{1,6})",
    ),
    wording("default_collate: batch must contain", _NONE, r"found\s+<class\s+'(?P<found>[\w.]{1,80})'>"),
    wording(("num_samples should be a positive integer value, but got num_samples=0"), _EMPTY),
    wording("Trying to resize storage that is not resizable", _RESIZE),
    wording("Our suggested max number of worker", _too_many),
    wording("does not have many workers", _few_workers),
)
