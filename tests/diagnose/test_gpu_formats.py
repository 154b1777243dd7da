"""Each format of each tool gives the figures that stand in it, and None for the others."""

from pathlib import Path

import pytest

from course_lib.diagnose.gpu_status import GpuStatus, gpu_statuses, live_status
from course_lib.errors import CourseError

SAMPLES = Path(__file__).parent / "samples"


def read(name: str) -> list[GpuStatus]:
    return gpu_statuses((SAMPLES / name).read_text(encoding="utf-8"))


def one(name: str) -> GpuStatus:
    statuses = read(name)
    assert len(statuses) == 1
    return statuses[0]


def test_the_narrow_table_of_2016() -> None:
    status = one("smi_340_tesla.txt")
    assert (status.smi_version, status.driver_version, status.cuda_version) == ("340.98", "340.98", None)
    tesla, small = status.gpus
    assert (tesla.name, tesla.used_mib, tesla.total_mib, tesla.util_percent) == (
        "Tesla K40c",
        9120,
        11519,
        97,
    )
    assert (tesla.power_w, tesla.power_cap_w, tesla.temp_c, tesla.fan_percent) == (143, 235, 61, 23)
    assert (small.util_percent, small.power_w, small.power_cap_w) == (None, None, None)
    assert small.used_mib == 4
    assert [(p.gpu, p.pid, p.kind, p.mib) for p in status.processes or ()] == [(0, 7412, None, 9096)]
    assert not status.truncated


def test_the_table_of_535_with_processes() -> None:
    status = one("smi_535_eight_ranks.txt")
    assert status.cuda_version == "12.2"
    assert status.time == "Mon Mar  4 18:21:07 2024"
    assert [gpu.used_mib for gpu in status.gpus] == [31544, 30118, 30118]
    assert [gpu.mig_enabled for gpu in status.gpus] == [False] * 3
    assert [(p.gpu, p.pid, p.mib) for p in status.processes or ()][:2] == [(0, 41021, 30100), (0, 41022, 714)]


def test_wsl_hides_memory_by_process_and_has_two_versions() -> None:
    status = one("smi_580_wsl.txt")
    assert (status.smi_version, status.driver_version) == ("580.65.05", "580.88")
    assert [(p.pid, p.mib) for p in status.processes or ()] == [(5127, None)]
    assert status.gpus[0].display is True


def test_slices() -> None:
    status = one("smi_mig_a100.txt")
    assert status.gpus[0].mig_enabled is True
    assert status.gpus[0].util_percent is None
    assert [(d.gi, d.dev, d.used_mib, d.total_mib, d.sm) for d in status.mig_devices] == [
        (1, 0, 13, 20096, 42),
        (2, 1, 13, 20096, 42),
    ]
    assert status.processes == ()


def test_cells_that_cannot_be_read() -> None:
    table = read("smi_err_cells.txt")[0]
    lost = table.gpus[1]
    assert (lost.used_mib, lost.util_percent, lost.power_w, lost.temp_c) == (None, None, None, None)
    assert len(lost.unreadable) >= 3
    sensor = one("smi_power_err.txt").gpus[0]
    assert sensor.fan_percent is None
    assert sensor.unreadable == ("fan",)
    assert sensor.power_w == 188


def test_a_table_without_its_frame_and_blanks() -> None:
    text = (SAMPLES / "smi_535_eight_ranks.txt").read_text(encoding="utf-8")
    damaged = "\n".join(" ".join(line.split()) for line in text.splitlines())
    status = gpu_statuses(damaged)[0]
    assert [gpu.used_mib for gpu in status.gpus] == [31544, 30118, 30118]
    assert len(status.processes or ()) == 5


def test_query_with_throttling_and_link() -> None:
    status = one("smi_query_throttled.txt")
    assert (status.driver_version, status.cuda_version) == ("550.90.07", "12.4")
    first, second = status.gpus
    assert first.throttle_reasons == ("hw_slowdown", "hw_thermal_slowdown")
    assert (first.used_mib, first.total_mib, first.free_mib) == (60312, 81559, 20695)
    assert (first.util_percent, first.memory_activity_percent) == (99, 34)
    assert (first.temp_c, first.slowdown_temp_c, first.power_w, first.power_cap_w) == (91, 89, 402.11, 700)
    assert (first.sm_clock_mhz, first.max_sm_clock_mhz) == (1095, 1980)
    assert (first.pcie_generation, first.pcie_width, first.pcie_width_max) == (5, 8, 16)
    assert first.ecc_uncorrected == 0
    assert second.throttle_reasons is None
    assert second.max_sm_clock_mhz is None
    assert [(p.gpu, p.pid, p.mib) for p in status.processes or ()] == [(0, 90210, 60298)]


def test_a_part_of_a_query_without_its_head() -> None:
    gpu = one("smi_query_memory_390.txt").gpus[0]
    assert (gpu.used_mib, gpu.total_mib, gpu.util_percent) == (7702, 8119, 12)
    assert gpu.memory_activity_percent == 3  # activity, not how full it is
    assert gpu.name is None


def test_xml_whole_and_cut() -> None:
    text = (SAMPLES / "smi_xml.txt").read_text(encoding="utf-8")
    status = gpu_statuses(text)[0]
    first, second = status.gpus
    assert (first.index, first.name, first.used_mib, first.power_w) == (0, "NVIDIA RTX A6000", 41207, 297.41)
    assert first.throttle_reasons == ("sw_power_cap",)
    assert (second.index, second.power_w, second.util_percent) == (1, None, 0)
    assert [(p.pid, p.mib) for p in status.processes or ()] == [(5151, 41190)]
    cut = gpu_statuses(text[: text.index("<clocks_event_reasons>")])[0]
    assert cut.truncated
    assert cut.gpus[0].pstate == "P2"
    assert cut.gpus[0].used_mib is None


