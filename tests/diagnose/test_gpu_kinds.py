"""Forms that came with new drivers, old cards, other makers and other tools; each in its smallest shape."""

import json

import pytest

from course_lib.diagnose.cards import diagnose
from course_lib.diagnose.gpu_status import Gpu, GpuStatus, gpu_statuses


def one(text: str) -> GpuStatus:
    (status,) = gpu_statuses(text)
    return status


def ids(text: str) -> list[str]:
    return [finding.id for status in gpu_statuses(text) for finding in diagnose(status)]


def test_the_head_of_driver_610() -> None:
    status = one(
        "| NVIDIA-SMI 611.02.01              KMD Version: 611.02.01     CUDA UMD Version: 13.4     |\n"
        "|   0  NVIDIA H200                    On  |   00000000:19:00.0 Off |                    0 |\n"
        "| N/A   41C    P0            402W /  700W |   91002MiB / 143771MiB |     97%      Default |\n"
    )
    assert (status.smi_version, status.driver_version, status.cuda_version) == (
        "611.02.01",
        "611.02.01",
        "13.4",
    )
    assert status.gpus[0].total_mib == 143771


def test_a_part_without_a_bus_shares_its_memory() -> None:
    text = (
        "| NVIDIA-SMI 540.3.0                Driver Version: 540.3.0      CUDA Version: 12.6     |\n"
        "|   0  Orin (nvgpu)                  N/A  | N/A              N/A |                  N/A |\n"
        "| N/A   N/A  N/A               N/A /  N/A | Not Supported        |     N/A          N/A |\n"
    )
    assert one(text).gpus[0].bus_id is None
    assert ids(text) == ["smi.unified_memory"]


def test_a_damaged_memory_cell_is_no_unified_memory() -> None:
    text = (
        "|   0  Tesla V100-SXM2...  On   | 00000000:0A:00.0 Off |                    0 |\n"
        "| N/A   43C    P0    70W / 300W |  1%1MiB // 16160Mi   |     40%      Default |\n"
    )
    assert one(text).gpus[0].used_mib is None
    assert "smi.unified_memory" not in ids(text)


def test_cards_of_2013_do_not_tell_their_processes() -> None:
    text = (
        "|   0  GeForce GTX 770     Off  | 0000:02:00.0     N/A |                  N/A |\n"
        "| 30%   41C  N/A     N/A /  N/A |     1512MB /  2047MB |     N/A      Default |\n"
        "+-------------------------------+----------------------+----------------------+\n"
        "| Compute processes:                                               GPU Memory |\n"
        "|=============================================================================|\n"
        "|    0            Not Supported                                               |\n"
        "+-----------------------------------------------------------------------------+\n"
    )
    status = one(text)
    assert status.processes is None
    assert (status.gpus[0].used_mib, status.gpus[0].util_percent) == (1512, None)
    assert "zombie.holding_gpu" not in ids(text)


def test_a_process_that_has_lost_its_name() -> None:
    text = (
        "| Processes:                                                       GPU Memory |\n"
        "|    2     40411      C   Unknown Error                                 7011MiB |\n"
        "|    3     40412      C   python                                        7011MiB |\n"
    )
    assert ids(text) == ["zombie.holding_gpu"]
    assert "40411" in diagnose(one(text))[0].why


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "===NVSMI LOG===\nAttached GPUs : 1\nGPU 0000:01:00.0\n    Temperature\n        Gpu : 49 C\n",
            {"temp_c": 49},
        ),
        (
            "    Clocks Event Reasons\n        Idle                : Not Active\n"
            "        SW Power Cap        : Active\n        HW Slowdown         : Not Active\n",
            {"throttle_reasons": ("sw_power_cap",)},
        ),
        (
            "    Clocks Throttle Reasons\n        SW Thermal Slowdown : Not Active\n"
            "    Clocks Event Reasons Counters\n        SW Thermal Slowdown : 9001 us\n",
            {"throttle_reasons": ()},
        ),
        (
            "    ECC Errors\n        Volatile\n            SRAM Uncorrectable : 2\n"
            "            DRAM Uncorrectable : 1\n        Aggregate\n            DRAM Uncorrectable : 9\n",
            {"ecc_uncorrected": 3},
        ),
        (
            "    ECC Errors\n        Volatile\n            Double Bit\n                Device Memory : 4\n"
            "                Total         : 4\n    Retired Pages\n        Double Bit ECC        : 4\n"
            "        Pending               : Yes\n    Utilization\n        Gpu : 0 %\n",
            {"ecc_uncorrected": 4, "repair_pending": True, "util_percent": 0},
        ),
        (
            "    GPU Power Readings\n        Average Power Draw       : N/A\n"
            "        Instantaneous Power Draw : 83.10 W\n        Current Power Limit      : 400.00 W\n"
            "    Max Clocks\n        SM : 1410 MHz\n",
            {"power_w": 83.1, "power_cap_w": 400.0},
        ),
        (
            "    Clocks\n        SM                : 1980 MHz\n    Max Clocks\n        SM : 2010 MHz\n",
            {"sm_clock_mhz": 1980, "max_sm_clock_mhz": 2010},
        ),
        (
            "    Remapped Rows\n        Uncorrectable Error  : 2\n        Pending              : Yes\n",
            {"repair_pending": True},
        ),
        (
            "Attached GPUs        : 1\nGPU 00000000:03:00.0\n    Product Name     : NVIDIA A40\n",
            {"name": "NVIDIA A40", "bus_id": "00000000:03:00.0"},
        ),
    ],
)
def test_parts_of_the_long_form(text: str, fields: dict[str, object]) -> None:
    gpu = one(text).gpus[0]
    assert {name: getattr(gpu, name) for name in fields} == fields
    assert "smi.unified_memory" not in ids(text)  # memory was not asked for


