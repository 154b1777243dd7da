"""The child process of `launch`: torchrun's own elastic agent, for one order.

    python -m course_lib.train.ranks.launch_agent ORDER.json

It starts the ranks, passes on what they print, starts all anew after a failure where the order allows it, and
writes the exit statuses of those that failed beside the order. When its standard input closes, whoever
launched it is gone, and it ends with its ranks and what they started; the folder of the order, which nobody
else removes then, too.
"""

import functools
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import api
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as backend
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from course_lib.train.ranks.launch_family import kill_family
from course_lib.train.ranks.meeting_port import meeting_port

PREFIX = "[rank ${rank}] "


def run(order: dict[str, Any], path: Path) -> dict[str, Any]:
    """Let the elastic agent run the ranks; statuses by rank of those that failed last."""
    if os.environ.get("USE_LIBUV") == "0":  # torch's wheels for Windows are built without it
        vars(backend)["TCPStore"] = functools.partial(TCPStore, use_libuv=False)
    vars(api)["get_free_port"] = meeting_port  # for the ranks, which listen there only seconds later
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


class _End(threading.Thread):
    """Waits until standard input closes, and then ends all: the processes, the folder, this process."""

    def __init__(self, folder: Path, order: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._folder, self._run_id, self._parent = folder, order["run_id"], order["launched_by"]
        self._has_begun = threading.Event()

    def run(self) -> None:
        """Until then, nothing."""
        while os.read(0, 4096):
            pass
        self._has_begun.set()
        kill_family(self._run_id)
        deadline = time.monotonic() + 5  # the input closes a moment before the parent is gone
        while self._folder.exists() and time.monotonic() < deadline:
            self._remove_folder()
            time.sleep(0.02)
        os._exit(1)

    def let_it_end(self) -> None:
        """Before this process ends of itself: where the end has begun, let it come to its own."""
        if self._has_begun.is_set():
            self.join()
        self._remove_folder()

    def _remove_folder(self) -> None:
        """Remove it when whoever started this process has ended; on POSIX another one is the parent then."""
        if not psutil.pid_exists(self._parent) or (os.name == "posix" and os.getppid() != self._parent):
            shutil.rmtree(self._folder, ignore_errors=True)


def main() -> int:
    """Carry out the order whose path is the argument; the exit status."""
    path = Path(sys.argv[1])
    order = json.loads(path.read_text(encoding="utf-8"))
    end = _End(path.parent, order)
    end.start()
    try:
        answer = run(order, path)
        path.with_name("agent.json").write_text(json.dumps(answer), encoding="utf-8")
    finally:
        end.let_it_end()
    return 1 if answer["statuses"] or answer.get("stopped") else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # no reading thread holds it up
