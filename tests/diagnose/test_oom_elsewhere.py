"""Messages of MPS, of host memory, and messages without figures."""

import pytest

from course_lib.diagnose.finding import Reading
from course_lib.diagnose.oom import bare, host, mps
from course_lib.diagnose.paste import Paste


def first(module: object, text: str) -> Reading:
    readings = module.read(Paste.of(text))  # type: ignore[attr-defined]
    assert len(readings) == 1
    return readings[0]


MPS = "RuntimeError: MPS backend out of memory (MPS allocated: {}, other allocations: {}, max allowed: {}). "


@pytest.mark.parametrize(
    ("sizes", "tried", "expected"),
    [
        (("2.10 GiB", "6.40 GiB", "9.07 GiB"), "700.00 MiB", "oom.mps_other_allocations"),
        (("8.10 GB", "512.00 MB", "9.07 GB"), "600.00 MB", "oom.capacity"),
        (("1.00 GB", "384.00 KB", "18.13 GB"), "24.00 GB", "oom.single_request_too_large"),
        (("1.00 GB", "1.00 GB", "18.13 GB"), "256 bytes", "oom.contradictory_free_exceeds_request"),
    ],
)
def test_mps(sizes: tuple[str, str, str], tried: str, expected: str) -> None:
    reading = first(mps, MPS.format(*sizes) + f"Tried to allocate {tried} on private pool.")
    assert reading.findings[0].id == expected
    assert reading.figures["mps_allocated"]["raw"] == sizes[0]
    assert reading.figures["tried_to_allocate"]["raw"] == tried
    assert reading.figures["gpu_index"] is None


def test_mps_ratio_from_inside_the_script_comes_too_late_and_from_the_shell_does_not() -> None:
    message = MPS.format("2.00 GB", "7.00 GB", "9.07 GB") + "Tried to allocate 200.00 MB on private pool."
    inside = "os.environ['PYTORCH_MPS_HIGH_WATERMARK_RATIO'] = '0.0'\n"
    assert first(mps, inside + message).findings[0].id == "env_var_set_too_late"
    assert first(mps, "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0\n" + message).findings[0].id != (
        "env_var_set_too_late"
    )


def test_one_metal_buffer_that_is_too_large() -> None:
    reading = first(mps, "RuntimeError: Invalid buffer size: 28.61 GiB")
    assert reading.findings[0].id == "oom.single_request_too_large"


LINUX = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
    "memory: you tried to allocate {} bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("text", "expected", "figures"),
    [
        (
            LINUX.format(6553600),
            "oom.host_memory",
            {"tried_bytes": 6553600, "tried_mib": 6.25, "error_code": 12},
        ),
        (LINUX.format(2**60), "shape_overflow", {"tried_bytes": 2**60}),
        (LINUX.format(200 * 2**30), "oom.host_single_request_too_large", {"tried_mib": 204800.0}),
        (
            r"RuntimeError: [enforce fail at C:\b\c10\core\impl\alloc_cpu.cpp:72] data. "
            "DefaultCPUAllocator: not enough memory: you tried to allocate 9437184 bytes.",
            "oom.host_commit_limit",
            {"tried_mib": 9.0, "exception": "RuntimeError"},
        ),
        (
            "RuntimeError: $ Torch: not enough memory: you tried to allocate 4GB. Buy new RAM!",
            "oom.host_commit_limit",
            {"tried_mib": 4096.0, "tried_bytes": None},
        ),
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3.73 GiB for an array with shape "
            "(10000, 50000) and data type float64",
            "oom.host_memory",
            {"shape": "(10000, 50000)", "tried_mib": 3819.52},
        ),
        ("OSError: [Errno 12] Cannot allocate memory", "oom.host_memory", {"tried_mib": None}),
        (
            'OSError: [WinError 1455] Die Auslagerungsdatei ist zu klein. Error loading "c10_cuda.dll"',
            "oom.host_commit_limit_workers",
            {"winerror": 1455, "dll": "c10_cuda.dll"},
        ),
        (
            "Out of memory: Killed process 4711 (python) total-vm:41943040kB, anon-rss:31457280kB, "
            "file-rss:0kB",
            "oom.host_killed",
            {"pid": 4711, "anon_rss_mib": 30720.0},
        ),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77.batch. Some of your processes "
            "may have been killed by the cgroup out-of-memory handler.",
            "oom.host_killed",
            {"pid": None},
        ),
        ("[rank1]: MemoryError", "oom.host_memory", {"form": "python", "tried_mib": None}),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "oom.host_memory",
            {"form": "library"},
        ),
        (
            "RuntimeError: [enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) "
            "== 0. 12 vs 0",
            "oom.host_memory",
            {"exception": "RuntimeError"},
        ),
    ],
)
def test_host(text: str, expected: str, figures: dict[str, object]) -> None:
    reading = host.read(Paste.of(text))[0]
    assert reading.findings[0].id == expected
    assert {name: reading.figures[name] for name in figures} == figures
    assert "empty_cache" not in " ".join(reading.findings[0].remedies)