def test_two_logs_are_two_looks_and_not_four_cards() -> None:
    log = (
        "==============NVSMI LOG==============\nAttached GPUs : 2\n"
        "GPU 00000000:01:00.0\n    Utilization\n        Gpu : {} %\n"
        "GPU 00000000:02:00.0\n    Utilization\n        Gpu : 50 %\n"
    )
    status = one(log.format(10) + log.format(30))
    assert [gpu.util_percent for gpu in status.gpus] == [30, 50]
    assert len(status.samples) == 4


def test_the_middle_of_a_log_in_xml() -> None:
    gpu = one(
        "<details>\n  <link_width>16x</link_width></pci>\n  <performance_state>P2</performance_state>\n"
        "  <fb_memory_usage><total>24576 MiB</total><used>20480 MiB</used></fb_memory_usage>\n"
        "  <utilization><gpu_util>93 %</gpu_util>\n"
    ).gpus[0]
    assert (gpu.pstate, gpu.used_mib, gpu.total_mib, gpu.util_percent) == ("P2", 20480, 24576, 93)


def test_a_cut_mask_of_reasons_is_no_mask() -> None:
    head = "index, utilization.gpu [%], clocks_event_reasons.active\n"
    assert one(head + "0, 99 %, 0x0000000000000040\n").gpus[0].throttle_reasons == ("hw_thermal_slowdown",)
    assert one(head + "0, 99 %, 0x00000000\n").gpus[0].throttle_reasons is None


def test_rows_of_one_moment_are_cards_and_not_moments() -> None:
    rows = "".join(
        f"2026/02/03 10:00:{second:02d}.{card:03d}, {util} %, 20000 MiB\n"
        for second in range(5)
        for card, util in enumerate((96, 20))
    )
    status = one("timestamp, utilization.gpu [%], memory.used [MiB]\n" + rows)
    assert [gpu.util_percent for gpu in status.gpus] == [96, 20]
    assert len(status.samples) == 10


def test_units_tell_a_row_without_names() -> None:
    assert ids("GeForce GTX 1070, 61 %, 4 %, 70, 112.10 W, 150.00 W, [Unknown Error], P2\n") == [
        "smi.columns_unknown"
    ]
    assert gpu_statuses("12, 61, 4, 70\n") == []


def test_a_wide_matrix_of_connections() -> None:
    text = (
        "            GPU0    GPU1    GPU2    NIC0    mlx5_1  CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "    GPU0     X      NV6     SYS     PIX     SYS     0-15            0               N/A\n"
        "    GPU1    NV6      X      SYS     PIX     SYS     0-15            0               N/A\n"
        "    GPU2    SYS     SYS      X      SYS     PIX     16-31           1               N/A\n"
        "    NIC0    PIX     PIX     SYS      X      SYS\n"
    )
    status = one(text)
    assert dict(status.links) == {"0-1": "NV6", "0-2": "SYS", "1-2": "SYS"}
    assert status.numa == (0, 0, 1)
    assert ids(text) == ["topology.mixed_nvlink"]


