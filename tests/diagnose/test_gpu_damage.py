"""A dump reads the same however it was pasted: quoted, labelled, indented, coloured, broken at the margin."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.diagnose.cards import diagnose
from course_lib.diagnose.gpu_status import GpuStatus, gpu_statuses

SAMPLES = Path(__file__).parent / "samples"
NAMES = [
    path.name
    for path in sorted(SAMPLES.glob("*.txt"))
    if path.name.startswith(("smi_", "gpustat", "topo", "nvitop", "rocm", "xid"))
]


def before_each_line(prefix: str) -> Callable[[str], str]:
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def tabs(text: str) -> str:
    return "\n".join(re.sub(" {8}", "\t", line) for line in text.split("\n"))


def html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


WAYS: dict[str, Callable[[str], str]] = {
    "quotation": before_each_line("> "),
    "quotation of a quotation": before_each_line("> > "),
    "indented": before_each_line("        "),
    "torchrun's label": before_each_line("[rank0]: "),
    "docker compose": before_each_line("trainer_1  | "),
    "kubectl": before_each_line("2024-03-04T11:02:10.123456789Z "),
    "markdown fence": lambda text: f"Here it is:\n```\n{text}```\nAny idea?\n",
    "watch": lambda text: f"Every 2.0s: nvidia-smi          gpu3: Mon Mar  4 11:02:10 2024\n\n{text}",
    "colours": lambda text: re.sub(r"(\d+)", "\x1b[1;32m\\1\x1b[0m", text),
    "blanks that do not break": lambda text: text.replace("  ", "\u00a0 "),
    "Windows line ends": lambda text: text.replace("\n", "\r\n"),
    "drawn frames": lambda text: text.replace("|", "│"),
    "empty lines between": lambda text: text.replace("\n", "\n\n"),
    "blanks behind": lambda text: text.replace("\n", "    \n"),
    "tabs": tabs,
    "entities": html,
}


def told(statuses: list[GpuStatus]) -> list[tuple[object, ...]]:
    """All that is read, without the places of lines."""
    return [
        (
            *(s.source, s.driver_version, s.cuda_version, s.gpus, s.samples, s.processes, s.mig_devices),
            *(dict(s.links), s.numa, sorted(s.trouble), s.columns),
        )
        for s in statuses
    ]


def read(name: str) -> tuple[str, list[tuple[object, ...]]]:
    text = (SAMPLES / name).read_text(encoding="utf-8")
    return text, told(gpu_statuses(text))


@pytest.mark.parametrize("way", WAYS)
def test_the_same_is_read_however_it_was_pasted(way: str) -> None:
    assert len(NAMES) > 10
    for name in NAMES:
        text, plain = read(name)
        assert plain, name
        assert told(gpu_statuses(WAYS[way](text))) == plain, name


@pytest.mark.parametrize("name", ["smi_580_wsl.txt", "smi_csv_reasons.txt", "smi_held_idle.txt"])
def test_lines_broken_at_80_columns_are_put_together(name: str) -> None:
    text, plain = read(name)
    pieces = [line[i : i + 80] for line in text.split("\n") for i in range(0, max(len(line), 1), 80)]
    broken = gpu_statuses("\n".join(pieces))
    assert [status.gpus for status in broken] == [row[3] for row in plain]
    assert [status.processes for status in broken] == [row[5] for row in plain]


def test_a_dump_printed_as_one_line() -> None:
    text, plain = read("smi_535_eight_ranks.txt")
    assert told(gpu_statuses(repr(text.encode()))) == plain


def test_a_cut_table_says_nothing_about_what_is_missing() -> None:
    """Wherever it is cut: no more cards than before, no figure that was not there, no unnamed process."""
    text, _ = read("smi_535_eight_ranks.txt")
    whole = gpu_statuses(text)[0]
    cards = {gpu.index: gpu for gpu in whole.gpus}
    for end in range(0, len(text), 37):
        for status in gpu_statuses(text[:end]):
            assert {gpu.index for gpu in status.gpus} <= set(cards)
            for gpu in status.gpus:
                assert gpu.used_mib in (None, cards[gpu.index].used_mib)
                assert gpu.util_percent in (None, cards[gpu.index].util_percent)
            assert "zombie.holding_gpu" not in [finding.id for finding in diagnose(status)]