def test_how_a_request_weighs_and_what_is_no_error_of_memory() -> None:
    words = "DefaultCPUAllocator: not enough memory: you tried to allocate {} bytes."
    assert "last straw" in host.read(Paste.of(words.format(2**20)))[0].findings[0].why
    assert "large by itself" in host.read(Paste.of(words.format(30 * 2**30)))[0].findings[0].why
    for text in (
        "We wrote it so as to avoid a MemoryError",
        "unable to mmap 1024 bytes from file </torch_12_34>: Cannot allocate memory (12)",
    ):
        assert host.read(Paste.of(text)) == []


def test_the_variable_that_chooses_a_card_is_that_of_the_kind() -> None:
    told = first(
        bare, "RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)"
    )
    assert "ZE_AFFINITY_MASK" in str(told.findings[0].first_remedy)
    told = first(bare, "RuntimeError: HIP error: out of memory")
    assert "HIP_VISIBLE_DEVICES" in str(told.findings[0].first_remedy)


TRACE = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    {}\n'


@pytest.mark.parametrize(
    ("frame", "error", "expected", "phase"),
    [
        (
            "dist.init_process_group('nccl')",
            "RuntimeError: CUDA error: out of memory",
            "oom.device_already_full_or_wrong_device",
            "distributed.init_process_group",
        ),
        (
            "state = torch.load('model.pt')",
            "RuntimeError: CUDA error: out of memory",
            "oom.device_already_full_or_wrong_device",
            "torch.load",
        ),
        (
            "model.cuda()",
            "torch.AcceleratorError: CUDA error: out of memory",
            "oom.device_already_full_or_wrong_device",
            "device transfer",
        ),
        (
            "data = pin_memory(data)",
            "RuntimeError: CUDA error: out of memory",
            "oom.pinned_host_memory",
            "pin_memory",
        ),
        (
            "loss.backward()",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "oom.masked_by_cublas",
            "backward",
        ),
        (
            "y = self.conv(x)",
            "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
            "oom.masked_by_cudnn",
            None,
        ),
        (
            "y = net(x)",
            "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58",
            "oom.figures_missing",
            None,
        ),
    ],
)
def test_without_figures(frame: str, error: str, expected: str, phase: str | None) -> None:
    reading = first(bare, TRACE.format(frame) + error)
    assert reading.findings[0].id == expected
    assert reading.figures["phase"] == phase
    assert reading.figures["tried_to_allocate"] is None
    assert reading.figures["exception"] == error.split(":", maxsplit=1)[0]


def test_torch_load_is_told_about_map_location() -> None:
    reading = first(bare, TRACE.format("torch.load(path)") + "RuntimeError: CUDA error: out of memory")
    assert "map_location" in reading.findings[0].remedies[0]


@pytest.mark.parametrize(
    "line",
    [
        "# a smaller batch avoids CUDA out of memory",
        '    if "out of memory" in str(error):',
        "        except RuntimeError: print('out of memory')",
        "Reduce num_workers if you run low on resources.",
    ],
)
def test_code_and_prose_about_memory_are_no_errors(line: str) -> None:
    assert bare.read(Paste.of(line)) == []