def test_inactive_links() -> None:
    card = "GPU 5: Tesla V100-SXM2-16GB (UUID: GPU-0aa0bb11-1111-2222-3333-444455556666)\n"
    works, down = "\t Link {}: 25.781 GB/s\n", "\t Link {}: <inactive>\n"
    text = card + works.format(0) + works.format(1) + down.format(2)
    assert ids(text) == ["hardware.nvlink_inactive"]
    assert "2 (of 3)" in diagnose(one(text))[0].why
    assert ids(card + works.format(0) + works.format(1)) == []
    assert ids(card + down.format(0) + down.format(1)) == []  # no bridge, no fault


RECORDS = {
    "driver_version": "550.90.07",
    "gpus": [
        {
            "index": 3,
            "name": "NVIDIA L40S",
            "temperature.gpu": 55,
            "utilization.gpu": 71,
            "power.draw": None,
            "memory.used": 30011,
            "memory.total": 46068,
            "processes": [{"username": "kim", "command": "python", "gpu_memory_usage": 30000, "pid": 808}],
        }
    ],
}


@pytest.mark.parametrize("text", [json.dumps(RECORDS, indent=2), json.dumps(RECORDS), repr(RECORDS)])
def test_gpustat_as_json_and_as_python_prints_it(text: str) -> None:
    status = one(text)
    assert status.driver_version == "550.90.07"
    assert status.gpus[0] == Gpu(
        index=3, name="NVIDIA L40S", temp_c=55, util_percent=71, used_mib=30011, total_mib=46068
    )
    assert [(p.gpu, p.pid, p.user, p.mib) for p in status.processes or ()] == [(3, 808, "kim", 30000)]


def test_nvtop_on_the_screen_and_as_json() -> None:
    screen = one(
        " Device 1 [NVIDIA RTX A5000] PCIe GEN 4@16x RX: 1.0 MiB/s TX: 2.0 MiB/s\n"
        " GPU 1695MHz MEM 7600MHz TEMP  66°C FAN  51% POW 201 / 230 W\n"
        " GPU[||||||||||||||||||||    88%] MEM[||||||||||       12.500Gi/24.000Gi]\n"
    ).gpus[0]
    assert (screen.index, screen.util_percent, screen.used_mib, screen.power_cap_w) == (1, 88, 12800, 230)
    record = one('[{"device_name": "NVIDIA RTX A5000", "gpu_clock": "1695MHz", "gpu_util": "88%"}]').gpus[0]
    assert (record.util_percent, record.sm_clock_mhz, record.used_mib) == (88, 1695, None)


