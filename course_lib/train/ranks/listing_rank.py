"""One rank that runs versions of a script one after the other, whatever becomes of each.

See `course_lib.teach.listing`.
"""

import io
import os
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course_lib.train.ranks.launch_rank import first_line


def run_versions(files: list[str], ports: list[int]) -> list[dict[str, Any]]:
    """Run each file as a program, as one of the ranks, and tell how it ended.

    Each meets at a port of its own, since an unsuccessful version leaves its traces in the store of a
    port. Of those that run through and print, only the first and the last file are run.

    Returns:
        For each that was run "name", "printed" (its lines), "error" (None if none was raised), and
        "left_group": whether it ended without taking its group down.
    """
    torch.set_num_threads(1)
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_ADDR": "127.0.0.1"}
    told: list[dict[str, Any]] = []
    ran_through = False
    for file, port in zip(files, ports, strict=True):
        if ran_through and file != files[-1]:
            continue
        os.environ["MASTER_PORT"] = str(port)
        torch.manual_seed(0)
        if os.environ["RANK"] == "0":
            print(f"running {Path(file).name}", flush=True)
        printed, error = io.StringIO(), None
        try:
            with redirect_stdout(printed):
                runpy.run_path(file, run_name="__main__")
        except Exception as raised:
            error = f"{type(raised).__name__}: {first_line(raised)}"
        left = dist.is_initialized()
        if left:
            dist.destroy_process_group()
        lines = printed.getvalue().splitlines()
        ran_through = error is None and bool(lines)
        told.append({"name": Path(file).stem, "printed": lines, "error": error, "left_group": left})
    return told
