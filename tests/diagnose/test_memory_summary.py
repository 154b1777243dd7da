"""Tables and statistics of every release, whole and damaged, and what they say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.diagnose.memory_growth import memory_series, over_summaries
from course_lib.diagnose.memory_growth import read as read_growth
from course_lib.diagnose.memory_summary import MemorySummary, memory_summaries
from course_lib.diagnose.memory_verdict import diagnose
from course_lib.diagnose.paste import Paste

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def one(text: str) -> MemorySummary:
    found = memory_summaries(Paste.of(text))
    assert len(found) == 1
    return found[0]


def test_a_table_in_megabytes() -> None:
    summary = one(sample("summary_112.txt"))
    figures = summary.figures()
    assert (summary.device, summary.ooms, summary.retries) == (3, 2, 5)
    assert figures["allocated_cur_mib"] == 9871
    assert figures["allocated_peak_mib"] == 10240
    assert figures["allocated_small_pool_cur_mib"] == 71
    assert figures["non_releasable_cur_mib"] == 533.0
    assert figures["tot_alloc"] == {"raw": "5120 GB", "mib": 5120 * 1024}
    assert figures["allocations_tot_alloc"] == 901_000
    assert not figures["truncated"]
    assert figures["as_printed_by_torch"]
    assert diagnose(summary).id == "oom.capacity"


def test_a_summary_prints_what_it_knows() -> None:
    text = str(one(sample("summary_112.txt")))
    assert "allocated peak: 10.00 GiB" in text
    assert "retries: 5" in text
    assert "not in the text" in str(one("allocated_bytes.all.current: 1048576, allocated_bytes.all.peak: 2"))


def test_a_table_behind_a_prefix_on_every_line() -> None:
    summary = one(sample("summary_fragmented.txt"))
    assert summary.mib["reserved_cur"] == 22840
    assert diagnose(summary).id == "oom.fragmentation"


def test_a_cut_table_says_so_and_invents_nothing() -> None:
    text = sample("summary_112.txt")
    cut = text[: text.index("| Active memory")]
    summary = one(cut)
    assert summary.truncated
    assert "reserved_cur" not in summary.mib
    assert summary.figures()["device"] == 3
    assert diagnose(one("PyTorch CUDA memory summary, device ID 1\n|====")).id == "memory.figures_missing"


def test_a_damaged_unit_is_no_size() -> None:
    summary = one(sample("summary_112.txt").replace("9871 MB", "9871 iB"))
    assert "allocated_cur" not in summary.mib
    assert summary.mib["allocated_peak"] == 10240


def test_rows_without_their_head() -> None:
    text = sample("summary_112.txt")
    summary = one(text[text.index("| Allocated memory") :])
    assert summary.device is None
    assert summary.ooms is None
    assert summary.mib["reserved_peak"] == 10404


def test_statistics_as_dict_list_json_and_lines() -> None:
    as_dict = one(sample("stats_dict.txt"))
    figures = as_dict.figures()
    assert figures["num_alloc_retries"] == 4
    assert figures["reserved_cur_mib"] == 8704.0
    assert figures["inactive_split_cur_mib"] == 100.0
    assert "cuda_ooms" not in figures
    forms = (
        "OrderedDict([('allocated_bytes.all.current', 1048576), ('allocated_bytes.all.peak', 2097152)])",
        '{"allocated_bytes.all.current": 1048576, "allocated_bytes.all.peak": 2097152}',
        "allocated_bytes.all.current: 1048576\nallocated_bytes.all.peak: 2097152",
        "('allocated_bytes.all.cur\nrent', 1048576), ('allocated_bytes.all.peak', 20\n97152)",
    )
    for form in forms:
        assert dict(one(form).mib) == {"allocated_cur": 1.0, "allocated_peak": 2.0}


def summary(
    allocated: float, peak: float, reserved: float, stuck: float = 0.0, *, ooms: int = 0, retries: int = 0
) -> MemorySummary:
    return MemorySummary(
        form="table",
        device=0,
        ooms=ooms,
        retries=retries,
        mib={
            "allocated_cur": allocated,
            "allocated_peak": peak,
            "allocated_freed": 500.0,
            "reserved_cur": reserved,
            "reserved_peak": max(reserved, peak),
            "non_releasable_cur": stuck,
        },
        counts={},
        first_line=1,
        last_line=9,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (summary(9000, 10000, 10400), "memory.healthy"),
        (summary(9000, 10000, 22000, 12000, ooms=1), "oom.fragmentation"),
        (summary(9000, 10000, 22000, 12000), "memory.fragmented"),
        (summary(2000, 21000, 22000, 300), "memory.cached"),
        (summary(9000, 10000, 10400, retries=3), "memory.under_pressure"),
        (summary(9900, 10000, 10400, ooms=1), "oom.capacity"),
        (summary(20, 9000, 64, retries=2), "leak_outside_pytorch_allocator"),
        (summary(20, 9000, 64), "memory.given_back"),
        (summary(0, 0, 0), "memory.healthy"),  # zeros with a history: no division, nothing about slack
    ],
)
def test_verdicts(given: MemorySummary, expected: str) -> None:
    assert diagnose(given).id == expected


def test_a_table_that_is_cut_before_the_gaps() -> None:
    """With an error counted, what even the peak did not use was in pieces: else it had been given back."""
    cut = replace(
        summary(1000, 5000, 12000, ooms=1),
        mib={
            "allocated_cur": 1000.0,
            "allocated_peak": 5000.0,
            "reserved_cur": 12000.0,
            "reserved_peak": 12000.0,
        },
    )
    finding = diagnose(cut)
    assert (finding.id, finding.certainty) == ("oom.fragmentation", "likely")
    assert "cut off" in finding.why
    later = diagnose(replace(cut, mib={**cut.mib, "allocated_peak": 11900.0}))
    assert later.id == "oom.capacity"
    assert "little of it is gaps" not in later.why
    assert diagnose(replace(cut, ooms=0)).id == "memory.cached"


def test_a_table_on_one_line_of_a_log_in_json() -> None:
    plain = sample("summary_112.txt")
    text = 'started\n{"error": ' + json.dumps(plain) + "}\n"
    (inner,) = memory_summaries(Paste.of(text))
    assert (inner.first_line, inner.last_line) == (2, 2)
    assert replace(inner, first_line=1, last_line=1) == replace(one(plain), first_line=1, last_line=1)


def test_sums_over_a_life_are_never_a_size() -> None:
    finding = diagnose(one(sample("summary_112.txt")))
    assert "5120" not in finding.why
    assert any("Tot Alloc" in advice for advice in finding.not_helpful)


def test_a_leak_over_several_tables() -> None:
    growing = [summary(4000 + 700 * i, 9000, 9000) for i in range(4)]
    found = over_summaries(growing)
    assert found is not None
    assert found.id == "oom.leak_over_steps"
    assert over_summaries(growing[:2]) is None
    assert over_summaries([summary(4000, 9000, 9000) for _ in range(4)]) is None


def test_a_leak_in_a_log() -> None:
    readings = read_growth(Paste.of(sample("leak_log.txt")))
    assert [r.findings[0].id for r in readings] == ["oom.leak_over_steps"]
    assert readings[0].figures["mib"][0] == 4120


@pytest.mark.parametrize(
    "values",
    [
        [4000, 8000, 8000, 8000, 8000, 8000, 8000, 8000],  # the first step, then level
        [4000, 4100, 4000, 4100, 4050, 4000],
        [4000, 5000, 6000],  # too few
        [4000, 4001, 4002, 4003, 4004, 4005, 4006],  # too little
    ],
)
def test_no_leak(values: list[int]) -> None:
    log = "\n".join(f"step {i} loss 1.0 memory: {value} MiB" for i, value in enumerate(values))
    series = memory_series(Paste.of(log))
    assert [s.mib for s in series] == [tuple(map(float, values))]
    assert not series[0].grows


def test_a_running_peak_counts_for_less() -> None:
    log = "\n".join(f"Epoch: [0]  [{i * 20}/900]  loss: 2.1  max mem: {8000 + 900 * i}" for i in range(8))
    found = read_growth(Paste.of(log))[0].findings[0]
    assert found.certainty == "possible"
    assert "can only rise" in found.why