@pytest.mark.parametrize(
    ("text", "source", "figures"),
    [
        (
            "Device  Node  Temp  Power  SCLK  MCLK  Fan  Perf  PwrCap  VRAM%  GPU%\n"
            "0  1  51.0°C  210.0W  1700Mhz  900Mhz  0%  auto  560.0W  40%  88%\n"
            "1  2  N/A     N/A     N/A      N/A     0%  n/a   N/A     0%   N/A\n",
            "rocm-smi",
            [(51, 210, 88, None), (None, None, None, None)],
        ),
        (
            "device,GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B)\n"
            "card0,12,17179869184,8589934592\n",
            "rocm-smi",
            [(None, None, 12, 8192)],
        ),
        (
            "| AMD-SMI 26.2.0      amdgpu version: 6.16.6   ROCm version: 7.1.1 |\n"
            "| 0000:05:00.0 AMD Instinct MI250X    | 0 %      44 °C   0           301/560 W |\n"
            "|   0       0       2        SPX/NPS1 | 97 %       N/A           5120/65536 MB |\n",
            "amd-smi",
            [(44, 301, 97, 5120)],
        ),
        (
            "GPU  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE\n"
            "  0  305 W   49 °C   43 °C  2106 MHz   97 %    1 %    N/A    0 %    3.0/192.0 GB\n",
            "amd-smi",
            [(49, 305, 97, 3072)],
        ),
        (
            "GPU: 0\n    USAGE:\n        GFX_ACTIVITY: 7 %\n        JPEG_ACTIVITY: [N/A, N/A, N/A, N/A]\n"
            "    POWER:\n        SOCKET_POWER: 31 W\n    TEMPERATURE:\n        EDGE: 44 °C\n"
            "    MEM_USAGE:\n        TOTAL_VRAM: 16384 MB\n        USED_VRAM: 512 MB\n",
            "amd-smi",
            [(44, 31, 7, 512)],
        ),
        (
            '[{\n"gpu": 0,\n"usage": {\n"gfx_activity": {\n"value": 5,\n"unit": "%"\n}},\n"power": {\n'
            '"socket_power": {\n"value": 9,\n"unit": "W"\n}}}]\n',
            "amd-smi",
            [(None, 9, 5, None)],
        ),
        ("GPU[0] \t\t: Temperature (Sensor edge) (c): 50.0\n", "rocm-smi", [(50, None, None, None)]),
        (
            "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Core Temperature (Celsius Degree)\n"
            "08:08:16.817,    0,  N/A, 281.13, 35.50\n",
            "xpu-smi",
            [(35.5, 281.13, None, None)],
        ),
    ],
)
def test_other_makers_are_named_and_not_judged(
    text: str, source: str, figures: list[tuple[float | None, ...]]
) -> None:
    status = one(text)
    assert status.source == source
    assert [(g.temp_c, g.power_w, g.util_percent, g.used_mib) for g in status.gpus] == figures
    assert ids(text) == ["smi.not_nvidia"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Unable to determine the device handle for GPU3: 0000:BA:00.0: Unknown Error", "hardware.gpu_lost"),
        ("Unable to detect the device handle for GPU0000:B1:00.0: Unknown Error", "hardware.gpu_lost"),
        ("Error: nvmlDeviceGetHandleByIndex(): Unknown Error", "hardware.gpu_lost"),
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0\n  NVRM: (PCI ID: 10de:26b5)\n  NVRM: fallen off the bus",
            "hardware.gpu_lost",
        ),
        ("NVRM: Xid (PCI:0000:9b:00): 119, pid=1, Timeout waiting for RPC from GPU4 GSP!", "hardware.xid"),
        ("NVRM: Xid (PCI:0000:9b:00): 62, pid=1444", "hardware.xid"),
        ("NVRM: Xid (PCI:0000:07:00): 140, pid='<unknown>'", "hardware.memory_errors"),
        ("NVRM: Xid (0000:03:00): 79, GPU has fallen off the bus.", "hardware.gpu_lost"),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)", "hardware.init_failed"),
        ("Failed to initialize NVML: Driver Not Loaded", "smi.driver_not_running"),
        (
            "NVIDIA-SMI has failed because it couldn’t communicate with the NVIDIA dri\nver.",
            "smi.driver_not_running",
        ),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "smi.access_blocked"),
        ("Command 'nvidia-smi' not found, but can be installed with:", "smi.tool_missing"),
        ("nvidia-smi : The term 'nvidia-smi' is not recognized as the name of a cmdlet", "smi.tool_missing"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "smi.no_driver_library"),
    ],
)
def test_failures_in_all_their_wordings(line: str, expected: str) -> None:
    assert ids(line + "\n") == [expected]


def test_dcgmi() -> None:
    status = one(
        "#Entity   GPUTL   FBUSD   POWER\nID\nGPU 0     91      40123   301.25\nGPU 1  N/A  40123  298\n"
    )
    assert (status.source, status.gpus[0]) == (
        "dcgmi dmon",
        Gpu(index=0, util_percent=91, used_mib=40123, power_w=301.25),
    )
    assert status.gpus[1].util_percent is None


def test_a_row_that_breaks_off() -> None:
    """What stands before the break is read, and no verdict on the rest is made."""
    text = (
        "|   0  NVIDIA RTX A5000    On  | 00000000:01:00.0 Off |                  Off |\n"
        "| 30%   33C    P8    18W / 230W |      1MiB / 24564MiB |      0%      Default |\n"
        "|   1  NVIDIA RTX A5000    On  | 00000000:02:00.0 Off |                  Off |\n"
        "| 51%   71C    P2   226W / 230W |  212"
    )
    second = one(text).gpus[1]
    assert (second.temp_c, second.power_w, second.used_mib, second.util_percent) == (71, 226, None, None)
    (finding,) = diagnose(one(text))
    assert finding.certainty == "likely"
    assert "GPU 1" in finding.why


def test_windows_shows_in_every_form() -> None:
    """There a list of processes that names nobody is usual, and no sign of a dead one."""
    text = (
        "Attached GPUs : 1\nGPU 00000000:01:00.0\n    Driver Model\n        Current : WDDM\n"
        "    FB Memory Usage\n        Total : 16376 MiB\n        Used : 9012 MiB\n    Processes : None\n"
    )
    assert (one(text).os, one(text).driver_model) == ("windows", "WDDM")
    assert "zombie.holding_gpu" not in ids(text)
    assert "zombie.holding_gpu" in ids(text.replace("WDDM", "N/A"))


