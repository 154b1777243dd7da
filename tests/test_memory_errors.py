"""Every wording of missing memory is recognised with its owner, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.memory_errors import find_out_of_memory, is_out_of_memory, out_of_memory

PLAIN = [
    ("cuda", "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; ..."),
    ("cuda", "OOM: Ran out of memory with exception: CUD\nA out of memory. Tried to allocate 3 GiB"),
    ("cuda", "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    ("cuda", "CUDA driver error: out of memory"),
    ("cuda", "cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58"),
    ("cuda", "cuda runtime error (2): out of memory"),
    ("cuda", "failed to allocate 3.2G: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ("hip", "HIP out of memory. Tried to allocate 26.00 MiB"),
    ("hip", "HIP error: out of memory"),
    ("hip", "hipErrorOutOfMemory: out of memory"),
    ("xpu", "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 13.74 GiB."),
    ("xpu", "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    ("xpu", "Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)"),
    (
        "mps",
        "MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 1 GiB, max allowed: 9 GiB)",
    ),
    ("mps", "Invalid buffer size: 24.00 GB"),
    ("npu", "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)"),
    (
        "host",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried",
    ),
    ("host", "DefaultCPUAllocator: not enough memory: you tried to allocate 2361600 bytes."),
    ("host", "$ Torch: not enough memory: you tried to allocate 4GB. Buy new RAM!"),
    ("host", "Unable to allocate 7.45 GiB for an array with shape (1000, 1000, 1000) and data type float64"),
    ("host", "[Errno 12] Cannot allocate memory"),
    ("host", "OSError: [WinError 1455] Die Auslagerungsdatei ist zu klein"),
    ("host", "Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB"),
    ("host", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch."),
    ("unknown", "torch.OutOfMemoryError: Allocation on device"),
    (
        "cuda",
        'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1154, please',
    ),
    ("unknown", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1099511627776 bytes."),
]
MASKED = [
    ("cublas", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("cublas", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    ("cudnn", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    ("cudnn", "Unable to find a valid cuDNN algorithm to run convolution"),
    (
        "nccl",
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
    ),
    ("nccl", "NCCL WARN Cuda failure 'out of memory'"),
]
OTHERS = [
    "",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "CUDA error: invalid device ordinal",
    "DataLoader worker (pid 1) is killed by signal: Bus error. It is possible that dataloader's workers are "
    "out of shared memory.",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 65544, Hardware limit: "
    "49152",
    "[Errno 28] No space left on device",
    "mat1 and mat2 shapes cannot be multiplied (64x10 and 20x5)",
    "the memory format option is only supported by strided tensors",
    "[Errno 122] Disk quota exceeded",
]


@pytest.mark.parametrize(("owner", "text"), PLAIN)
def test_plain_wordings(owner: str, text: str) -> None:
    found = find_out_of_memory(text)
    assert found is not None
    assert (found.owner, found.masked) == (owner, None)
    assert is_out_of_memory(RuntimeError(text), masked=False)


@pytest.mark.parametrize(("library", "text"), MASKED)
def test_masked_wordings(library: str, text: str) -> None:
    found = find_out_of_memory(text)
    assert found is not None
    assert found.masked == library
    assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError(text), masked=False)


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors(text: str) -> None:
    assert find_out_of_memory(text) is None
    assert not is_out_of_memory(RuntimeError(text))


def test_classes_without_words() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    assert is_out_of_memory(OutOfMemoryError("no words"))
    found = out_of_memory(MemoryError())
    assert found is not None
    assert found.owner == "host"
    assert is_out_of_memory(OSError(12, "a word in another language"))
    assert not is_out_of_memory(OSError(13, "Permission denied"))


def test_a_cause_counts_and_a_context_does_not() -> None:
    raised = RuntimeError("the step failed")
    raised.__cause__ = RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB")
    found = out_of_memory(raised)
    assert found is not None
    assert found.owner == "hip"
    while_handling = KeyError("lr")
    while_handling.__context__ = RuntimeError("CUDA out of memory.")
    assert not is_out_of_memory(while_handling)


def test_a_circle_of_causes_ends() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert out_of_memory(one) is None


def test_a_real_refusal_of_host_memory() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(2**58, dtype=torch.uint8)
    found = out_of_memory(caught.value)
    assert found is not None
    assert found.owner == "host"
    with pytest.raises(MemoryError) as python_caught:
        bytearray(2**62)
    assert is_out_of_memory(python_caught.value)


@given(st.text(max_size=2000))
def test_any_text_is_answered(text: str) -> None:
    found = find_out_of_memory(text)
    assert found is None or found.text
