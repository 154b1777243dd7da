"""Wordings of all years and platforms that no CPU can be made to raise: which error, with which figures?"""

import json
import random

import pytest

from course_lib.diagnose import faults
from course_lib.diagnose.faults.wording import Wording
from course_lib.diagnose.paste import Paste
from course_lib.diagnose.recognise import explain

WATCHDOG = (
    "[E ProcessGroupNCCL.cpp:587] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL({seq}OpType={op}, {numel}Timeout(ms)={limit}) ran for {ran} milliseconds before timing out."
)


def watchdog(*, rank=0, seq=None, op="ALLREDUCE", numel=None, limit=600000, ran=600042) -> str:
    return WATCHDOG.format(
        rank=rank,
        seq="" if seq is None else f"SeqNum={seq}, ",
        op=op,
        numel="" if numel is None else f"NumelIn={numel}, NumelOut={numel}, ",
        limit=limit,
        ran=ran,
    )


CASES: list[tuple[str, str, dict[str, object]]] = [
    # NCCL: 1.8 to today
    (watchdog(limit=1800000, ran=1808499), "nccl.one_rank_missing_or_slow", {"seq": None, "numel": None}),
    (
        watchdog(rank=3, seq=7, op="_ALLGATHER_BASE", numel=2048),
        "nccl.one_rank_missing_or_slow",
        {"op": "_ALLGATHER_BASE", "numel": 2048, "ranks": {"3": 7}, "format": "nccl_watchdog_v2"},
    ),
    (
        watchdog(rank=0, seq=500) + "\n" + watchdog(rank=1, seq=498),
        "nccl.desync",
        {"ranks": {"0": 500, "1": 498}},
    ),
    (
        watchdog(rank=0, seq=9, op="ALLREDUCE") + "\n" + watchdog(rank=1, seq=9, op="BROADCAST"),
        "nccl.desync",
        {},
    ),
    (watchdog(seq=3, limit=7200000, ran=7200100), "nccl.deadlock_not_slow", {"timeout_ms": 7200000}),
    (
        "RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:784, unhandled system error, "
        "NCCL version 2.7.8",
        "nccl.unhandled_system_error",
        {"nccl_version": "2.7.8"},
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: ../csrc/ProcessGroupNCCL.cpp:1333, unhandled "
        "system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1\nncclSystemError: System "
        "call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nError "
        "while creating shared memory segment /dev/shm/nccl-AbCdEf (size 9637888)",
        "nccl.shm_full",
        {"error": "ncclSystemError", "nccl_version": "2.18.1"},
    ),
    (
        "ncclSystemError: System call failed.\nLast error:\nsocketStartConnect: Connect to 10.0.0.2<40123> "
        "failed : Connection refused",
        "nccl.network_unreachable",
        {"peer": "10.0.0.2<40123>"},
    ),
    (
        "NCCL error, unhandled system error\nBootstrap : no socket interface found",
        "nccl.no_network_interface",
        {},
    ),
    (
        "RuntimeError: NCCL Error 1: unhandled cuda error",
        "nccl.unhandled_cuda_error",
        {"nccl_version": None},
    ),
    (
        "NCCL error in: ProcessGroupNCCL.cpp:825, invalid usage, NCCL version 2.14.3\nncclInvalidUsage: "
        "This usually reflects invalid usage of NCCL library.",
        "nccl.invalid_usage",
        {},
    ),
    ("ncclInternalError: Internal check failed.", "nccl.internal_error", {}),
    (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        "CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[4]), but Rank 1 is running collective: "
        "CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[4]).",
        "ddp.collective_mismatch",
        {"ops": ["ALLREDUCE", "BROADCAST"]},
    ),
    (
        "[rank2]:[F ProcessGroupNCCL.cpp:1280] Heartbeat monitor timed out!",
        "nccl.watchdog_stuck",
        {"rank": 2},
    ),
    ("RuntimeError: Distributed package doesn't have NCCL built in", "ddp.nccl_not_available", {}),
    (
        "[rank7]:[E1206 18:44:12 ProcessGroupNCCL.cpp:1537] [PG 0 Rank 7] Timeout at NCCL work: 77, last "
        "enqueued NCCL work: 80, last completed NCCL work: 76.",
        "nccl.one_rank_missing_or_slow",
        {"op": None, "ranks": {"7": 77}, "last_enqueued": {"7": 80}, "last_completed": {"7": 76}},
    ),
    (
        "[PG ID 0 PG GUID 0(default_pg) Rank 3]  failure detected by watchdog at work sequence id: 9 PG "
        "status: last enqueued work: 12, last completed work: 8",
        "nccl.one_rank_missing_or_slow",
        {"ranks": {"3": 9}, "last_enqueued": {"3": 12}, "last_completed": {"3": 8}},
    ),
    (  # two process groups: each counts for itself, so the numbers prove no difference
        watchdog(rank=0, seq=610, numel=9) + "\n[PG ID 1 PG GUID 3 Rank 0] Exception (either an error or "
        "timeout) detected by watchdog at work: 610, last enqueued NCCL work: 616, last completed NCCL work: "
        "609.\n" + watchdog(rank=1, seq=12, numel=9) + "\n[PG ID 2 PG GUID 9 Rank 1] Exception (either an "
        "error or timeout) detected by watchdog at work: 12, last enqueued NCCL work: 14, last completed "
        "NCCL work: 11.",
        "nccl.one_rank_missing_or_slow",
        {"ranks": {"0": 610, "1": 12}},
    ),
    (
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "\t   - [2, 5] finished collective #41, but didn't join collective #42 (count from 1)",
        "nccl.desync",
        {"lagging_ranks": [2, 5], "collective": 42},
    ),
    (
        "\t - [3] are the lagging ranks that caused this timeout. They never joined any collectives",
        "nccl.desync",
        {"lagging_ranks": [3], "collective": None},
    ),
    (
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:31, invalid usage, NCCL version 2.7.8",
        "nccl.invalid_usage",
        {"nccl_version": "2.7.8"},
    ),
    (
        "NCCL error in: NCCLUtils.hpp:219, internal error (run with NCCL_DEBUG=WARN for details), NCCL "
        "version 2.18.5",
        "nccl.internal_error",
        {},
    ),
    (
        "[F ProcessGroupNCCL.cpp:1557] [Rank 0] Terminating the process after attempting to dump debug info, "
        "due to ProcessGroupNCCL watchdog hang.",
        "nccl.watchdog_stuck",
        {},
    ),
    (
        "RuntimeError: [Rank 1] WorkNCCL(SeqNum=3, OpType=BROADCAST, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=1800000) timed out in blocking wait.",
        "nccl.one_rank_missing_or_slow",
        {"op": "BROADCAST", "timeout_ms": 1800000, "ranks": {"1": 3}},
    ),
    (
        "NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth1\n" + watchdog(seq=3, limit=7200000),
        "nccl.deadlock_not_slow",
        {"env": {"NCCL_SOCKET_IFNAME": "eth1"}},
    ),
    # the meeting point
    (
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [host1]:29500 (errno: 111 - "
        "Connection refused).",
        "ddp.store_unreachable",
        {"host": "host1", "port": 29500, "errno": 111},
    ),
    (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600s while trying to "
        "connect to (10.1.2.3, 29400).",
        "ddp.store_unreachable",
        {"host": "10.1.2.3", "port": 29400, "timeout_s": 600},
    ),
    (
        "[W socket.cpp:558] [c10d] The client socket has failed to connect to [::ffff:0.0.0.7]:40000 "
        "(errno: 110 - Connection timed out).\n[E socket.cpp:610] [c10d] The client socket has failed to "
        "connect to any network address of (07, 40000).",
        "ddp.hostname_is_a_number",
        {"port": 40000},
    ),
    (
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to "
        "[kubernetes.docker.internal]:29500 (system error: 10049 - The requested address is not valid in "
        "its context.).",
        "ddp.windows_hostname_warning_benign",
        {},
    ),
    (
        "[W socket.cpp:464] [c10d] The IPv6 network addresses of (node1, 29500) cannot be retrieved (gai "
        "error: -2 - Name or service not known).",
        "ddp.master_addr_unknown",
        {},
    ),
    (
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients "
        "joined.",
        "ddp.rank_missing_at_start",
        {"joined": 3, "world_size": 4, "timeout_s": 901},
    ),
    (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)",
        "ddp.two_jobs_in_one_store",
        {"joined": 4, "world_size": 2},
    ),
    (
        "[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:29500 (system error: 10048 "
        "- Only one usage of each socket address is normally permitted.).",
        "ddp.port_in_use",
        {"port": 29500, "os_hint": "Windows (10048)"},
    ),
    (
        "The server socket has failed to bind to 0.0.0.0:80 (errno: 13 - Permission denied).",
        "ddp.port_not_allowed",
        {"port": 80, "errno": 13},
    ),
    (
        "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, "
        "code: -99, name: EADDRNOTAVAIL, message: address not available",
        "ddp.master_addr_not_local",
        {"port": 29500, "name": "EADDRNOTAVAIL"},
    ),
    ("RuntimeError: Address already in use", "ddp.port_in_use", {"port": None, "errno": None}),
    (
        "RuntimeError: use_libuv was requested but PyTorch was build without libuv support",
        "ddp.windows_libuv",
        {},
    ),
    (
        "    local_rank = int(os.environ['LOCAL_RANK'])\nKeyError: 'LOCAL_RANK'",
        "ddp.missing_environment_variable",
        {},
    ),
    (
        "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is "
        "utilizing it. Please specify a different port.",
        "ddp.port_in_use",
        {"port": 29500},
    ),
    ("RuntimeError: Socket Timeout", "ddp.rank_missing_at_start", {"joined": None}),
    (
        "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store "
        "by key '0', but store->get('0') got error: wait timeout after 600000ms",
        "ddp.rank_missing_at_start",
        {},
    ),
    (
        "[W socket.cpp:752] [c10d] The client socket cannot be initialized to connect to [localhost]:29500 "
        "(errno: 97 - Address family not supported by protocol).",
        "ddp.no_ipv6_warning_benign",
        {"errno": 97, "host": "localhost"},
    ),
    (
        "[W socket.cpp:200] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
        "ddp.hostname_not_found_benign",
        {},
    ),
    (
        "NOTE: Redirects are currently not supported in Windows or MacOs.",
        "torchrun.no_redirects_benign",
        {},
    ),
    # gloo and DDP
    (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Connection closed by peer "
        "[127.0.0.1]:61",
        "ddp.secondary_failure",
        {"peer": "127.0.0.1"},
    ),
    (
        "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store "
        "by key '0', but store->get('0') got error: Connection reset by peer",
        "ddp.secondary_failure",
        {},
    ),
    (
        "[enforce fail at ../gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 16 vs 8",
        "ddp.collective_mismatch",
        {"bytes_sent": 16, "bytes_expected": 8},
    ),
    (
        "RuntimeError: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms",
        "gloo.one_rank_missing_or_slow",
        {"missing_ranks": [1, 3]},
    ),
    (
        "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the "
        "following reasons.\nParameter at index 12 with name layer.3.bias has been marked as ready twice.",
        "ddp.parameter_ready_twice",
        {"parameter_index": 12, "parameter": "layer.3.bias"},
    ),
    (
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 50 params, while rank 1 has "
        "inconsistent 48 params.",
        "ddp.models_differ_between_ranks",
        {},
    ),
    (
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 8 train.py\nRuntimeError: CUDA error: invalid "
        "device ordinal",
        "ddp.more_processes_than_gpus",
        {"cuda_visible_devices": [0, 1], "nproc_per_node": 8},
    ),
    (
        "export CUDA_VISIBLE_DEVICES=3\ntorch.cuda.set_device(3)\nRuntimeError: CUDA error: invalid device "
        "ordinal",
        "ddp.visible_devices_renumbered",
        {"device": 3},
    ),
    ("train.py: error: unrecognized arguments: --local-rank=0", "ddp.launcher_argument", {}),
    (
        "RuntimeError: No backend type associated with device type cpu",
        "ddp.tensor_not_on_the_backends_device",
        {"device": "cpu"},
    ),
    (
        "[enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth7",
        "gloo.no_network_interface",
        {},
    ),
    ("RuntimeError: Connection reset by peer", "ddp.secondary_failure", {}),
    ("torch.distributed.DistNetworkError: Broken pipe", "ddp.secondary_failure", {}),
    (
        "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the "
        "loss returned by training_step.",
        "ddp.unused_parameters",
        {},
    ),
    (
        "You requested gpu: [0, 1, 2, 3]\n But your machine only has: [0, 1]",
        "ddp.more_processes_than_gpus",
        {},
    ),
    (
        "ncclInternalError: Internal check failed.\nLast error:\nNet : Call to recv from 10.0.0.7<58355> "
        "failed : Broken pipe",
        "ddp.secondary_failure",
        {"peer": "10.0.0.7<58355>", "error": "ncclInternalError"},
    ),
    (
        "ncclSystemError: System call failed.\nLast error:\nsocketProgress: Connection closed by remote peer "
        "node-2<40000>",
        "ddp.secondary_failure",
        {},
    ),
    (
        "[W TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=67, addr=[a]:36214, remote=[b]:43145)"
        ": Broken pipe",
        "ddp.secondary_failure",
        {},
    ),
    (
        "RuntimeError: [1]: params[7] in this process with sizes [64, 3] appears not to match sizes of the "
        "same param in process 0.",
        "ddp.models_differ_between_ranks",
        {"parameter_index": 7},
    ),
    (
        "RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is unused in "
        "first iteration. this is not compatible with static_graph set to True.",
        "ddp.unused_parameters",
        {},
    ),
    # how processes end
    (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\ntrain.py FAILED\nRoot Cause "
        "(first observed failure):\n[0]:\n  time      : 2024-01-01_00:00:00\n  rank      : 5 (local_rank: "
        "1)\n  exitcode  : -11 (pid: 777)\n  error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received "
        "by PID 777",
        "torchrun.native_crash",
        {"exitcode": -11, "signal": "SIGSEGV", "rank": 5, "local_rank": 1, "pid": 777},
    ),
    (
        "failed (exitcode: -7) local_rank: 2 (pid: 99) of binary: python",
        "dataloader.shm_full",
        {"local_rank": 2},
    ),
    (
        "failed (exitcode: -6) local_rank: 0 (pid: 99) of binary: python",
        "torchrun.aborted",
        {"signal": "SIGABRT"},
    ),
    (
        "failed (exitcode: -15) local_rank: 0 (pid: 9) of binary: python",
        "torchrun.terminated_from_outside",
        {},
    ),
    (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 1",
        "torchrun.terminal_closed",
        {"signal": "SIGHUP", "pid": 4242},
    ),
    (
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.",
        "host_oom_killer",
        {"signal": "SIGKILL"},
    ),
    (
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV",
        "torchrun.native_crash",
        {"rank": 1},
    ),
    (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 12) "
        "of binary: python",
        "torchrun.rank_failed_error_above",
        {"exitcode": 1, "signal": None},
    ),
    (
        "[launch.py:315:sigkill_handler] ['python', 'train.py'] exits with return code = -9",
        "host_oom_killer",
        {"exitcode": -9, "signal": "SIGKILL"},
    ),
    ("run.sh: line 12:  8123 Killed                  python train.py --epochs 3", "host_oom_killer", {}),
    ("srun: error: node7: task 0: Killed", "host_oom_killer", {}),
    (
        "Process finished with exit code -1073741819 (0xC0000005)",
        "torchrun.native_crash",
        {"exitcode": -1073741819},
    ),
    ("Segmentation fault (core dumped)", "torchrun.native_crash", {"signal": "SIGSEGV"}),
    (
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "ddp.rank_missing_at_start",
        {"joined": None},
    ),
    ("[1]    88123 killed     python train.py", "host_oom_killer", {}),
    ("[1]+  Killed                  python train.py", "host_oom_killer", {}),
    (
        "/bin/bash: line 1: 1234 Killed                  torchrun --nproc-per-node 4 train.py",
        "host_oom_killer",
        {"signal": "SIGKILL"},
    ),
    (
        "It dies in the 7th epoch, RAM usage goes up all the time.\nfailed (exitcode: -9) local_rank: 0 "
        "(pid: 18) of binary: python",
        "host_memory_leak",
        {"epoch": 7},
    ),
    (
        "the memory in use gets larger\nand larger\nfailed (exitcode: -9) local_rank: 0 (pid: 18) of binary",
        "host_memory_leak",
        {"exitcode": -9, "pid": 18},
    ),
    (
        "traceback : Signal 15 (SIGTERM) received by PID 99",
        "torchrun.terminated_from_outside",
        {"signal": "SIGTERM", "pid": 99},
    ),
    (
        "-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
        "KeyError: 'image'",
        "torchrun.rank_raised_an_error",
        {"raised": "KeyError: 'image'"},
    ),
    ("zsh: killed     python train.py", "host_oom_killer", {}),
    (
        "fish: Job 1, 'python train.py' terminated by signal SIGKILL (Forced quit)",
        "host_oom_killer",
        {"signal": "SIGKILL"},
    ),
    (
        "mpirun noticed that process rank 3 with PID 21 on node n1 exited on signal 11 (Segmentation fault).",
        "torchrun.native_crash",
        {"signal": "SIGSEGV"},
    ),
    ("Bus error (core dumped)", "dataloader.shm_full", {"signal": "SIGBUS"}),
    ("Your session crashed after using all available RAM.", "host_oom_killer", {}),
    ("slurmstepd: error: Exceeded job memory limit at some point.", "host_oom_killer", {}),
    # loaders
    ("ERROR: Unexpected floating-point exception encountered in worker.", "dataloader.worker_crashed", {}),
    ("ERROR: Unexpected bus error encountered in worker.", "dataloader.shm_full", {"signal": None}),
    (
        "RuntimeError: DataLoader worker exited unexpectedly with exit code 1.",
        "dataloader.worker_died_unknown",
        {"pids": None},
    ),
    (
        "RuntimeError: DataLoader worker (pid 31) is killed by signal: Segmentation fault.",
        "dataloader.worker_crashed",
        {"pid": 31, "signal": "Segmentation fault"},
    ),
    (
        "RuntimeError: DataLoader worker (pid 31) is killed by signal: Terminated.",
        "dataloader.worker_terminated",
        {},
    ),
    (
        "RuntimeError: DataLoader worker (pid(s) 5, 6, 7) exited unexpectedly",
        "dataloader.worker_died_unknown",
        {"pids": [5, 6, 7], "batches_done": None, "num_workers": None},
    ),
    ("OSError: [Errno 24] Too many open files", "dataloader.too_many_open_files", {}),
    ("RuntimeError: received 0 items of ancdata", "dataloader.too_many_open_files", {}),
    (
        "RuntimeError: unable to write to file </torch_12_34>: No space left on device (28)",
        "dataloader.shm_full",
        {},
    ),
    (
        "An attempt has been made to start a new process before the current process has finished its "
        "bootstrapping phase.",
        "dataloader.no_main_guard",
        {},
    ),
    (
        "AttributeError: Can't pickle local object 'make.<locals>.collate'",
        "dataloader.unpicklable_under_spawn",
        {"object": "make.<locals>.collate"},
    ),
    (
        "TypeError: cannot pickle '_thread.lock' object",
        "dataloader.unpicklable_under_spawn",
        {"object": "_thread.lock"},
    ),
    ("TypeError: h5py objects cannot be pickled", "dataloader.unpicklable_under_spawn", {}),
    (
        "AttributeError: Can't get attribute 'MyData' on <module '__main__' (built-in)>",
        "dataloader.class_not_importable",
        {},
    ),
    (
        "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number "
        "of worker in current system is 4, which is smaller than what this DataLoader is going to create.",
        "dataloader.more_workers_than_cores",
        {"workers_created": 16, "workers_suggested": 4},
    ),
    (
        "The 'train_dataloader' does not have many workers which may be a bottleneck. Consider increasing "
        "the value of the `num_workers` argument` to `num_workers=31` in the `DataLoader` to improve "
        "performance.",
        "dataloader.few_workers_hint",
        {"loader": "train_dataloader", "workers_suggested": 31},
    ),
    (
        "multiprocessing/popen_spawn_win32.py, in __init__\nBrokenPipeError: [Errno 32] Broken pipe",
        "dataloader.child_died_at_start",
        {},
    ),
    (
        "RuntimeError: unable to resize file </torch_771_88_0> to the right size: No space left on device",
        "dataloader.shm_full",
        {},
    ),
    (
        "  File multiprocessing/heap.py, line 77\nOSError: [Errno 28] No space left on device",
        "dataloader.shm_full",
        {},
    ),
    (
        "UserWarning: The dataloader, train dataloader, does not have many workers which may be a "
        "bottleneck. (try 12 which is the number of cpus on this machine)",
        "dataloader.few_workers_hint",
        {"loader": "train dataloader", "workers_suggested": 12},
    ),
    (
        "UserWarning: 'pin_memory' argument is set as true but no accelerator is found, then device pinned "
        "memory won't be used.",
        "dataloader.pin_memory_without_card_benign",
        {},
    ),
    (
        "RuntimeError: Caught IndexError in DataLoader worker process 3.\nOriginal Traceback (most recent "
        "call "
        "last):\n  File data.py, line 9, in __getitem__\nIndexError: list index out of range",
        "dataloader.error_in_dataset",
        {"worker": 3, "raised": "IndexError", "message": "list index out of range"},
    ),
    ("RuntimeError: Pin memory thread exited unexpectedly", "dataloader.pin_memory_thread_died", {}),
    (
        "#SBATCH --mem=180gb\nRuntimeError: DataLoader worker (pid 31) is killed by signal: Killed.",
        "host_oom_killer",
        {"slurm_mem_gib": 180.0, "pid": 31},
    ),
    (
        "Epoch 0:  43%|####3     | 6000/14000 [20:00<26:00, 5.1it/s]\nRuntimeError: DataLoader worker "
        "(pid(s) 8) "
        "exited unexpectedly",
        "dataloader.worker_died_unknown",
        {"batches_done": 6000, "pids": [8]},
    ),
    (
        "  File torch/utils/data/_utils/pin_memory.py, in do_one_step\nConnectionResetError: [Errno 104] "
        "Connection reset by peer",
        "dataloader.other_process_gone",
        {},
    ),
    (
        "AssertionError: daemonic processes are not allowed to have children",
        "dataloader.workers_of_a_worker",
        {},
    ),
    ("AssertionError: can only test a child process", "dataloader.iterator_in_a_fork_benign", {}),
    # checkpoints
    ("RuntimeError: Invalid magic number; corrupt file?", "checkpoint.file_damaged", {}),
    (
        "OSError: You seem to have cloned a repository without having git-lfs installed.",
        "checkpoint.not_a_checkpoint",
        {},
    ),
    # CUDA
    (
        "../aten/src/ATen/native/cuda/Loss.cu:242: nll_loss_forward: block: [0,0,0], thread: [3,0,0] "
        "Assertion `t >= 0 && t < n_classes` failed.\nRuntimeError: CUDA error: device-side assert "
        "triggered",
        "cuda.label_out_of_range",
        {"assertion": "t >= 0 && t < n_classes"},
    ),
    (
        "../aten/src/ATen/native/cuda/Indexing.cu:1141: indexSelectLargeIndex: block: [1,0,0] Assertion "
        "`srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert triggered",
        "cuda.index_out_of_range_of_embedding",
        {},
    ),
    (
        "Loss.cu:92: Assertion `input_val >= zero && input_val <= one` failed.",
        "cuda.bce_input_outside_0_to_1",
        {},
    ),
    (
        "RuntimeError: CUDA error: device-side assert triggered",
        "cuda.device_side_assert",
        {"assertion": None},
    ),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda.illegal_memory_access", {}),
    (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "cuda.card_not_supported_by_build",
        {},
    ),
    (
        "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        "cuda.driver_too_old",
        {"driver_cuda": 11040},
    ),
    ("AssertionError: Torch not compiled with CUDA enabled", "cuda.cpu_build_of_torch", {}),
    ("RuntimeError: No CUDA GPUs are available", "cuda.no_card_visible", {}),
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, ...)`",
        "cuda.library_call_failed",
        {"status": "CUBLAS_STATUS_EXECUTION_FAILED", "call": "cublasSgemm"},
    ),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "hardware.memory_errors", {}),
    # tensors and types on cards
    (
        "RuntimeError: Found dtype Double but expected Float",
        "tensors.different_types",
        {"first": "Double", "second": "Float"},
    ),
    (
        "RuntimeError: result type Float can't be cast to the desired output type Long",
        "tensors.label_type",
        {"first": "Float", "second": "Long"},
    ),
    (
        "UserWarning: Using a target size (torch.Size([32])) that is different to the input size "
        "(torch.Size([32, 1])).",
        "tensors.target_shape",
        {},
    ),
    (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
        "cuda:0 and cpu!",
        "tensors.different_devices",
        {"devices": ["cpu", "cuda:0"]},
    ),
    (
        "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be "
        "the same",
        "tensors.different_devices",
        {},
    ),
    ("RuntimeError: expected scalar type Half but found Float", "tensors.half_and_float", {"first": "Half"}),
    ("RuntimeError: \"slow_conv2d_cpu\" not implemented for 'Half'", "tensors.half_on_cpu", {"type": "Half"}),
    (
        "RuntimeError: size mismatch, m1: [32 x 512], m2: [256 x 10] at x.cpp:41",
        "tensors.shapes_of_linear_layer",
        {},
    ),
    (
        "RuntimeError: \"nll_loss_forward_reduce_cuda_kernel_2d_index\" not implemented for 'Int'",
        "tensors.type_not_supported",
        {"type": "Int"},
    ),
    # checkpoints
    (
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "
        '"_orig_mod.fc.weight". \n\tUnexpected key(s) in state_dict: "fc.weight". ',
        "checkpoint.prefix_of_the_wrapper",
        {"prefix": "_orig_mod.", "model": "Net"},
    ),
    ("_pickle.UnpicklingError: invalid load key, 'v'.", "checkpoint.not_a_checkpoint", {"first_byte": "v"}),
    (
        "RuntimeError: unexpected EOF, expected 1234 more bytes. The file might be corrupted.",
        "checkpoint.file_damaged",
        {},
    ),
    (
        "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file "
        "data/17: file write failed",
        "checkpoint.disk_full",
        {},
    ),
    ("OSError: [Errno 28] No space left on device", "checkpoint.disk_full", {}),
    ("OSError: [Errno 122] Disk quota exceeded", "checkpoint.disk_full", {}),
    (
        "RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.",
        "checkpoint.saved_on_a_card",
        {"device": 3, "device_count": 1},
    ),
    # AMP, and older autograd
    (
        "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.",
        "amp.bce_unsafe_to_autocast",
        {},
    ),
    (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore.",
        "amp.loss_scale_at_minimum",
        {},
    ),
    (
        "RuntimeError: Trying to backward through the graph a second time, but the buffers have already "
        "been freed. Specify retain_graph=True when calling backward the first time.",
        "graph.reused_across_iterations",
        {"exception": "RuntimeError"},
    ),
    (
        "RuntimeError: one of the variables needed for gradient computation has been modified by an "
        "inplace operation: [torch.cuda.FloatTensor [64, 10]], which is output 0 of TBackward, is at "
        "version 2; expected version 1 instead.",
        "graph.modified_in_place",
        {"version": 2, "expected_version": 1, "output_of": "TBackward"},
    ),
    # cards by number
    (
        "MisconfigurationException: You requested gpu: [0, 2]\n But your machine only has: [0, 1]",
        "ddp.more_processes_than_gpus",
        {"asked_for": [0, 2], "visible": [0, 1]},
    ),
    (
        "MisconfigurationException: \n  You requested GPUs: [3]\n  But your machine only has: []",
        "cuda.no_card_visible",
        {"asked_for": [3], "visible": []},
    ),
    ("RuntimeError: CUDA error: invalid device function", "cuda.card_not_supported_by_build", {}),
    ("RuntimeError: CUDA error: invalid argument", "cuda.invalid_argument", {}),
    ("RuntimeError: CUDA error: an illegal instruction was encountered", "cuda.launch_failed", {}),
    (
        "RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR",
        "cuda.library_call_failed",
        {"status": "CUFFT_INTERNAL_ERROR"},
    ),
    # sharding
    (
        "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
        "fsdp.mixed_dtypes",
        {"first": "torch.bfloat16", "second": "torch.float32"},
    ),
    (
        "AssertionError: FSDP expects uniform original parameter dtype but got {torch.bfloat16, "
        "torch.float32}",
        "fsdp.mixed_dtypes",
        {"first": "torch.bfloat16", "second": "torch.float32"},
    ),
    (
        "AssertionError: Check batch related parameters. train_batch_size is not equal to "
        "micro_batch_per_gpu * gradient_acc_step * world_size 48 != 2 * 4 * 3",
        "deepspeed.batch_sizes_do_not_multiply",
        {"train_batch": 48, "micro_batch": 2, "accumulation": 4, "world_size": 3},
    ),
    ("RuntimeError: 'weight' must be 2-D", "sharding.parameter_is_elsewhere", {}),
    (
        "NotImplementedError: Cannot copy out of meta tensor; no data! Please use to_empty()",
        "checkpoint.weights_not_loaded",
        {},
    ),
    # shared memory that is no question of size
    (
        "RuntimeError: unable to open shared memory object </torch_71_2> in read-write mode: Too many open "
        "files (24)",
        "dataloader.too_many_open_files",
        {},
    ),
    (
        "RuntimeError: unable to open shared memory object </torch_71_2> in read-write mode: No such file or "
        "directory (2)",
        "dataloader.other_process_gone",
        {},
    ),
    (
        "RuntimeError: unable to mmap 4096 bytes from file </torch_71_3>: Cannot allocate memory (12)",
        "host.mapping_refused",
        {},
    ),
    (
        "RuntimeError: torch_shm_manager at bin/torch_shm_manager: could not generate a random directory for "
        "manager socket",
        "host.temporary_folder_full",
        {},
    ),
    (
        "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
        "dataloader.generator_on_another_device",
        {"found": "cpu"},
    ),
    # autograd and checkpoints
    (
        "RuntimeError: One of the differentiated Tensors appears to not have been used in the graph. Set "
        "allow_unused=True if this is the desired behavior.",
        "graph.input_not_used",
        {},
    ),
    (
        "RuntimeError: cudnn RNN backward can only be called in training mode",
        "graph.rnn_backward_in_eval",
        {},
    ),
    (
        "RuntimeError: Inference tensors cannot be saved for backward. To work around you can make a clone",
        "graph.inference_tensor",
        {},
    ),
    (
        "torch.load('net.safetensors')\n_pickle.UnpicklingError: invalid load key, '\\xd8'.",
        "checkpoint.not_a_checkpoint",
        {"first_byte": "\\xd8"},
    ),
    (
        "TypeError: Expected state_dict to be dict-like, got <class 'models.Net'>.",
        "checkpoint.not_a_state_dict",
        {"found": "models.Net"},
    ),
    (
        "_pickle.UnpicklingError: Weights only load failed. WeightsUnpickler error: CUDA error: CUDA-capable "
        "device(s) is/are busy or unavailable",
        "cuda.card_busy",
        {},
    ),
    # ranks that meet, or do not
    ("AssertionError: Default process group is not initialized", "ddp.group_not_initialised", {}),
    (
        "_default_pg = ProcessGroupGloo(store, rank, 2)\nRuntimeError: Wait timeout",
        "ddp.rank_missing_at_start",
        {},
    ),
    (
        "ValueError: DistributedDataParallel's input module must be on the same type of devices, but input "
        "module parameters locate in {'cuda', 'cpu'}.",
        "ddp.model_not_on_its_device",
        {},
    ),
    (
        "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.h:301] Connect timeout "
        "[n]",
        "gloo.ranks_cannot_connect",
        {},
    ),
    (
        "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
        "ddp.secondary_failure",
        {},
    ),
    (
        "RuntimeError: [/b/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.0.0.7]:4415: "
        "Connection refused",
        "gloo.ranks_cannot_connect",
        {"peer": "10.0.0.7", "port": 4415},
    ),
    (
        "n7:71:80 [1] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<4576> failed : "
        "Software caused connection abort\nn7:71:80 [1] NCCL INFO bootstrap.cc:270 -> 2",
        "nccl.network_unreachable",
        {"peer": "10.0.0.2<4576>"},
    ),
    (
        "n7:71:80 [1] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n9<4576>",
        "ddp.secondary_failure",
        {},
    ),
    (
        "Traceback (most recent call last):\nValueError: Caught ValueError in replica 1 on device 1.\n"
        'Original Traceback (most recent call last):\n  File "/home/me/net.py", line 8, in forward\n'
        "    go(x)\nValueError: the sum of nothing",
        "dp.error_in_a_replica",
        {"replica": 1, "raised": "ValueError: the sum of nothing", "where": "net.py, line 8, in forward"},
    ),
    (
        "TypeError: Caught TypeError in DataLoader worker process 3.\nOriginal Traceback (most recent call "
        "last):\n"
        '  File "/home/me/data.py", line 51, in __getitem__\n    pad(x)\nTypeError: pad() takes 2 arguments',
        "dataloader.error_in_dataset",
        {"raised": "TypeError", "worker": 3, "where": "data.py, line 51, in __getitem__"},
    ),
    # ends of a job
    (
        "[rank: 2] Child process with PID 4711 terminated with code -9. Forcefully terminating all others",
        "host_oom_killer",
        {"rank": 2, "pid": 4711, "exitcode": -9, "signal": "SIGKILL"},
    ),
    (
        "slurmstepd: error: *** STEP 71.0 ON n7 CANCELLED AT 2026-01-30T12:39:21 ***",
        "slurm.ended_the_job",
        {"job": "71.0", "node": "n7"},
    ),
    (
        "E failed (exitcode: 3) local_rank: 2 (pid: 4711) of binary: python",
        "torchrun.rank_ended_itself",
        {"exitcode": 3, "local_rank": 2, "pid": 4711},
    ),
    (
        "failed (exitcode: 3221225477) local_rank: 0 (pid: 4711) of binary: python.exe",
        "torchrun.native_crash",
        {"exitcode": 3221225477, "pid": 4711},
    ),
    (
        "UserWarning: expandable_segments not supported on this platform",
        "memory.expandable_segments_unsupported_benign",
        {},
    ),
    # warnings that are none
    (
        "[W reducer.cpp:1346] Warning: find_unused_parameters=True was specified in DDP constructor, but "
        "did not find any unused parameters in the forward pass.",
        "ddp.find_unused_without_need_benign",
        {},
    ),
    ("UserWarning: Grad strides do not match bucket view strides.", "ddp.grad_strides_benign", {}),
    (
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        "torchrun.omp_threads_benign",
        {},
    ),
]


@pytest.mark.parametrize(("text", "expected", "figures"), CASES, ids=[case[1] for case in CASES])
def test_each_wording(text: str, expected: str, figures: dict[str, object]) -> None:
    explanation = explain(text)
    assert [finding.id for finding in explanation.findings][:1] == [expected]
    found = next(r.figures for r in explanation.readings if r.findings and r.findings[0].id == expected)
    assert {name: found.get(name, "missing") for name in figures} == figures
    assert json.loads(json.dumps(explanation.to_json()))["known"]


@pytest.mark.parametrize(("text", "expected", "figures"), CASES, ids=[case[1] for case in CASES])
def test_a_terminal_may_break_the_lines_anywhere(
    text: str, expected: str, figures: dict[str, object]
) -> None:
    rng = random.Random(expected)
    width = rng.randint(40, 100)
    broken = "\n".join(text[i : i + width] for i in range(0, len(text), width))
    assert expected.partition(".")[0] in {f.id.partition(".")[0] for f in explain(broken).findings}


@pytest.mark.parametrize(("text", "expected"), [case[:2] for case in CASES], ids=[case[1] for case in CASES])
def test_what_others_write_around_the_lines_does_not_matter(text: str, expected: str) -> None:
    lines = text.split("\n")
    for margin in ("[rank0]: {}", "3: {}", "\x1b[31m{}\x1b[0m", "\u2502 {} \u2502", "> {}\r"):
        assert explain("\n".join(margin.format(line) for line in lines)).findings[0].id == expected
    pieces = (line[i : i + 76] for line in lines for i in range(0, len(line), 76))
    framed = "\n".join(f"\u2502 {piece:76} \u2502" for piece in pieces)
    assert expected.partition(".")[0] in {f.id.partition(".")[0] for f in explain(framed).findings}


TWICE = "RuntimeError: Trying to backward through the graph a second time, but the buffers have been freed."


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("loss.backward()\n", "graph.reused_across_iterations"),
        ("  torch.autograd.backward(self, gradient)\nloss.backward()\n", "graph.reused_across_iterations"),
        ("loss_d.backward()\nopt.step()\nloss_g.backward()\n", "graph.shared_by_two_losses"),
        ("scaler.scale(loss_d).backward()\nscaler.scale(loss_g).backward()\n", "graph.shared_by_two_losses"),
        ("loss_d.backward(retain_graph=True)\nloss_g.backward()\n", "graph.reused_across_iterations"),
        ("# loss_d.backward()\nloss.backward()\n", "graph.reused_across_iterations"),
    ],
)
def test_two_losses_over_one_graph_are_seen_in_the_code(code: str, expected: str) -> None:
    assert explain(code + TWICE).findings[0].id == expected


def test_clipping_in_every_micro_step_of_accelerate() -> None:
    code = "with accelerator.accumulate(model):\n    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n"
    finding = explain(code + "RuntimeError: unscale_() has already been called on this optimizer").findings[0]
    assert finding.id == "amp.unscale_every_micro_step"
    assert "sync_gradients" in str(finding.first_remedy)


SCHEDULER_FIRST = "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`."


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        ("/home/me/examples/amp/train_sample.py:9: {}", "train.scheduler_before_optimizer"),
        (
            "{}\nfor x in loader:\n    scheduler.step()\n    optimizer.step()",
            "train.scheduler_before_optimizer",
        ),
        ("model, opt = amp.initialize(model, opt)\n{}", "amp.first_step_skipped_benign"),
        ("with torch.autocast('cuda', dtype=torch.float16):\n{}", "amp.first_step_skipped_benign"),
        ("from ultralytics import YOLO\n{}", "amp.first_step_skipped_benign"),
        ("trainer = Trainer(precision='16-mixed')\n{}", "amp.first_step_skipped_benign"),
    ],
)
def test_mixed_precision_is_a_word_of_the_code_and_no_part_of_another(around: str, expected: str) -> None:
    assert explain(around.format(SCHEDULER_FIRST)).findings[0].id == expected


