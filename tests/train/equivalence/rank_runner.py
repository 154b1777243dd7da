"""One rank that runs many steps, one after the other: python rank_runner.py STORE RANK WORLD_SIZE

Starting ranks takes seconds, so the tests share them. Rank 0 prints a proof for each of CASES.
"""

import datetime
import json
import sys
from pathlib import Path

import rank_steps
import torch
import torch.distributed as dist

from course_lib.train.equivalence import Reference
from course_lib.train.equivalence.calling import wants
from course_lib.train.equivalence.judging import judge_records
from course_lib.train.equivalence.record import Record
from course_lib.train.equivalence.reference import Task
from course_lib.train.equivalence.watching import record_step

EVEN, SHORT, UNEVEN, FAR = (Reference(ranks=ranks) for ranks in ((8, 8), (7, 7), (7, 5), (9, 3)))
TOKENS = Reference(ranks=(9, 4), weight_by="tokens")
CASES = {
    "by_course": (rank_steps.by_course, EVEN),
    "by_course, uneven": (rank_steps.by_course, UNEVEN),
    "by_course, far apart": (rank_steps.by_course, FAR),
    "tokens_by_course": (rank_steps.tokens_by_course, TOKENS),
    "windows_of_the_course": (rank_steps.windows_of_the_course, UNEVEN),
    "no_sync_by_hand": (rank_steps.no_sync_by_hand, SHORT),
    "with_an_exit_stack": (rank_steps.with_an_exit_stack, SHORT),
    "without_no_sync": (rank_steps.without_no_sync, SHORT),
    "gradients_sent_by_hand": (rank_steps.gradients_sent_by_hand, SHORT),
    "inverted": (rank_steps.inverted, SHORT),
    "forward_outside": (rank_steps.forward_outside, SHORT),
    "never_sent": (rank_steps.never_sent, SHORT),
    "divided_by_ranks_too": (rank_steps.divided_by_ranks_too, EVEN),
    "no_sync_by_hand, uneven": (rank_steps.no_sync_by_hand, UNEVEN),
}


def main(store: str, rank: int, world_size: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size,
        timeout=datetime.timedelta(seconds=600),
    )  # fmt: skip
    proofs = {}
    for name, (step, reference) in CASES.items():
        task = Task(reference)
        record = record_step(step, task, rank=rank)
        path = Path(f"{store}_record{rank}.npz")
        record.save(path)
        dist.barrier()
        if rank == 0:
            others = [Record.load(Path(f"{store}_record{r}.npz")) for r in range(1, world_size)]
            proof = judge_records([record, *others], task, wants_schedule=wants(step, "scheduler"))
            proofs[name] = json.loads(proof.to_json())
        dist.barrier()
    if rank == 0:
        print(json.dumps(proofs))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