def test_a_card_that_works_in_bursts() -> None:
    head = "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"

    def rows(*utils: int) -> str:
        return head + "".join(
            f"2026/02/03 10:00:{second:02d}.001, 0, {util} %, 20000 MiB, 24564 MiB\n"
            for second, util in enumerate(utils)
        )

    assert ids(rows(97, 0, 98, 0, 0, 95, 99, 0, 96, 0, 0, 94))[0] == "perf.gpu_starved"
    assert "perf.gpu_starved" not in ids(rows(97, 98, 97, 0, 0, 98, 99, 97, 96, 98, 97, 94))  # a pause


def test_a_rank_that_stands_still_among_spinning_ones() -> None:
    head = "index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n"
    text = (
        head
        + "0, 0 %, 30000 MiB, 81920 MiB\n"
        + "".join(f"{i}, 100 %, 30000 MiB, 81920 MiB\n" for i in (1, 2))
    )
    (finding,) = diagnose(one(text))
    assert finding.id == "smi.memory_held_idle"
    assert "GPU 1, GPU 2" in finding.why


def test_idle_power_without_a_job_is_no_hang() -> None:
    head = "index, memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]\n"
    empty = head + "".join(f"{i}, 4 MiB, 81920 MiB, 60 W, 700 W\n" for i in range(4))
    held = head + "".join(f"{i}, 40000 MiB, 81920 MiB, 60 W, 700 W\n" for i in range(4))
    assert "hang.all_ranks_idle_power" not in ids(empty)
    assert "hang.all_ranks_idle_power" in ids(held)


def test_programs_of_windows_are_not_listed_under_wsl() -> None:
    table = (
        "| NVIDIA-SMI 545.23.05              Driver Version: {}       CUDA Version: 12.3     |\n"
        "|   0  NVIDIA GeForce RTX 3080        On  | 00000000:01:00.0  On |                  N/A |\n"
        "|  0%   45C    P8              27W / 320W |   2913MiB / 10240MiB |      4%      Default |\n"
        "|  No running processes found                                                           |\n"
    )
    assert "zombie.holding_gpu" not in ids(table.format("545.84"))
    assert "zombie.holding_gpu" in ids(table.format("545.23.05"))


def test_a_card_on_which_computing_is_forbidden() -> None:
    text = "index, compute_mode, memory.used [MiB], memory.total [MiB]\n0, Prohibited, 4 MiB, 40960 MiB\n"
    assert ids(text)[0] == "smi.compute_prohibited"


def test_of_hundreds_of_looks_the_last_tells_the_processes() -> None:
    """Processes that were kept from every look would make the work grow with the square of the text."""
    line = "[{}] NVIDIA A40 | 60'C,  97 % | 40000 / 46068 MB | kim:python/{}(39990M)\n"
    look = "".join(line.format(card, 100 + card) for card in range(4))
    status = one(look * 300)
    assert (len(status.gpus), len(status.samples), len(status.processes or ())) == (4, 1200, 4)


def test_processes_of_slices() -> None:
    text = (
        "| Processes:                                                                  |\n"
        "|    1    3    0      34965      C   python                          14195MiB |\n"
        "|    1   N/A  N/A     55252      C   python3                           149MiB |\n"
    )
    assert [(p.pid, p.gi, p.ci) for p in one(text).processes or ()] == [(34965, 3, 0), (55252, None, None)]


@pytest.mark.parametrize(
    "text",
    [
        "index,name,count\n0,alice,3\n1,bob,4\n",
        "pid, name, user\n12, bash, kim\n",
        '"utilization.gpu"\nPercent of time in which a kernel ran, over 1 second or less.\n',
        '"clocks_throttle_reasons.supported"\nBitmask of supported reasons.\n',
        "GPU models and configuration:\nGPU 0: NVIDIA A100 80GB PCIe\nNvidia driver version: 525.116.04\n",
        "Temperature\n  high: 3\nUtilization\n  cpu: 3 %\n",
        '{"index": 3, "name": "x", "processes": []}',
    ],
)
def test_other_tables_are_not_taken_for_cards(text: str) -> None:
    assert gpu_statuses(text) == []


def test_rows_in_quotes_are_not_rows_of_one_cell() -> None:
    text = '  "Timestamp, DeviceId, GPU Power (W)\\n"\n  "08:08:16.817,    0,  281.13\\n"\n'
    assert one(text).gpus == ()
