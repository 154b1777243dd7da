"""``course watch`` shows what this computer has, once or again and again."""

import json
import subprocess
import sys

from course_lib.cli.watch import table
from course_lib.diagnose.gpu_status import Gpu, GpuProcess, GpuStatus
from course_lib.diagnose.host_load import HostLoad, host_load

HOST = HostLoad((10.0, 30.0), 2, 4000.0, 16000.0, 12000.0, 0.0)


def test_once_as_text_and_as_json() -> None:
    command = [sys.executable, "-m", "course_lib", "watch", "--once"]
    text = subprocess.run(command, capture_output=True, check=True, encoding="utf-8", timeout=300).stdout
    assert "cores" in text
    assert "MiB in use" in text
    answer = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=300).stdout
    )
    assert answer["host"]["memory_total_mib"] > 0
    assert (answer["cards"] is None) == (answer["no_cards"] is not None)


def test_lines_of_json_until_it_is_stopped() -> None:
    command = [sys.executable, "-m", "course_lib", "watch", "--json", "--interval", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.kill()
    assert all(look["host"]["core_percent"] for look in looks)


def test_what_the_host_tells() -> None:
    load = host_load(0.05)
    assert load.core_percent
    assert 0 < load.memory_used_mib <= load.memory_total_mib
    assert 1 <= load.usable_cores <= len(load.core_percent)


def test_the_table_with_cards_and_without() -> None:
    gpus = (
        Gpu(index=0, name="A card", used_mib=1000.0, total_mib=8000.0, util_percent=50.0, power_w=100.0),
        Gpu(index=1, throttle_reasons=("hw_thermal_slowdown",)),
    )
    cards = GpuStatus(source="live", gpus=gpus, processes=(GpuProcess(gpu=0, pid=7, name="python"),))
    text = table(HOST, cards, None)
    assert "1000 / 8000" in text
    assert "hw_thermal_slowdown" in text
    assert "process 7 on GPU 0: memory hidden" in text
    assert "20 % busy" in text
    assert table(HOST, None, "None is here.").endswith("No NVIDIA card to read. None is here.")


def test_cards_in_narrow_terminals() -> None:
    gpu = Gpu(index=0, name="NVIDIA GeForce RTX 3090", used_mib=1000.0, total_mib=24576.0, util_percent=50.0)
    cards = GpuStatus(source="live", gpus=(gpu,))
    for width in (20, 40, 55, 62, 79, 80, 100):
        lines = cards.in_lines(width).split("\n")
        assert all(len(line) <= max(width, 31) for line in lines), width
        assert "1000 / 24576" in lines[1]
    assert "NVIDIA GeForce RTX 3090" in cards.in_lines(80)
    assert "NVIDIA" not in cards.in_lines(50)
