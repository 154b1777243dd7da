"""Do faults of a distributed training end as they should, again and again? A soak of real launches.

Run: python benchmarks/faults.py [--rounds 20] [--only FAULT ...] [--json]

Each round commits each fault of ``course_lib.train.ranks.ddp_faults`` in a launch of two ranks of its own. A
launch is right when it ends before its time limit, its first error is the fault's own, and no process of
it is left. ``right`` counts those, ``wrong`` lists the others with what was seen. An interrupt is raised
while the ranks train.
"""

import argparse
import json
import re
import sys
import time
from typing import Any

import psutil

from course_lib.train.ranks.ddp_faults import FIRST_ERRORS
from course_lib.train.ranks.launch import launch

LIMIT_S = 60.0
TARGET = "course_lib.train.ranks.ddp_faults:commit"


def commit(fault: str) -> tuple[bool, str]:
    """One launch: whether it ended rightly, and what was seen."""
    run = launch(TARGET, 2, arguments={"fault": fault}, time_limit_s=LIMIT_S, on_line=None, check=False)
    first = run.first_error
    kind, says = FIRST_ERRORS[fault]
    right = run.outcome == "failed" and first is not None and first.kind == kind
    return bool(right and re.search(says, str(first))), f"{run.outcome}: {first}"


def interrupt() -> tuple[bool, str]:
    """A launch that is interrupted as soon as a rank prints."""

    def raise_it(rank: int | None, line: str) -> None:
        if rank is not None:
            raise KeyboardInterrupt

    try:
        launch(TARGET, 2, arguments={"fault": "interrupt"}, time_limit_s=LIMIT_S, on_line=raise_it)
    except KeyboardInterrupt:
        return True, "interrupted"
    return False, "it was not interrupted"


def left_over(before: set[int]) -> list[int]:
    """Child processes that are there some seconds later and were not before."""
    deadline = time.monotonic() + 5
    while True:
        more = {child.pid for child in psutil.Process().children(recursive=True)} - before
        if not more or time.monotonic() > deadline:
            return sorted(more)
        time.sleep(0.05)


def soak(rounds: int, faults: list[str]) -> dict[str, Any]:
    right, wrong, longest = 0, [], 0.0
    for number in range(1, rounds + 1):
        for fault in faults:
            before = {child.pid for child in psutil.Process().children(recursive=True)}
            begin = time.monotonic()
            good, seen = interrupt() if fault == "interrupt" else commit(fault)
            longest = max(longest, time.monotonic() - begin)
            left = left_over(before)
            if good and not left:
                right += 1
            else:
                wrong.append({"round": number, "fault": fault, "seen": seen, "left": left})
        print(f"round {number}: {right} right, {len(wrong)} wrong", file=sys.stderr, flush=True)
    return {"rounds": rounds, "right": right, "wrong": wrong, "longest_s": round(longest, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    known = [*FIRST_ERRORS, "interrupt"]
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=known, default=known, metavar="FAULT")
    parser.add_argument("--json", action="store_true")
    settings = parser.parse_args()
    found = soak(settings.rounds, list(settings.only))
    if settings.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['right']} of {found['rounds'] * len(settings.only)} launches ended rightly")
    print(f"longest: {found['longest_s']} s")
    for one in found["wrong"]:
        print(f"  round {one['round']}, {one['fault']}: {one['seen']}; left: {one['left']}")


if __name__ == "__main__":
    main()