def test_the_calls_in_the_warning_itself_are_no_code() -> None:
    broken = (
        SCHEDULER_FIRST.replace("before ", "before\n") + " In PyTorch 1.1 call `optimizer.step()`\nfirst."
    )
    found = explain(broken).readings[0].figures
    assert found["order_in_code_correct"] is None


@pytest.mark.parametrize(
    "text",
    [
        "epoch 3 loss 0.41 lr 1e-3 all ranks report, no error, exit code 0",
        "optimizer.step()\nscheduler.step()\nscaler.update()",
        "Training finished. Signal to noise ratio 9.2, 0 failed, 12 expected.",
        "The shark was Killed by the captain, who killed 3 others.",
        '# optimizer.zero_grad()  # with it: "No inf checks were recorded for this optimizer."',
        "The key is lost, the port is closed and the rank of the general is high: a warning to all.",
        "def save(path):\n    if not path.parent.exists():\n        raise FileNotFoundError(path)\n",
    ],
)
def test_other_text_holds_no_error(text: str) -> None:
    assert faults.read(Paste.of(text)) == []


def test_every_wording_is_written_as_it_is_looked_for() -> None:
    for wording in faults.WORDINGS:
        assert isinstance(wording, Wording)
        for mark in wording.marks:
            assert len(mark) >= 8 or mark in ("gaierror", "killed"), f"{mark} would be found everywhere"


def test_no_remedy_repeats_what_would_not_help() -> None:
    for text, _, _ in CASES:
        for finding in explain(text).findings:
            assert not set(finding.remedies) & set(finding.not_helpful)
            assert finding.remedies or finding.severity == "note"
