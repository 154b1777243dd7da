"""Every era's wording gives its figures, broken by a terminal or not, and no figure is invented."""

import textwrap
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.diagnose.oom.message import AllocatorMessage, allocator_messages
from course_lib.diagnose.paste import Paste

V10 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.95 GiB (GPU 2; 15.78 GiB total capacity; "
    "9.11 GiB already allocated; 1.02 GiB free; 4.83 GiB cached)"
)
V14 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 58.00 MiB (GPU 0; 7.80 GiB total capacity; 6.31 "
    "GiB already allocated; 31.44 MiB free; 6.55 GiB reserved in total by PyTorch) (malloc at "
    "/pytorch/c10/cuda/x.cpp:289)"
)
V18_LIMIT = (
    "RuntimeError: CUDA out of memory. Tried to allocate 3.10 GiB (GPU 0; 23.69 GiB total capacity; 512.00 "
    "KiB already allocated; 22.00 GiB free; 2.37 GiB allowed; 2.00 MiB reserved in total by PyTorch)"
)
V113 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB (GPU 1; 10.75 GiB total "
    "capacity; 8.02 GiB already allocated; 0 bytes free; 9.40 GiB reserved in total by PyTorch) If reserved "
    "memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation "
    "for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
V21 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total "
    "capacty of 14.75 GiB of which 57.06 MiB is free. Process 2114 has 14.69 GiB memory in use. Of the "
    "allocated memory 13.51 GiB is allocated by PyTorch, and 203.10 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid "
    "fragmentation."
)
V25_GRAPHS = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 3 has a total "
    "capacity of 79.10 GiB of which 1.61 GiB is free. Including non-PyTorch memory, this process has 77.45 "
    "GiB memory in use. 70.00 GiB allowed; Of the allocated memory 66.02 GiB is allocated by PyTorch, with "
    "310.00 MiB allocated in private pools (e.g., CUDA Graphs), and 3.30 GiB is reserved by PyTorch but "
    "unallocated."
)
HIP = (
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 26.00 MiB. GPU 1 has a total capacity of "
    "63.98 GiB of which 12.00 MiB is free. Of the allocated memory 60.11 GiB is allocated by PyTorch, and "
    "801.00 MiB is reserved by PyTorch but unallocated."
)
IPEX = (
    "RuntimeError: XPU out of memory. Tried to allocate 1.20 GiB (GPU 0; 15.91 GiB total capacity; 14.03 "
    "GiB already allocated; 15.02 GiB reserved in total by PyTorch)"
)
NPU = (
    "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 4; 60.97 GiB total capacity; 56.01 "
    "GiB already allocated; 56.01 GiB current active; 1.10 GiB free; 57.20 GiB reserved in total by PyTorch)"
)


ASYNC = (
    "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\n"
    "Currently allocated     : 6.12 GiB\nRequested               : 90.00 MiB\nDevice limit            : "
    "7.78 GiB\nFree (according to CUDA): 22.31 MiB\nPyTorch limit (set by user-supplied memory fraction)\n"
    "                        : 17179869184.00 GiB"
)
BLOCK = (
    "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried to "
    "allocate 5.10 GiB (GPU  0; 15.88 GiB total capacity; 2.00 GiB already allocated; 2.50 GiB reserved in "
    "total by PyTorch)"
)


def test_the_list_of_the_asynchronous_allocator() -> None:
    message = one(ASYNC)
    sizes = ("allocated", "tried_to_allocate", "total_capacity", "free")
    assert [str(getattr(message, name)) for name in sizes] == [
        "6.12 GiB",
        "90.00 MiB",
        "7.78 GiB",
        "22.31 MiB",
    ]
    assert (message.gpu_index, message.reserved_total, message.mib("allowed")) == (1, None, None)
    limited = one(ASYNC.replace("17179869184.00 GiB", "6.20 GiB"))
    assert limited.mib("allowed") == pytest.approx(6.2 * 1024)


