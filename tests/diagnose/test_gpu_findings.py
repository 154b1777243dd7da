"""What one look at the cards supports, and what it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.diagnose.cards import diagnose
from course_lib.diagnose.finding import Finding
from course_lib.diagnose.gpu_status import Gpu, GpuProcess, GpuStatus, gpu_statuses
from course_lib.diagnose.recognise import explain

SAMPLES = Path(__file__).parent / "samples"


def found(name: str) -> list[Finding]:
    statuses = gpu_statuses((SAMPLES / name).read_text(encoding="utf-8"))
    return [finding for status in statuses for finding in diagnose(status)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smi_340_tesla.txt", "smi.choose_idle_gpu"),
        ("smi_535_eight_ranks.txt", "ddp.every_rank_has_a_context_on_gpu0"),
        ("smi_580_wsl.txt", "smi.memory_held_idle"),
        ("smi_container_nobody.txt", "zombie.holding_gpu"),
        ("smi_mig_a100.txt", "smi.mig"),
        ("smi_err_cells.txt", "hardware.gpu_lost"),
        ("smi_power_err.txt", "smi.sensor_error"),
        ("smi_held_idle.txt", "smi.memory_held_idle"),
        ("smi_query_throttled.txt", "hardware.thermal_throttling"),
        ("smi_query_memory_390.txt", "perf.gpu_starved"),
        ("smi_xml.txt", "smi.choose_idle_gpu"),
        ("smi_csv_reasons.txt", "hardware.thermal_throttling"),
        ("smi_csv_anonymous.txt", "smi.columns_unknown"),
        ("smi_dmon_new.txt", "smi.busy"),
        ("gpustat_two.txt", "smi.choose_idle_gpu"),
        ("topo_nvlink.txt", "topology.nvlink"),
        ("rocm_smi.txt", "smi.not_nvidia"),
        ("nvitop.txt", "smi.memory_nearly_full"),
        ("xid_memory.txt", "hardware.memory_errors"),
        ("smi_errors.txt", "smi.driver_not_running"),
        ("smi_mismatch.txt", "smi.driver_library_mismatch"),
    ],
)
def test_first_finding_of_each_sample(name: str, expected: str) -> None:
    assert found(name)[0].id == expected


def test_two_things_about_one_card() -> None:
    told = explain((SAMPLES / "smi_query_throttled.txt").read_text(encoding="utf-8")).findings
    assert [f.id for f in told] == ["hardware.thermal_throttling", "pcie.link_degraded"]


def status(*gpus: Gpu, processes: tuple[GpuProcess, ...] | None = None, **more: str) -> GpuStatus:
    return GpuStatus(source="nvidia-smi table", gpus=gpus, samples=gpus, processes=processes, **more)  # type: ignore[arg-type]


IDLE = Gpu(index=0, used_mib=300.0, total_mib=24000.0, util_percent=0.0)
BUSY = Gpu(index=1, used_mib=20000.0, total_mib=24000.0, util_percent=97.0, power_w=320.0, power_cap_w=350.0)


def test_nothing_is_said_from_missing_figures() -> None:
    for gpu in (Gpu(index=0), Gpu(index=0, total_mib=24000.0), Gpu(index=0, pstate="P0", power_w=100.0)):
        assert diagnose(status(gpu)) == []
    assert diagnose(GpuStatus(source="nvidia-smi table")) == []


def test_a_free_card_beside_a_busy_one() -> None:
    finding = diagnose(status(IDLE, BUSY))[0]
    assert finding.id == "smi.choose_idle_gpu"
    assert "CUDA_VISIBLE_DEVICES=0" in finding.remedies[0]
    assert diagnose(status(replace(IDLE, used_mib=None), BUSY)) == []  # whether it is free is not known


def test_idle_power_on_all_cards() -> None:
    bare = [Gpu(power_w=70.0 + i, power_cap_w=700.0) for i in range(4)]
    without_memory = GpuStatus(
        source="nvidia-smi csv", gpus=tuple(bare), columns=("power.draw", "power.limit")
    )
    finding = diagnose(without_memory)[0]
    assert (finding.id, finding.certainty) == ("hang.all_ranks_idle_power", "possible")
    waiting = [replace(gpu, used_mib=9000.0, total_mib=81920.0) for gpu in bare]
    spinning = [replace(gpu, util_percent=100.0, power_w=150.0) for gpu in waiting]
    finding = diagnose(status(*spinning))[0]
    assert (finding.id, finding.certainty) == ("hang.all_ranks_idle_power", "likely")
    working = [replace(gpu, util_percent=100.0, power_w=600.0) for gpu in waiting]
    assert diagnose(status(*working))[0].id == "smi.busy"


def test_one_process_on_all_cards_is_data_parallel_and_not_ranks() -> None:
    processes = tuple(GpuProcess(gpu=i, pid=5, kind="C", mib=9000.0 if i == 0 else 6000.0) for i in range(3))
    ids = [f.id for f in diagnose(status(processes=processes))]
    assert ids == ["dp.first_card_carries_more"]


def two_ranks(*, guest_mib: float | None, own_mib: float | None = 9000.0) -> tuple[GpuProcess, ...]:
    """One process on each of two cards; the second also has a context on the first."""
    return (
        GpuProcess(gpu=0, pid=5, kind="C", mib=9100.0),
        GpuProcess(gpu=0, pid=6, kind="C", mib=guest_mib),
        GpuProcess(gpu=1, pid=6, kind="C", mib=own_mib),
    )


def test_one_foreign_context_on_two_cards_is_not_data_parallel() -> None:
    (finding,) = diagnose(status(processes=two_ranks(guest_mib=420.0)))
    assert finding.id == "ddp.every_rank_has_a_context_on_gpu0"
    assert "One rank also sits on GPU 0" in finding.summary
    assert "420 MiB" in finding.why


def test_a_model_in_two_parts_beside_another_job_is_no_foreign_context() -> None:
    assert diagnose(status(processes=two_ranks(guest_mib=8000.0))) == []
    assert diagnose(status(processes=two_ranks(guest_mib=None, own_mib=None))) == []
    alone = two_ranks(guest_mib=420.0)[1:]
    assert diagnose(status(processes=alone)) == [], "nobody else is on the first card"


def test_a_starving_card_is_told_beside_memory_errors() -> None:
    low = replace(BUSY, index=0, util_percent=20.0, power_w=110.0)
    for cards in ((replace(low, ecc_uncorrected=3), BUSY), (low, replace(BUSY, ecc_uncorrected=3))):
        ids = [finding.id for finding in diagnose(status(*cards))]
        assert ids == ["hardware.memory_errors", "perf.one_gpu_starved"]
    shown = explain(
        "index, memory.used [MiB], memory.total [MiB], utilization.gpu [%], "
        "ecc.errors.uncorrected.volatile.total\n0, 20000 MiB, 24000 MiB, 20 %, 2\n1, 20000 MiB, 24000 MiB, "
        "97 %, 0"
    )
    assert [f.id for f in shown.findings] == ["hardware.memory_errors", "perf.one_gpu_starved"]
    assert "GPU 0 at 20 %" in shown.findings[1].summary


def test_busy_cards_of_unequal_power_are_told_apart() -> None:
    waits = replace(BUSY, index=0, util_percent=100.0, power_w=120.0)
    (finding,) = diagnose(status(waits, BUSY))
    assert finding.id == "smi.busy"
    assert "GPU 0 draws far less than GPU 1" in finding.why
    assert "far less" not in diagnose(status(replace(BUSY, index=0), BUSY))[0].why


def test_model_parallel_processes_are_not_ranks_on_a_foreign_card() -> None:
    processes = tuple(GpuProcess(gpu=g, pid=p, kind="C", mib=900.0) for p in (5, 6) for g in (0, 1, 2, 3))
    assert diagnose(status(processes=processes)) == []


def test_a_desktop_is_no_job() -> None:
    desktop = (GpuProcess(gpu=0, pid=9, kind="G", name="Xorg", mib=200.0),)
    finding = diagnose(status(replace(IDLE, util_percent=13.0), processes=desktop))[0]
    assert finding.id == "smi.idle_desktop"
    assert finding.severity == "note"


def test_power_cap_at_full_work_and_rest_are_no_throttling() -> None:
    for reasons in (("sw_power_cap",), ("gpu_idle",), ()):
        ids = [f.id for f in diagnose(status(replace(BUSY, throttle_reasons=reasons)))]
        assert not any(i.startswith("hardware.") for i in ids)
    braked = replace(BUSY, throttle_reasons=("hw_power_brake_slowdown",))
    assert diagnose(status(braked))[0].id == "hardware.power_brake"


def test_a_lower_generation_at_rest_is_no_fault() -> None:
    resting = replace(IDLE, pcie_generation=1, pcie_generation_max=4, pcie_width=16, pcie_width_max=16)
    assert "pcie.link_degraded" not in [f.id for f in diagnose(status(resting))]
    working = replace(resting, util_percent=95.0, used_mib=20000.0)
    assert "pcie.link_degraded" in [f.id for f in diagnose(status(working))]


def test_unreadable_memory_with_equal_versions_is_unified_memory() -> None:
    gpu = Gpu(index=0, util_percent=3.0, temp_c=40.0)
    same = status(gpu, smi_version="580.1", driver_version="580.1")
    assert diagnose(same)[0].id == "smi.unified_memory"
    other = status(gpu, smi_version="512.15", driver_version="460.89")
    assert diagnose(other)[0].id == "smi.tool_driver_mismatch"


def test_a_lone_moment_is_only_possible() -> None:
    low = Gpu(index=0, used_mib=20000.0, total_mib=24000.0, util_percent=20.0)
    finding = diagnose(status(low))[0]
    assert (finding.id, finding.severity, finding.certainty) == ("perf.gpu_starved", "warning", "possible")


@pytest.mark.parametrize(
    ("xid", "expected"),
    [
        (79, "hardware.gpu_lost"),
        (31, "program.gpu_fault"),
        (48, "hardware.memory_errors"),
        (74, "hardware.nvlink_error"),
        (999, "hardware.xid"),
    ],
)
def test_xid_numbers(xid: int, expected: str) -> None:
    (read,) = gpu_statuses(f"[1.5] NVRM: Xid (PCI:0000:3b:00): {xid}, pid='<unknown>', name=<unknown>")
    assert read.pci_bus_id == "0000:3b:00"
    assert diagnose(read)[0].id == expected
