"""The words for each fault of a card in a job on several."""

from typing import Literal

# kind -> summary (with the card's number), explanation, remedies, what would not help
FAULT_TEXTS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "straggler": (
        "GPU {gpu} is the straggler: the others wait for it",
        "Its rank has more to do (longer samples, a larger share of the work) or shares its card with "
        "another program. Utilisation does not show this: waiting in a collective reads 100 %.",
        (
            "Compare the work of the ranks: samples or tokens a step, and who else is on that card; then "
            "shard by length, or bucket, so that all ranks get the same.",
            "Measure each rank's time to the all-reduce to be sure.",
        ),
        ("A longer NCCL timeout.", "A smaller batch on all ranks: the slowest stays the slowest."),
    ),
    "starved_rank": (
        "GPU {gpu} waits for its input, and all others wait for it",
        "Its host side is slow: its loader workers, its share of the processor or of the storage, or another "
        "program on its cores.",
        (
            "Time this rank's loader alone; give it cores of its own (taskset, numactl), enough workers, "
            "and its data from the same storage as the others.",
        ),
        ("A faster card.", "Fewer samples on the other ranks."),
    ),
    "throttling": (
        "GPU {gpu} runs below the clock of the others",
        "One hot or power-starved card slows the whole job, since all ranks wait for the slowest.",
        (
            "Look at nvidia-smi -q -d PERFORMANCE,TEMPERATURE for this card: then cooling (fans, dust, its "
            "slot) or power supply.",
            "Leave the card out until it is mended: seven cards can be faster than eight with a sick one.",
        ),
        ("Changing the training code.",),
    ),
    "memory_imbalance": (
        "GPU {gpu} holds more memory than the others",
        "Outputs gathered on one card, an evaluation on one rank, longer samples, or an uneven split of "
        "the model.",
        (
            "Look at what only this rank does (evaluation, gathered outputs, a logger that keeps tensors); "
            "with DataParallel, change to DistributedDataParallel.",
        ),
        ("A smaller batch on all ranks: the difference stays.",),
    ),
    "contexts_on_first_card": (
        "Other ranks have opened a context on GPU {gpu}",
        "Their device was not set before the first CUDA or NCCL call.",
        ("Call torch.cuda.set_device(local_rank) first thing in each rank; give torch.load a map_location.",),
        ("A smaller batch.",),
    ),
    "narrow_link": (
        "GPU {gpu} is on a narrower link to the computer than it could be",
        "Some slots are wired so by design.",
        ("Look up the slot in the board's manual; reseat the card or riser.",),
        ("More loader workers.",),
    ),
}

LatePart = Literal["input", "work", "unknown"]
# where a rank's time goes by which it is late -> explanation, remedies
LATE_RANK_TEXTS: dict[LatePart, tuple[str, tuple[str, ...]]] = {
    "input": (
        "Most of that is waiting for its batch: its input is slow, not its work.",
        (
            "Time this rank's loader alone; give it cores of its own, enough workers, and its data from "
            "the same "
            "storage as the others.",
        ),
    ),
    "work": (
        "Most of that is forward and backward: it has more to do (longer samples, a larger share), or "
        "shares its "
        "processor or card with another program.",
        (
            "Compare the work of the ranks: samples or tokens a step, and who else is on that card; then "
            "shard by "
            "length, or bucket, so that all ranks get the same.",
        ),
    ),
    "unknown": (
        "A late batch and longer work look the same in this figure.",
        (
            "Time the batch and the work of this rank apart: that says whether to look at its loader or at "
            "its share.",
        ),
    ),
}
LATE_RANK_NOT_HELPFUL = ("A longer timeout.", "A smaller batch on all ranks: the slowest stays the slowest.")