def test_a_limit_of_one_block_is_read_with_its_figures() -> None:
    message = one(BLOCK)
    assert (message.backend, message.block_limit, message.gpu_index) == ("xpu", "4GB", 0)
    assert str(message.tried_to_allocate) == "5.10 GiB"
    assert str(message.reserved_total) == "2.50 GiB"
    assert message.exception == "RuntimeError"


@pytest.mark.parametrize("text", [V21, V25_GRAPHS])
@pytest.mark.parametrize("width", [70, 90, 131])
def test_a_message_kept_in_a_comment(text: str, width: int) -> None:
    lines = textwrap.wrap(text, width)
    comment = one("x = 1\n" + "\n".join(f"# {line}" for line in lines))
    assert comment.first_line == 2
    assert comment.last_line <= 1 + len(lines)
    assert replace(comment, first_line=1, last_line=1) == replace(one(text), first_line=1, last_line=1)


@pytest.mark.parametrize("text", [V14, V113, V21, HIP])
def test_the_first_words_may_be_missing(text: str) -> None:
    whole, cut = one(text), one(text[text.index("Tried to") :])
    for name in ("gpu_index", "tried_to_allocate", "total_capacity", "free", "allocated", "reserved_total"):
        assert getattr(cut, name) == getattr(whole, name)
    assert (cut.backend, cut.exception) == ("cuda", None)
    assert (
        one(
            "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB. PYTORCH_HIP_ALLOC_CONF"
        ).backend
        == "hip"
    )
    assert allocator_messages(Paste.of("We tried to allocate 2 GiB for it. GPU 0 was free.")) == []


def one(text: str) -> AllocatorMessage:
    messages = allocator_messages(Paste.of(text))
    assert len(messages) == 1
    return messages[0]


def sizes(message: AllocatorMessage) -> dict[str, str]:
    names = [
        "tried_to_allocate",
        "total_capacity",
        "free",
        "allocated",
        "cached_unused",
        "reserved_total",
        "reserved_unallocated",
        "process_in_use",
        "allowed",
        "private_pools",
    ]
    return {name: str(size) for name in names if (size := getattr(message, name)) is not None}


ERAS = [
    (
        V10,
        "cuda",
        2,
        {
            "tried_to_allocate": "1.95 GiB",
            "total_capacity": "15.78 GiB",
            "allocated": "9.11 GiB",
            "free": "1.02 GiB",
            "cached_unused": "4.83 GiB",
        },
    ),
    (
        V14,
        "cuda",
        0,
        {
            "tried_to_allocate": "58.00 MiB",
            "total_capacity": "7.80 GiB",
            "allocated": "6.31 GiB",
            "free": "31.44 MiB",
            "reserved_total": "6.55 GiB",
        },
    ),
    (
        V18_LIMIT,
        "cuda",
        0,
        {
            "tried_to_allocate": "3.10 GiB",
            "total_capacity": "23.69 GiB",
            "allocated": "512.00 KiB",
            "free": "22.00 GiB",
            "allowed": "2.37 GiB",
            "reserved_total": "2.00 MiB",
        },
    ),
    (
        V113,
        "cuda",
        1,
        {
            "tried_to_allocate": "640.00 MiB",
            "total_capacity": "10.75 GiB",
            "allocated": "8.02 GiB",
            "free": "0 bytes",
            "reserved_total": "9.40 GiB",
        },
    ),
    (
        V21,
        "cuda",
        0,
        {
            "tried_to_allocate": "90.00 MiB",
            "total_capacity": "14.75 GiB",
            "free": "57.06 MiB",
            "allocated": "13.51 GiB",
            "reserved_unallocated": "203.10 MiB",
        },
    ),
    (
        V25_GRAPHS,
        "cuda",
        3,
        {
            "tried_to_allocate": "2.25 GiB",
            "total_capacity": "79.10 GiB",
            "free": "1.61 GiB",
            "process_in_use": "77.45 GiB",
            "allowed": "70.00 GiB",
            "allocated": "66.02 GiB",
            "private_pools": "310.00 MiB",
            "reserved_unallocated": "3.30 GiB",
        },
    ),
    (
        HIP,
        "hip",
        1,
        {
            "tried_to_allocate": "26.00 MiB",
            "total_capacity": "63.98 GiB",
            "free": "12.00 MiB",
            "allocated": "60.11 GiB",
            "reserved_unallocated": "801.00 MiB",
        },
    ),
    (
        IPEX,
        "xpu",
        0,
        {
            "tried_to_allocate": "1.20 GiB",
            "total_capacity": "15.91 GiB",
            "allocated": "14.03 GiB",
            "reserved_total": "15.02 GiB",
        },
    ),
    (
        NPU,
        "npu",
        4,
        {
            "tried_to_allocate": "2.00 GiB",
            "total_capacity": "60.97 GiB",
            "allocated": "56.01 GiB",
            "free": "1.10 GiB",
            "reserved_total": "57.20 GiB",
        },
    ),
]


