"""An interrupt from JupyterLab, as its stop button sends it, leaves no worker."""

import time
from pathlib import Path

import psutil
from jupyter_client.manager import start_new_kernel

CELL = """
import sys
sys.path.insert(0, {folder!r})
from loading_data_sets import Signing
from course_lib.train.emulate import EmulatedStep
from course_lib.train.loading import tune
tune(Signing(read_s=0.05), EmulatedStep(0.01), batch_size=8, budget_seconds=300, progress=False)
"""
LIMIT_S = 300


def runs(process: psutil.Process) -> bool:
    """Whether it still runs: one that has ended stays in the list until the kernel asks for its status."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_no_worker_outlives_a_kernel_interrupt(tmp_path: Path) -> None:
    manager, client = start_new_kernel(startup_timeout=LIMIT_S, kernel_name="python3", cwd=str(tmp_path))
    try:
        kernel = psutil.Process(manager.provisioner.process.pid)
        asked = client.execute(CELL.format(folder=str(Path(__file__).parent)))
        deadline = time.monotonic() + LIMIT_S
        while not any(tmp_path.glob("*.worker")):  # importing torch starts a process too, which is no worker
            assert time.monotonic() < deadline, "no worker was started"
            time.sleep(0.02)
        workers = kernel.children(recursive=True)
        manager.interrupt_kernel()
        while True:
            reply = client.get_shell_msg(timeout=LIMIT_S)
            if reply["parent_header"]["msg_id"] == asked:
                break
        # The signal reaches the workers too: the loader may notice their end before its own interrupt.
        assert reply["content"]["ename"] in ("KeyboardInterrupt", "RuntimeError")
        _, left = psutil.wait_procs(workers, timeout=LIMIT_S)
        assert [worker for worker in left if runs(worker)] == []
        assert [child for child in kernel.children(recursive=True) if runs(child)] == []
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
