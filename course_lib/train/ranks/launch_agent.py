"""The child process of `launch`: torchrun's own elastic agent, for one order.

    python -m course_lib.train.ranks.launch_agent ORDER.json

It starts the ranks, passes on what they print, starts all anew after a failure where the order allows it, and
writes the exit statuses of those that failed beside the order. When its standard input closes, whoever
launched it is gone, and it ends with its ranks; the folder of the order, which nobody else removes then, too.
"""

import functools
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as backend
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

PREFIX = "[rank ${rank}] "


def run(order: dict[str, Any], path: Path) -> dict[str, Any]:
    """Let the elastic agent run the ranks; statuses by rank of those that failed last."""
    if os.environ.get("USE_LIBUV") == "0":  # torch's wheels for Windows are built without it
        vars(backend)["TCPStore"] = functools.partial(TCPStore, use_libuv=False)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=order["nproc"],
        run_id=order["run_id"],
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",  # a free port, chosen by the system
        rdzv_configs={"timeout": 60},
        local_addr="127.0.0.1",
        max_restarts=order["max_restarts"],
        monitor_interval=0.1,
        log_line_prefix_template=PREFIX,
        logs_specs=DefaultLogsSpecs(log_dir=str(path.parent / "logs"), redirects=Std.ALL, tee=Std.ALL),
    )
    arguments = ("-m", "course_lib.train.ranks.launch_rank", str(path))
    try:
        elastic_launch(config, sys.executable)(*arguments)
    except ChildFailedError as error:
        return {"statuses": {rank: failure.exitcode for rank, failure in error.failures.items()}}
    except SignalException:
        return {"statuses": {}, "stopped": True}
    return {"statuses": {}}


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # the agent ends its ranks, which have seen the same


def _is_gone(parent: int) -> bool:
    """Whether the process that started this one has ended; on POSIX another one is the parent then."""
    return os.getppid() != parent or not psutil.pid_exists(parent)


if __name__ == "__main__":
    launched_by = os.getppid()
    order_path = Path(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer = run(json.loads(order_path.read_text(encoding="utf-8")), order_path)
    order_path.with_name("agent.json").write_text(json.dumps(answer), encoding="utf-8")
    if _is_gone(launched_by):
        shutil.rmtree(order_path.parent, ignore_errors=True)
    else:
        sys.stdout.flush()
    os._exit(1 if answer["statuses"] or answer.get("stopped") else 0)  # no reading thread holds it up