@pytest.mark.parametrize(("text", "backend", "gpu", "expected"), ERAS)
def test_each_era(text: str, backend: str, gpu: int, expected: dict[str, str]) -> None:
    message = one(text)
    assert (message.backend, message.gpu_index) == (backend, gpu)
    assert sizes(message) == expected
    assert message.fragmentation_hint_printed == ("If reserved" in text)


@pytest.mark.parametrize(("text", "backend", "gpu", "expected"), ERAS)
@pytest.mark.parametrize("width", [3, 7, 40, 77])
def test_each_era_wrapped_anywhere(
    text: str, backend: str, gpu: int, expected: dict[str, str], width: int
) -> None:
    wrapped = "   \n  ".join(text[i : i + width] for i in range(0, len(text), width))
    message = one(wrapped)
    assert (message.backend, message.gpu_index) == (backend, gpu)
    assert sizes(message) == expected


def test_other_processes_rank_and_exception() -> None:
    message = one(V21)
    assert [(p.pid, p.in_use.raw) for p in message.other_processes] == [(2114, "14.69 GiB")]
    assert message.exception == "torch.cuda.OutOfMemoryError"
    assert one(V25_GRAPHS).rank == 3
    assert one("OOM: CUDA out of memory. Tried to allocate 2.00 GiB").exception is None


def test_the_same_event_printed_twice_counts_once() -> None:
    text = f"{V14}\nERROR | trainer | {V14.removeprefix('RuntimeError: ')}"
    message = one(text)
    assert message.times == 2
    assert message.exception == "RuntimeError"
    assert len(allocator_messages(Paste.of(V14 + "\n" + V14.replace("GPU 0", "GPU 1")))) == 2


def test_more_than_one_exabyte() -> None:
    message = one("CUDA out of memory. Tried to allocate more than 1EB memory.")
    assert message.tried_to_allocate is None
    assert message.tried_lower_bound == "1 EB"


def test_a_size_that_means_not_reported_is_kept_and_not_used() -> None:
    message = one(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.99 GiB of which "
        "7.72 GiB is free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use."
    )
    assert str(message.process_in_use) == "17179869184.00 GiB"
    assert message.mib("process_in_use") is None


def test_a_cut_message_gives_what_it_has() -> None:
    message = one(V21[: V21.index("Of the allocated") + 30])
    assert message.allocated is None
    assert str(message.free) == "57.06 MiB"
    assert message.reserved_unallocated is None


def test_figures_of_another_text_are_not_taken() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB\n"
        + "loss goes down nicely\n" * 50
        + "; 3.00 GiB free"
    )
    assert one(text).free is None


@given(st.integers(0, 2000), st.sampled_from([V10, V113, V21, V25_GRAPHS]))
def test_any_beginning_is_read_without_inventing(length: int, text: str) -> None:
    for message in allocator_messages(Paste.of(text[:length])):
        for raw in sizes(message).values():
            assert raw in text
