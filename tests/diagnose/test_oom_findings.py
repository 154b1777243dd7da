"""The diagnosis follows from the arithmetic, whatever hint is printed, and never from a missing figure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.diagnose.oom import diagnose
from course_lib.diagnose.oom.arithmetic import arithmetic
from course_lib.diagnose.oom.message import AllocatorMessage, allocator_messages
from course_lib.diagnose.paste import Paste


def old(*sizes: str, limit: str = "") -> AllocatorMessage:
    """In the words of 1.10 to 2.0: asked for, card, allocated, free, reserved in total."""
    tried, total, allocated, free, reserved = sizes
    allowed = f"{limit} allowed; " if limit else ""
    text = (
        f"CUDA out of memory. Tried to allocate {tried} (GPU 0; {total} total capacity; {allocated} already "
        f"allocated; {free} free; {allowed}{reserved} reserved in total by PyTorch) If reserved memory is >> "
        "allocated memory try setting max_split_size_mb to avoid fragmentation."
    )
    return allocator_messages(Paste.of(text))[0]


def new(*sizes: str, more: str = "", word: str = "CUDA") -> AllocatorMessage:
    """In the words since 2.1: asked for, card, free, allocated, reserved but unallocated."""
    tried, total, free, allocated, unused = sizes
    text = (
        f"{word} out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of {total} of which "
        f"{free} is free. {more} Of the allocated memory {allocated} is allocated by PyTorch, and {unused} "
        "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    )
    return allocator_messages(Paste.of(text))[0]


CASES = [
    ("oom.capacity", old("90.00 MiB", "15.77 GiB", "14.90 GiB", "21.19 MiB", "15.02 GiB")),
    ("oom.capacity", old("1.50 GiB", "15.77 GiB", "13.10 GiB", "820.00 MiB", "14.01 GiB")),
    ("oom.fragmentation", old("1.20 GiB", "23.70 GiB", "15.02 GiB", "300.00 MiB", "22.60 GiB")),
    ("oom.fragmentation", new("2.00 GiB", "79.10 GiB", "512.00 MiB", "60.00 GiB", "17.50 GiB")),
    (
        "oom.capacity_with_some_fragmentation",
        old("128.00 MiB", "5.80 GiB", "4.50 GiB", "6.00 MiB", "5.05 GiB"),
    ),
    ("oom.single_request_too_large", old("37.25 GiB", "23.69 GiB", "192.00 MiB", "21.00 GiB", "2.00 GiB")),
    (
        "oom.single_request_too_large",
        new("60.00 GiB", "79.10 GiB", "61.00 GiB", "16.00 GiB", "100.00 MiB"),
    ),
    ("oom.other_process", old("20.00 MiB", "10.76 GiB", "0 bytes", "9.44 MiB", "0 bytes")),
    (
        "oom.other_process",
        new(
            "512.00 MiB",
            "79.10 GiB",
            "100.00 MiB",
            "3.00 GiB",
            "50.00 MiB",
            more="Process 4242 has 75.10 GiB memory in use. Including non-PyTorch memory, this process has "
            "3.80 GiB memory in use.",
        ),
    ),
    (
        "oom.capacity_plus_outside_use",
        new(
            "512.00 MiB",
            "23.65 GiB",
            "100.00 MiB",
            "15.00 GiB",
            "200.00 MiB",
            more="Process 77 has 7.40 GiB memory in use. Including non-PyTorch memory, this process has "
            "16.10 GiB memory in use.",
        ),
    ),
    (
        "oom.process_limit",
        old("3.10 GiB", "23.69 GiB", "512.00 KiB", "22.00 GiB", "2.00 MiB", limit="2.37 GiB"),
    ),
    (
        "oom.process_limit",
        new(
            "250.00 MiB",
            "79.19 GiB",
            "2.07 GiB",
            "74.23 GiB",
            "943.54 MiB",
            more="Including non-PyTorch memory, this process has 77.11 GiB memory in use. 75.23 GiB allowed;",
        ),
    ),
    (
        "oom.contradictory_free_exceeds_request",
        old("20.00 MiB", "7.92 GiB", "1.10 GiB", "5.90 GiB", "1.20 GiB"),
    ),
    (
        "oom.contradictory_free_exceeds_total",
        new("16.00 GiB", "15.00 GiB", "80.00 GiB", "1.00 GiB", "1.00 GiB", word="HIP"),
    ),
    (
        "oom.contradictory_allocated_exceeds_total",
        new("174.00 MiB", "6.00 GiB", "0 bytes", "12.15 GiB", "319.03 MiB"),
    ),
    (
        "oom.unified_memory_shared_with_host",
        new("1.00 GiB", "96.00 GiB", "500.00 MiB", "40.00 GiB", "100.00 MiB", word="HIP"),
    ),
    ("oom.other_process", new("76.00 MiB", "191.98 GiB", "0 bytes", "8.00 GiB", "2.00 MiB", word="HIP")),
    (
        "ddp.every_rank_has_a_context_on_gpu0",
        new(
            "64.00 MiB",
            "39.39 GiB",
            "20.00 MiB",
            "35.00 GiB",
            "300.00 MiB",
            more=" ".join(f"Process {pid} has 1.0{pid % 3} GiB memory in use." for pid in range(301, 304)),
        ),
    ),
    ("shape_overflow", new("1044902.00 GiB", "31.89 GiB", "30.00 GiB", "1.00 GiB", "0 bytes", word="XPU")),
]


@pytest.mark.parametrize(("expected", "message"), CASES)
def test_diagnosis(expected: str, message: AllocatorMessage) -> None:
    finding = diagnose(message)
    assert finding.id == expected
    assert finding.remedies
    assert finding.not_helpful
    assert finding.evidence


def test_in_a_container_the_named_process_is_this_one() -> None:
    """Without "this process has", a named process may be this one under its number outside the container."""
    own = "Process 189021 has 22.28 GiB memory in use."
    message = new("2.00 GiB", "22.30 GiB", "16.00 MiB", "20.94 GiB", "900.00 MiB", more=own)
    sums = arithmetic(message)
    assert sums.other_processes_count is None
    assert sums.other_processes_mib == pytest.approx(4.5, abs=0.1)
    assert diagnose(message).id == "oom.capacity"
    both = "Process 2109 has 344.00 MiB memory in use. Process 1448259 has 21.07 GiB memory in use."
    sums = arithmetic(new("300.00 MiB", "21.67 GiB", "255.75 MiB", "20.08 GiB", "56.49 MiB", more=both))
    assert sums.other_processes_total_mib == 344
    stranger = "Process 77 has 20.00 GiB memory in use."
    message = new("2.00 GiB", "22.30 GiB", "16.00 MiB", "1.80 GiB", "100.00 MiB", more=stranger)
    assert arithmetic(message).other_processes_total_mib == 20 * 1024
    assert diagnose(message).id == "oom.other_process"


def test_a_card_that_is_not_accounted_for_is_not_called_full_of_tensors() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 191.69 GiB of which "
        "0 bytes is free. 50.00 GiB allowed; Of the allocated memory 9.58 GiB is allocated by PyTorch"
    )
    assert diagnose(allocator_messages(Paste.of(text))[0]).id == "oom.figures_missing"


XPU = (
    "XPU out of memory. Tried to allocate {}. GPU 0 has a total capacity of 15.60 GiB. Of the allocated "
    "memory {} is allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("sizes", "expected", "word"),
    [
        (("4.00 GiB", "1.00 GiB", "0 bytes"), "oom.single_request_too_large", "smaller than 4 GiB"),
        (("5.00 GiB", "0 bytes", "0 bytes"), "oom.single_request_too_large", "smaller than 4 GiB"),
        (("500.00 MiB", "1.00 GiB", "10.00 MiB"), "oom.other_process", "xpu-smi"),
        (("4.00 GiB", "11.00 GiB", "400.00 MiB"), "oom.capacity", "batch"),
    ],
)
def test_without_the_free_figure_a_card_is_not_called_full_of_little(
    sizes: tuple[str, str, str], expected: str, word: str
) -> None:
    finding = diagnose(allocator_messages(Paste.of(XPU.format(*sizes)))[0])
    assert finding.id == expected
    assert word in str(finding.first_remedy)
    assert (finding.certainty == "certain") == (expected == "oom.capacity")


def test_a_card_of_no_size_is_no_card() -> None:
    message = old("1.00 GiB", "0 bytes", "1.00 GiB", "0 bytes", "1.00 GiB")
    assert message.mib("total_capacity") is None
    assert diagnose(message).id == "oom.figures_missing"


def test_settings_of_the_allocator_are_advised_only_for_fragmentation() -> None:
    for identifier, message in CASES:
        advised = any(
            "expandable_segments" in remedy or "max_split_size_mb" in remedy
            for remedy in diagnose(message).remedies
        )
        assert advised == ("fragmentation" in identifier), identifier


def test_no_remedy_is_empty_cache_and_hip_is_not_sent_to_nvidia_smi() -> None:
    for _, message in CASES:
        told = " ".join(diagnose(message).remedies)
        assert "empty_cache" not in told
        if message.backend == "hip":
            assert "nvidia-smi" not in told


def test_slack_below_a_twentieth_of_the_card_is_no_fragmentation() -> None:
    small = old("22.00 MiB", "23.65 GiB", "22.90 GiB", "11.06 MiB", "23.10 GiB")
    assert arithmetic(small).would_fit_if_all_slack_were_contiguous
    assert diagnose(small).id == "oom.capacity"


@pytest.mark.parametrize(
    ("reserved", "identifier"),
    [("5.98 GiB", "oom.capacity_with_some_fragmentation"), ("5.60 GiB", "oom.capacity")],
)
def test_a_context_and_a_desktop_on_a_small_card_are_not_called_somebody_else(
    reserved: str, identifier: str
) -> None:
    """Some 2 GiB that nobody is named for: the context and the screen come before a stranger."""
    finding = diagnose(old("256.00 MiB", "7.79 GiB", "5.40 GiB", "45.00 MiB", reserved))
    assert finding.id == identifier
    assert finding.why.index("context and libraries of this process") < finding.why.index("another process")
    assert "rank" not in str(finding)


@pytest.mark.parametrize("card", ["7.79 GiB", "15.77 GiB", "31.75 GiB"])
def test_what_is_only_left_over_is_at_most_likely(card: str) -> None:
    """Without a clause about a process, who holds the rest is a guess, however large the rest is."""
    gib = float(card.split(maxsplit=1)[0])
    for rest in (0.5, 1.8, 3.5, 0.6 * gib, 0.9 * gib):
        held = gib - rest - 0.05
        if held > 0:
            finding = diagnose(old("1.00 GiB", card, f"{held:.2f} GiB", "50.00 MiB", f"{held:.2f} GiB"))
            blames = finding.id in ("oom.other_process", "oom.capacity_plus_outside_use")
            assert blames == (rest > 2.5)
            assert finding.certainty == ("likely" if blames else "certain")


def test_the_old_word_cached_is_slack_and_not_the_total() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 11.00 GiB total capacity; 5.60 GiB already "
        "allocated; 500.00 MiB free; 4.40 GiB cached)"
    )
    message = allocator_messages(Paste.of(text))[0]
    sums = arithmetic(message)
    assert sums.reserved_total_mib == pytest.approx(10 * 1024)
    assert diagnose(message).id == "oom.fragmentation"


def test_contradicting_figures_give_no_differences() -> None:
    for identifier, message in CASES:
        if identifier.startswith("oom.contradictory_free_exceeds_total"):
            assert arithmetic(message).outside_mib is None
            assert "other process" not in diagnose(message).why


def test_missing_figures_lead_to_no_cause() -> None:
    cut = allocator_messages(Paste.of("CUDA out of memory. Tried to allocate 2.00 GiB"))[0]
    assert diagnose(cut).id == "oom.figures_missing"
    sums = arithmetic(cut).to_json()
    assert not any(value for value in sums.values())


def test_a_limit_is_named_although_much_is_free() -> None:
    finding = diagnose(old("3.10 GiB", "23.69 GiB", "1.00 GiB", "20.00 GiB", "1.10 GiB", limit="2.37 GiB"))
    assert finding.id == "oom.process_limit"
    assert "set_per_process_memory_fraction" in finding.remedies[0]


def test_a_limit_is_not_what_stops_a_request_beyond_the_card() -> None:
    finding = diagnose(old("24.00 GiB", "8.00 GiB", "200.00 MiB", "6.70 GiB", "220.00 MiB", limit="6.80 GiB"))
    assert finding.id == "oom.single_request_too_large"


def test_memory_that_graphs_hold_is_freed_by_fewer_graphs() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 47.53 GiB of which "
        "1.00 MiB "
        "is free. Of the allocated memory 46.90 GiB is allocated by PyTorch, with {} allocated in private "
        "pools "
        "(e.g., CUDA Graphs), and 150.00 MiB is reserved by PyTorch but unallocated."
    )
    many, few = (
        diagnose(allocator_messages(Paste.of(text.format(size)))[0]) for size in ("44.00 GiB", "1.00 GiB")
    )
    assert many.id == few.id == "oom.capacity"
    assert "CUDA graphs" in str(many.first_remedy)
    assert "batch" in str(few.first_remedy)


_GIB = st.floats(0.01, 300).map(lambda gib: f"{gib:.2f} GiB")


@given(_GIB, _GIB, _GIB, _GIB, _GIB)
def test_any_figures_get_a_diagnosis_that_agrees_with_them(
    tried: str, total: str, allocated: str, free: str, reserved: str
) -> None:
    message = old(tried, total, allocated, free, reserved)
    sums = arithmetic(message)
    finding = diagnose(message)
    assert finding.first_remedy
    if finding.id == "oom.fragmentation":
        slack = sums.reserved_unallocated_mib
        assert slack is not None
        assert slack >= (message.mib("tried_to_allocate") or 0)
        assert slack >= 1024
    if finding.id in ("oom.other_process", "oom.capacity_plus_outside_use"):
        assert (sums.outside_mib or 0) >= 1024
        assert finding.certainty == "likely"
    if (message.mib("free") or 0) > 1.02 * (
        message.mib("total_capacity") or 0
    ) and finding.id != "shape_overflow":
        assert finding.id == "oom.contradictory_free_exceeds_total"
