"""Are card and driver found, and the driver's troubles told apart, without asking torch?"""

import os
import sys
from pathlib import Path

import pytest

from course_lib.gpu_driver import (
    NvidiaCard,
    NvidiaStatus,
    amd_card_count,
    nvidia_status,
    parse_nvidia_smi,
)

CLOSED_MODULE = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 2024\nGCC version: 12\n"
)
OPEN_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.02  Release Build  (root@host)\n"
)
ARM_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n"


def smi(folder: Path, script: str) -> str:
    """A program that stands where nvidia-smi stands and behaves as ``script`` says."""
    if sys.platform == "win32":
        pytest.skip("stands in for nvidia-smi with a shell script")
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def on_the_bus(root: Path, *cards: tuple[str, str]) -> Path:
    for number, (vendor, device_class) in enumerate(cards):
        device = root / f"sys/bus/pci/devices/0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n", encoding="utf-8")
        (device / "class").write_text(f"{device_class}\n", encoding="utf-8")
    return root


def test_two_cards_as_nvidia_smi_prints_them() -> None:
    answer = "580.65.06, NVIDIA GeForce RTX 3090, 24576\n580.65.06, NVIDIA A100-SXM4-40GB, 40960\n"
    assert parse_nvidia_smi(answer) == NvidiaStatus(
        (NvidiaCard("NVIDIA GeForce RTX 3090", 24 * 2**30), NvidiaCard("NVIDIA A100-SXM4-40GB", 40 * 2**30)),
        "580.65.06",
    )


def test_a_card_that_shares_the_computers_memory() -> None:
    status = parse_nvidia_smi("580.95.05, NVIDIA GB10, [N/A]\n")
    assert status is not None
    assert status.cards == (NvidiaCard("NVIDIA GB10", None),)


@pytest.mark.parametrize("answer", ["", "No devices were found\n", "a, b, c\n", "\x00\xff, \n"])
def test_what_is_no_table_is_no_card(answer: str) -> None:
    assert parse_nvidia_smi(answer) is None


def test_the_program_is_asked_for_what_is_parsed(tmp_path: Path) -> None:
    script = 'echo "$@" > "$0.asked"; echo "550.54.14, Tesla T4, 15360"'
    status = nvidia_status(tmp_path, smi(tmp_path, script))
    assert status == NvidiaStatus((NvidiaCard("Tesla T4", 15 * 2**30),), "550.54.14")
    asked = (tmp_path / "nvidia-smi.asked").read_text(encoding="utf-8")
    assert "driver_version,name,memory.total" in asked
    assert "noheader,nounits" in asked


def test_a_driver_in_trouble_is_quoted_and_the_kernel_asked(tmp_path: Path) -> None:
    root = on_the_bus(tmp_path, ("0x10de", "0x030000"))
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(CLOSED_MODULE, encoding="utf-8")
    script = "echo 'Failed to initialize NVML: Driver/library version mismatch'; echo more; exit 18"
    status = nvidia_status(root, smi(tmp_path, script))
    assert len(status.cards) == 1
    assert status.driver_version == "550.54.14"
    assert status.complaint == "Failed to initialize NVML: Driver/library version mismatch"


def test_an_nvidia_smi_that_cannot_be_run_is_no_crash(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(b"\x7fnonsense")
    program.chmod(0o755)
    status = nvidia_status(tmp_path, str(program))
    assert status.cards == ()
    assert status.complaint is not None


def test_an_nvidia_smi_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.gpu_driver._NVIDIA_SMI_SECONDS", 0.2)
    status = nvidia_status(tmp_path, smi(tmp_path, "exec sleep 60"))
    assert status.complaint is not None
    assert "no answer" in status.complaint


@pytest.mark.parametrize(
    ("text", "version"), [(CLOSED_MODULE, "550.54.14"), (OPEN_MODULE, "555.42.02"), (ARM_MODULE, "580.95.05")]
)
def test_the_kernel_modules_version(
    tmp_path: Path, text: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("course_lib.gpu_driver._WSL_SMI", str(tmp_path / "none"))
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(text, encoding="utf-8")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    status = nvidia_status(tmp_path)
    assert status == NvidiaStatus((NvidiaCard("NVIDIA card"),), version)


def test_cards_without_a_driver_are_seen_on_the_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("course_lib.gpu_driver._WSL_SMI", str(tmp_path / "none"))
    root = on_the_bus(
        tmp_path,
        ("0x10de", "0x030200"),  # a card without a screen
        ("0x10de", "0x040300"),  # the sound part of a card: not a card
        ("0x1002", "0x030000"),
        ("0x8086", "0x030000"),
    )
    assert len(nvidia_status(root).cards) == 1
    assert nvidia_status(root).driver_version is None
    assert amd_card_count(root) == 1


def test_this_computer_answers() -> None:
    status = nvidia_status()
    assert all(card.name for card in status.cards)
    if status.driver_version is None and os.name == "posix":
        assert not Path("/proc/driver/nvidia/version").exists()
