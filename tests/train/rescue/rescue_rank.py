"""One rank of a search, started by the tests: python rescue_rank.py FILE RANK WORLD_SIZE BUDGET WHAT"""

import datetime
import json
import sys

import torch.distributed as dist

from course_lib.errors import CourseError
from course_lib.train.limits.counted_budget import CountedBudget
from course_lib.train.limits.limited_training import search_batch_size
from course_lib.train.rescue import find_batch_size


def main(file: str, rank: int, world_size: int, budget: int, what: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=world_size,
        timeout=datetime.timedelta(seconds=600),
    )  # fmt: skip
    try:
        with CountedBudget(budget):
            if what == "search":
                print(search_batch_size(size=16).to_json())
            else:
                print(find_batch_size(lambda size: 1 // (1 - rank), device="cpu", largest=4).to_json())
    except (CourseError, ZeroDivisionError) as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *(int(number) for number in sys.argv[2:5]), sys.argv[5])