def test_xml_cannot_blow_up() -> None:
    bomb = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "x" * 10}">' for i in range(12))
    text = (
        "<!DOCTYPE nvidia_smi_log "
        f"[{bomb}]><nvidia_smi_log><gpu><product_name>&a11;</product_name></gpu></nvidia_smi_log>"
    )
    assert all(gpu.name is None for status in gpu_statuses(text) for gpu in status.gpus)


def test_csv_with_a_mask_of_reasons_is_a_series() -> None:
    status = one("smi_csv_reasons.txt")
    assert len(status.samples) == 4
    assert [gpu.index for gpu in status.gpus] == [0, 1]
    slow, well = status.gpus
    assert slow.throttle_reasons == ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown")
    assert well.throttle_reasons == ()
    assert slow.sm_clock_mhz == 945


def test_csv_by_its_command_alone() -> None:
    text = (
        "$ nvidia-smi --query-gpu=index,memory.used,memory.total,utilization.gpu "
        "--format=csv,noheader,nounits\n0, 811, 24564, 3\n1, [N/A], 24564, [Not Supported]\nnvidia-smi "
        "--query-compute-apps=pid,process_name,used_memory --format=csv,noheader\n812, /usr/bin/python3, "
        "790 MiB\n"
    )
    (status,) = gpu_statuses(text)
    assert [(g.index, g.used_mib, g.total_mib, g.util_percent) for g in status.gpus] == [
        (0, 811, 24564, 3),
        (1, None, 24564, None),
    ]
    assert [(p.pid, p.name, p.mib) for p in status.processes or ()] == [(812, "/usr/bin/python3", 790)]


def test_bare_numbers_get_no_names() -> None:
    for status in read("smi_csv_anonymous.txt"):
        assert status.gpus == ()
        assert "columns unknown" in status.trouble


@pytest.mark.parametrize(
    "text", ["a, b, c\n1, 2, 3\n", "epoch,loss\n1,0.5\n2,0.4\n", "name, age\nAnn, 30\n", "1, 2, 3"]
)
def test_other_tables_are_not_cards(text: str) -> None:
    assert gpu_statuses(text) == []


def test_dmon_of_new_drivers() -> None:
    status = one("smi_dmon_new.txt")
    assert len(status.samples) == 4
    assert status.samples[0].time == "20250110 10:00:01"
    assert [(g.index, g.power_w, g.used_mib, g.util_percent) for g in status.gpus] == [
        (0, 615, 70112, 98),
        (1, 601, 70112, 100),
    ]
    assert status.gpus[0].throttle_reasons == ("sw_power_cap",)


def test_pmon_names_processes() -> None:
    status = one("smi_pmon.txt")
    assert [(p.gpu, p.pid, p.sm_percent, p.name) for p in status.processes or ()] == [
        (0, 128811, 91, "python train.py")
    ]


def test_gpustat_with_fan_and_power() -> None:
    status = one("gpustat_two.txt")
    assert status.driver_version == "535.161.08"
    first = status.gpus[0]
    assert (first.temp_c, first.fan_percent, first.util_percent) == (64, 42, 98)
    assert (first.power_w, first.power_cap_w, first.used_mib, first.total_mib) == (401, 450, 21033, 24564)
    owner = (status.processes or ())[0]
    assert (owner.user, owner.name, owner.pid, owner.mib) == (
        "ann",
        "python",
        71234,
        20980,
    )


def test_a_list_of_cards_with_slices() -> None:
    text = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-c28bcb0b-dcd9-5ee4-b60c-7d7a4a2a3f2c)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-d268-c3f3-1b07-005d5ae1dc3f)\n"
    )
    (status,) = gpu_statuses(text)
    assert [(g.index, g.mig_enabled, g.used_mib) for g in status.gpus] == [(0, True, None), (1, None, None)]


def test_topology() -> None:
    status = one("topo_nvlink.txt")
    assert status.links == {f"{a}-{b}": "NV12" for a in range(4) for b in range(a + 1, 4)}
    assert status.numa == (0, 0, 1, 1)


def test_rocm_smi_and_nvitop() -> None:
    rocm = one("rocm_smi.txt")
    assert [(g.index, g.util_percent, g.temp_c, g.power_w, g.used_mib) for g in rocm.gpus] == [
        (0, 97, 58, 211, None),
        (1, 0, 33, 39, None),
    ]
    gpu = one("nvitop.txt").gpus[0]
    assert (gpu.used_mib, gpu.fan_percent, gpu.util_percent) == (9702, 100, 99)


def test_repeated_looks_become_a_series() -> None:
    text = (SAMPLES / "smi_held_idle.txt").read_text(encoding="utf-8")
    (status,) = gpu_statuses(text + "\n" + text.replace("      0%", "     88%"))
    assert [sample.util_percent for sample in status.samples] == [0, 88]
    assert len(status.gpus) == 1


def test_a_status_prints_what_it_knows() -> None:
    text = str(one("smi_340_tesla.txt"))
    assert "9120 / 11519" in text
    assert "? / ?" in text  # the small card does not tell its power
    assert "process 7412 on GPU 0: 9096 MiB" in text
    assert "NV12" in str(one("topo_nvlink.txt"))
    assert "&lt;b&gt;" in GpuStatus(source="x", trouble={"a": "<b>"})._repr_html_()


def test_live_figures_or_one_sentence() -> None:
    status, sentence = None, ""
    try:
        status = live_status()
    except CourseError as error:
        sentence = str(error)
    assert status is not None or len(sentence.splitlines()) == 1
    assert status is None or status.source == "live"
